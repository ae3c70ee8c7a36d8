"""View of a job's code on its ranks, as a job with one rank has it.

Not here: the ranks themselves (``engine.runtime.ranks``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch.distributed as dist

_SINGLE: Final = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}


@contextmanager
def as_single_rank() -> Iterator[None]:
    """Show no process group, and the environment of a single rank, to the task's code."""
    group, before = dist.GroupMember.WORLD, {name: os.environ.get(name) for name in _SINGLE}
    dist.GroupMember.WORLD = None
    os.environ.update(_SINGLE)
    try:
        yield
    finally:
        dist.GroupMember.WORLD = group
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value
