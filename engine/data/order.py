"""Order of the samples in an epoch, and the samples of a batch.

The order of an epoch is a keyed permutation, a function of (seed, epoch, position) that needs O(1)
memory and starts at once at any size: a balanced Feistel network over the next even power of two,
walked until it lands inside the range (Black & Rogaway 2002, "Ciphers with arbitrary finite
domains"). The orders of the epochs are concatenated; batch *t* is positions [tB, (t+1)B). No
``set_epoch`` is needed, nothing is padded, dropped or repeated, and the order is independent of the
number of ranks (contract C7, C8).

Positions are computed in blocks: a thousand at once take hardly longer than ten.

Not here: the split of a batch over ranks and micro-batches (``domain.training.plan``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]
"""Arithmetic on them wraps around at 2^64."""
_ROUNDS: Final = 6
"""Three rounds already look random to a test of pairs; six leave no visible structure at any size
tried."""
_BLOCK: Final = 1024
"""Positions worked out together."""


_ADDED, _FIRST_FACTOR, _SECOND_FACTOR = map(
    np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_FIRST_SHIFT, _SECOND_SHIFT, _LAST_SHIFT = map(np.uint64, (30, 27, 31))


def _mix(values: Words) -> Words:
    """SplitMix64's finalizer (Steele, Lea & Flood 2014).

    A 64-bit bijection in which every input bit moves every output bit.
    """
    mixed = values + _ADDED
    mixed ^= mixed >> _FIRST_SHIFT
    mixed *= _FIRST_FACTOR
    mixed ^= mixed >> _SECOND_SHIFT
    mixed *= _SECOND_FACTOR
    mixed ^= mixed >> _LAST_SHIFT
    return mixed


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
        half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
        self._half_bits, self._half_mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
        key = _mix(_mix(np.array([seed], np.uint64)) ^ np.uint64(epoch))
        self._keys = []
        for _ in range(_ROUNDS):
            key = _mix(key)
            self._keys.append(key)

    def samples(self, start: int, stop: int) -> list[int]:
        """The samples at positions [start, stop) of this epoch."""
        if not 0 <= start <= stop <= self.size:
            raise IndexError(
                f"positions {start} to {stop} are outside an epoch of {self.size} samples"
            )
        # The walk stays on the cycle of its position, which is inside the range, so it ends; the
        # network's domain is
        # less than four times the range, so it takes under four steps on average.
        values = self._encrypt(np.arange(start, stop, dtype=np.uint64))
        while (outside := values >= self.size).any():
            values[outside] = self._encrypt(values[outside])
        found: list[int] = values.tolist()
        return found

    def _encrypt(self, values: Words) -> Words:
        left, right = values >> self._half_bits, values & self._half_mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right ^ key) & self._half_mask)
        return (left << self._half_bits) | right


@lru_cache(maxsize=8)
def _block(size: int, seed: int, epoch: int, number: int) -> list[tuple[int, int]]:
    """One block of an epoch, as (epoch, sample) pairs."""
    start = number * _BLOCK
    return [
        (epoch, index)
        for index in EpochOrder(size, seed, epoch).samples(start, min(size, start + _BLOCK))
    ]


def samples(start: int, stop: int, *, size: int, seed: int) -> list[tuple[int, int]]:
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
    found: list[tuple[int, int]] = []
    while start < stop:
        epoch, position = divmod(start, size)
        number, offset = divmod(position, _BLOCK)
        part = _block(size, seed, epoch, number)[offset : offset + stop - start]
        found += part
        start += len(part)
    return found
