"""Seeds: every random draw is a function of what it is for, never of what was drawn before.

Before each item the loader seeds the host's generators (``random``, ``numpy.random``, torch's default one) from
(seed, epoch, item), so augmentation depends neither on the number of ranks nor on the worker. Before each slot the
engine seeds the device's generator from (seed, step, rank, slot). So there is no generator state to save in a
checkpoint: a resumed run draws the same because it is at the same step.

The host's generators have one owner at a time. Where items are fetched in a thread of the rank, they belong to the
loader; where the model draws from them too (dropout on the CPU), items are fetched in line and the model gets them
for each slot.

Not here: dropout that does not depend on the slots (a later version).
"""

from __future__ import annotations

import hashlib
import random
import struct
from typing import Final

import numpy as np
import torch

MODEL: Final = 1
ITEM: Final = 2
EVAL_ITEM: Final = 3
SLOT: Final = 4
EVAL_SLOT: Final = 5
"""What a seed is for, its first part, so that no two uses share a stream."""

Generators = tuple[bytes, object, object]


def seed_of(*parts: int) -> int:
    """A 63-bit seed out of whole numbers; any change of any part gives an unrelated one."""
    packed = struct.pack(f"<{len(parts)}q", *parts)
    return int.from_bytes(hashlib.blake2b(packed, digest_size=8).digest(), "little") >> 1


def seed_host(seed: int) -> None:
    """Seed the three generators that host code draws from."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)  # The legacy generator, which people's datasets draw from.
    # Not torch.manual_seed, which also visits every accelerator and costs a hundred times as much.
    torch.default_generator.manual_seed(seed)


def seed_device(seed: int, device: torch.device) -> None:
    """Seed the generator of a CUDA device; on the CPU that is the host's, which is not touched here."""
    if device.type == "cuda":
        index = device.index if device.index is not None else torch.cuda.current_device()
        torch.cuda.default_generators[index].manual_seed(seed)


def host_state() -> Generators:
    """What the host's generators would draw next, to find out whether something draws from them."""
    numpy_state = np.random.get_state(legacy=True)
    return torch.default_generator.get_state().numpy().tobytes(), random.getstate(), repr(numpy_state)
