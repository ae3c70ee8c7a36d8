"""``manual``: data parallelism by hand, as readable code.

It computes the same as torch's DDP, in the smallest correct form.

1. At the start every rank has the same model: the same parameters in the same order (compared),
   with the same values (rank 0 broadcasts its values, and each rank compares them with its own).
2. Each rank accumulates the gradients of all its micro-batches without communication.
3. After the last one the gradients of all ranks are summed and divided by the number of ranks, in
   one message per number format. Many small messages would each wait for the network
   (``engine.strategies.flat``).
4. Every rank makes the same optimizer step with the same gradient, so all models stay the same.

DDP sends a bucket of gradients while the backward still processes earlier layers. This strategy
sends nothing before the backward ends, so each step waits for all of its communication. In return,
a rank without a gradient for some parameter sends zeros for it, and a rank abandons a step by
sending zeros for all parameters.

Not here: the weighting that turns the sum into the gradient of the whole batch
(``engine.step.gradient``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.distributed as dist
from torch import nn

from lockstep.domain.spec import job
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.base import Forward, Strategy
from lockstep.engine.strategies.block_order import ModelUsage
from lockstep.engine.strategies.flat import FlatReduction
from lockstep.engine.task.interface import Batch


class Manual(Strategy):
    """Data parallelism with flat buffers that are summed after the last backward."""

    repeats: ClassVar[bool] = True

    def __init__(
        self,
        objective: Objective,
        ranks: Ranks,
        options: job.Strategy,
        usage: ModelUsage | None = None,
    ):
        super().__init__(objective, ranks, options, usage)
        self._reduction: FlatReduction | None = None
        if ranks.device_group is not None:
            require_same_parameters(self.model, ranks)
            self._reduction = FlatReduction(self._trained, ranks)

    def forward(
        self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool
    ) -> Forward:
        result: Forward = self.objective(batch, scales, penalize=penalize)
        return result

    def finish_reduction(self) -> bool:
        if self._reduction is None:
            return True
        if not self.tracks_usage and not all(self._have_gradients()):
            self._reduction.drain()
            return False
        self._reduction.reduce(self._used(), drop_unused=self.tracks_usage)
        return True

    def drain(self) -> None:
        if self._reduction is not None:
            self._reduction.drain()


def require_same_parameters(model: nn.Module, ranks: Ranks) -> None:
    """Raise unless all ranks have the same parameters in the same order, with the same values.

    All ranks must call this. DDP compares shapes only: it would average two parameters of one shape
    that are in another order, and it overwrites other values without an error.
    """
    mine = [
        f"{name} {tuple(parameter.shape)} {parameter.dtype}".replace("torch.", "")
        for name, parameter in model.named_parameters()
    ]
    first, *others = ranks.gather(mine)
    for rank, theirs in enumerate(others, start=1):
        _require_same(first, theirs, rank)
    differing = []
    for name, parameter in model.named_parameters():
        there = parameter.detach().clone()
        dist.broadcast(there, group=ranks.device_group, group_src=0)
        if not torch.equal(there, parameter.detach()):
            differing.append(name)
    found = {rank: names for rank, names in enumerate(ranks.gather(differing)) if names}
    if found:
        more = {
            rank: f" and {len(names) - 1} more" if len(names) > 1 else ""
            for rank, names in found.items()
        }
        where = "; ".join(f"rank {rank}: {names[0]}{more[rank]}" for rank, names in found.items())
        raise BadSpecError(
            f"the initial weights of the model differ from rank 0 ({where}): model() must build "
            "the same weights on every rank; draw from torch's default generator only, which has "
            "the same seed on every rank",
        )


def _require_same(first: list[str], theirs: list[str], rank: int) -> None:
    for place in range(max(len(first), len(theirs))):
        zero = first[place] if place < len(first) else "none"
        here = theirs[place] if place < len(theirs) else "none"
        if zero != here:
            raise BadSpecError(
                f"parameter {place} is {zero} on rank 0 and {here} on rank {rank}: model() must "
                f"build the same model on "
                "every rank, with its parameters in the same order",
            )
