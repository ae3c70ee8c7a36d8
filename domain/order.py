"""Which sample is where: the order of an epoch, and the samples of a batch.

The order of an epoch is a keyed permutation, a function of (seed, epoch, position) that needs O(1) memory and starts
at once at any size: a balanced Feistel network over the next even power of two, walked until it lands inside the
range (Black & Rogaway 2002, "Ciphers with arbitrary finite domains"). The epochs' orders lie end to end; batch *t* is
positions [tB, (t+1)B) of that line. Nobody calls ``set_epoch``, nobody pads, nothing is dropped or repeated, and the
number of ranks does not enter (contract C7, C8).

Not here: how a batch is split over ranks and slots (``domain.plan``).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_MASK64: Final = (1 << 64) - 1
_ROUNDS: Final = 6
"""Three rounds already look random to a test of pairs; six leave no visible structure at any size tried."""


def _mix(value: int) -> int:
    """SplitMix64's finalizer (Steele, Lea & Flood 2014): a 64-bit bijection in which every input bit moves every output bit."""
    value = (value + 0x9E3779B97F4A7C15) & _MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK64
    return value ^ (value >> 31)


class EpochOrder:
    """The permutation of ``range(size)`` that is the order of one epoch.

    Parameters
    ----------
    size : int
        Samples in the dataset, at least 1.
    seed : int
        The job's seed, ``0 <= seed < 2**63``.
    epoch : int
        Counted from 0.
    """

    def __init__(self, size: int, seed: int, epoch: int):
        if size < 1:
            raise ValueError(f"a dataset needs at least one sample, got {size}")
        self.size = size
        self._half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
        self._half_mask = (1 << self._half_bits) - 1
        key = _mix(_mix(seed & _MASK64) ^ epoch)
        keys = []
        for _ in range(_ROUNDS):
            key = _mix(key)
            keys.append(key)
        self._keys = tuple(keys)

    def __getitem__(self, position: int) -> int:
        """The sample at ``position`` of this epoch."""
        if not 0 <= position < self.size:
            raise IndexError(f"position {position} is outside an epoch of {self.size} samples")
        # The walk stays on the cycle of `position`, which is inside the range, so it ends; the network's domain is
        # less than four times the range, so it takes under four steps on average.
        value = self._encrypt(position)
        while value >= self.size:
            value = self._encrypt(value)
        return value

    def _encrypt(self, value: int) -> int:
        left, right = value >> self._half_bits, value & self._half_mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right ^ key) & self._half_mask)
        return (left << self._half_bits) | right


def samples(start: int, stop: int, *, size: int, seed: int) -> Iterator[tuple[int, int]]:
    """The (epoch, sample) pairs at positions [start, stop) of the epochs' orders laid end to end.

    Parameters
    ----------
    start, stop : int
        Positions counted from the start of training, in samples.
    size : int
        Samples in the dataset.
    seed : int
        The job's seed.
    """
    order: EpochOrder | None = None
    current = -1
    for position in range(start, stop):
        epoch, index = divmod(position, size)
        if order is None or epoch != current:
            order, current = EpochOrder(size, seed, epoch), epoch
        yield epoch, order[index]
