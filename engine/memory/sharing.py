"""Memory that sharing a model between ranks adds to one of them, or removes, for forecasts.

Not here: the forecast (``engine.memory.forecast``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch.distributed as dist
from torch.utils._python_dispatch import _disable_current_modes

from lockstep.domain.spec import strategy
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.base import Strategy
from lockstep.engine.strategies.ddp import DDP


class NoForecastError(Exception):
    """The memory of a task cannot be predicted. The message completes "no forecast:"."""


class Sharing(NamedTuple):
    """Memory of one rank that sharing a model between ranks adds or removes."""

    copies: int
    """Of the gradient, on their way between ranks."""
    in_place: bool
    """True if gradients are views of the communication buffers; they then exist from the first
    micro-batch on."""
    owners: int
    """Ranks among which the optimizer's state is shared out."""
    sharded: int = 1
    """Ranks over which the model itself is spread, in a group that sends nothing; 1 where each has
    all of it."""

    @classmethod
    def of(cls, options: strategy.Strategy, world_size: int) -> Sharing:
        kind = options.kind
        if kind.gradient_copies is None:
            raise NoForecastError(
                f"strategy {options.name} distributes memory over the ranks in another way"
            )
        if kind.shards_model:
            shard = min(options.shard or world_size, world_size)
            return cls(copies=0, in_place=False, owners=1, sharded=shard)
        if options.compression != "none":
            raise NoForecastError(f"compression {options.compression} keeps additional copies")
        if world_size == 1:
            return cls(copies=0, in_place=False, owners=1)
        in_place = options.buckets_hold_gradients
        return cls(
            copies=kind.gradient_copies - in_place,
            in_place=in_place,
            owners=world_size if kind.shards_optimizer else 1,
        )

    @contextmanager
    def group(self) -> Iterator[tuple[type[Strategy], Ranks]]:
        """The strategy to run, and the ranks that it sees."""
        if self.sharded == 1:
            yield DDP, Ranks()
            return
        # Imported late: FSDP takes a second to import.
        from torch.distributed.device_mesh import DeviceMesh
        from torch.testing._internal.distributed.fake_pg import FakeStore

        from lockstep.engine.strategies.fsdp import FSDP

        class Alone(FSDP):
            """FSDP as one of several ranks, of which the others do not exist."""

            def _mesh(self) -> tuple[DeviceMesh, None]:
                assert dist.group.WORLD is not None, "begun below"
                with _disable_current_modes():  # It reads the numbers of its ranks.
                    return DeviceMesh.from_group(dist.group.WORLD, "cpu"), None

        if dist.is_initialized():
            raise NoForecastError(
                "this process belongs to a run, and its process group must not be replaced"
            )
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=self.sharded)
        try:
            # No group: nothing but FSDP's own collectives needs the others.
            yield Alone, Ranks(world_size=self.sharded)
        finally:
            dist.destroy_process_group()


def largest_part(sizes: list[int], owners: int) -> float:
    """Return the largest fraction of ``sizes`` that one rank owns.

    Assigns the largest first, each to the rank with the least.
    """
    owned = [0] * owners
    for size in sorted(sizes, reverse=True):
        owned[owned.index(min(owned))] += size
    return max(owned) / sum(owned)
