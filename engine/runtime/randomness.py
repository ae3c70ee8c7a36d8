"""Seeds: every random draw is a function of its purpose, never of earlier draws.

The draws of an item, such as augmentation, come from the host's generators (``random``,
``numpy.random``, torch's default one), seeded from (seed, epoch, item). They depend neither on the
number of ranks nor on the worker. Before each micro-batch the engine seeds the device's generator
from (seed, step, rank, micro-batch). A checkpoint therefore holds no generator state: a resumed run
draws the same numbers because it is at the same step.

The host's generators have one owner at a time. A thread of the rank fetches items only as long as
neither these nor the model draw. Who draws first is found at the end of the step. From then on,
items are fetched inline, and the model gets the generators for each micro-batch; the step in which
the model first drew is repeated.

Not here: dropout that is independent of micro-batches (``engine.task.dropout``), which uses no
generator.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import numpy as np
import torch

from lockstep.engine.runtime.device import generator_of, is_accelerator

T = TypeVar("T")

MODEL: Final = 1
ITEM: Final = 2
EVAL_ITEM: Final = 3
MICRO_BATCH: Final = 4
EVAL_MICRO_BATCH: Final = 5
DROPOUT: Final = 6
DATASET: Final = 7
UPDATE: Final = 8
"""Purpose of a seed, its first part. No two purposes share a stream."""

Generators = tuple[bytes, object, bytes, tuple[object, ...]]


def seed_of(*parts: int) -> int:
    """A 63-bit seed out of whole numbers; any change of any part gives an unrelated one."""
    packed = struct.pack(f"<{len(parts)}q", *parts)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little") >> 1


def seed_host(seed: int) -> None:
    """Seed the three generators that host code draws from."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)  # The legacy generator, which many datasets use.
    # Not torch.manual_seed, which also visits every accelerator and costs a hundred times as much.
    torch.default_generator.manual_seed(seed)


def seed_device(seed: int, device: torch.device) -> None:
    """Seed the generator of an accelerator.

    On the CPU that is the host's, which is not touched here.
    """
    if is_accelerator(device):
        generator_of(device).manual_seed(seed)


def host_state() -> Generators:
    """Return the next draws of the host's generators, to detect draws in between."""
    state = np.random.get_state(legacy=False)
    generator = state.pop("state")
    return (
        _torch_state(),
        random.getstate(),
        generator["key"].tobytes(),
        (generator["pos"], *state.values()),
    )


class DrawDetector:
    """Detect draws from the generators of the host or the device inside a block.

    Parameters
    ----------
    device : torch.device
    """

    def __init__(self, device: torch.device):
        self._device = device
        self.drawn = False

    def __enter__(self) -> DrawDetector:
        self._before = self._state()
        return self

    def __exit__(self, *_: object) -> None:
        self.drawn = self._state() != self._before

    def _state(self) -> tuple[Generators, bytes]:
        on_device = (
            generator_of(self._device).get_state().numpy().tobytes()
            if is_accelerator(self._device)
            else b""
        )
        return host_state(), on_device


@contextmanager
def unchanged_generators(device: torch.device) -> Iterator[None]:
    """Put the host's generators, and the device's, back at the end."""
    kept, numpy_kept, torch_kept = (
        random.getstate(),
        np.random.get_state(),
        torch.default_generator.get_state(),
    )
    device_kept = generator_of(device).get_state() if is_accelerator(device) else None
    try:
        yield
    finally:
        random.setstate(kept)
        np.random.set_state(numpy_kept)
        torch.default_generator.set_state(torch_kept)
        if device_kept is not None:
            generator_of(device).set_state(device_kept)


class ItemSeeds:
    """Seeding of the generators for each item, skipped while no item draws.

    Seeding three generators takes longer than fetching many an item. Items are therefore fetched
    unseeded at first, followed by a check for draws. After a draw, the fetched items are discarded
    and fetched again with a seed for each item, and every later item is seeded. Item i is a
    function of (i, epoch) and of its draws, and the draws of a seeded item are a function of its
    seed. The result is the same as if every item had been seeded, in whichever micro-batch, rank or
    worker process the first draw happens.

    A draw is detected with a private copy of each generator: both must draw the same number next
    (they agree by chance once in 2**52 draws). Only an item that draws *unseeded* and restores the
    generator's state is not detected.

    Measured on one core: 5 µs to check, once per fetch, against 9 µs to seed, once per item.

    Parameters
    ----------
    seed : int
        The job's seed.
    purpose : int
        ``ITEM`` or ``EVAL_ITEM``.
    """

    def __init__(self, seed: int, purpose: int = ITEM):
        self._seed, self._purpose = seed, purpose
        self.draws = False
        """True once an item has drawn."""
        self._settled = False
        self._python = random.Random()  # noqa: S311 - no secret: it must repeat the draws of the watched generator
        self._numpy = np.random.RandomState()
        self._torch = _torch_state()

    def fetch(self, fetch: Callable[[bool], T]) -> T:
        """Return ``fetch(seeded)``, which calls ``seed`` before each item if ``seeded`` is true.

        Everything that may draw belongs into it: the items, their collation and their weights.
        """
        if not self.draws:
            self.disturbed()
            try:
                result = fetch(False)
            except Exception:
                if not self._drawn():
                    raise  # Otherwise an unseeded draw may have been the cause.
            else:
                if not self._drawn():
                    return result
            self.draws = True
        try:
            return fetch(True)
        finally:
            self._settle()

    def disturbed(self) -> bool:
        """Return whether other code has drawn since the last fetch, and start to watch again."""
        if not self._settled:
            self._settle()
            return False
        drawn = self._drawn()
        if drawn:
            self._settle()
        return drawn

    def seed(self, epoch: int, item: int) -> None:
        """Seed the generators for one item."""
        seed_host(seed_of(self._purpose, self._seed, epoch, item))

    def _drawn(self) -> bool:
        """Return whether the host's generators were used since the last call or ``_settle``."""
        drawn = random.getrandbits(64) != self._python.getrandbits(64)
        drawn |= (
            np.random.random_sample() != self._numpy.random_sample()
        )  # Both return the same 53 bits.
        # torch's state can be compared without drawing.
        return drawn or _torch_state() != self._torch

    def _settle(self) -> None:
        """Copy the states of the watched generators."""
        seed = seed_of(self._purpose, self._seed)
        seed_host(seed)
        self._python.seed(seed)
        self._numpy.seed(seed & 0xFFFF_FFFF)
        self._torch = _torch_state()
        self._settled = True


def _torch_state() -> bytes:
    state: bytes = torch.default_generator.get_state().numpy().tobytes()
    return state
