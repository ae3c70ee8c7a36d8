"""``manual``: data parallelism by hand, to be read. What torch's DDP computes, in the fewest parts that are right.

1. At the start every rank has the same model: the same parameters in the same order (compared), with the same values
   (rank 0's are broadcast, and compared with the rank's own).
2. Each rank adds up the gradients of all its micro-batches, and tells nobody.
3. After the last one the gradients of all ranks are summed and divided by the number of ranks. One message per number
   format: many small ones would each wait for the network.
4. Every rank makes the same optimizer step with the same gradient, so all models stay the same.

What DDP does better: it sends a bucket of gradients while the backward still works on earlier layers. Here nothing is
sent before the backward is done, so all of the communication is waited for. What is simpler here: a parameter that some
micro-batch left out is sent as zeros, so no rank ever waits for a gradient that does not come; and a step is abandoned
by sending zeros for all of it, because nothing was sent yet.

Not here: the weighting that makes the sum the whole batch's gradient (``engine.step``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from domain import spec
from domain.outcomes import Reason
from engine.errors import EngineError
from engine.objective import Objective
from engine.ranks import Ranks
from engine.strategies.base import Forward, Strategy
from engine.task import Batch


class Manual(Strategy):
    """Flat buffers, summed over the ranks after the last backward."""

    repeats: ClassVar[bool] = True

    def __init__(self, objective: Objective, ranks: Ranks, options: spec.Strategy):
        super().__init__(objective, ranks, options)
        self._flats: list[_Flat] = []
        if ranks.device_group is not None:
            require_same_parameters(self.model, ranks)
            # Allocated now: a rank that runs out of memory in a step has them, and can send zeros.
            self._flats = _flats(list(self.model.parameters()))

    def forward(self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool) -> Forward:
        result: Forward = self.objective(batch, scales, penalize=penalize)
        return result

    def finish_reduction(self) -> bool:
        for flat in self._flats:
            flat.gather_gradients()
            dist.all_reduce(flat.buffer, op=dist.ReduceOp.SUM, group=self.ranks.device_group)
            flat.buffer.div_(self.ranks.world_size)
            flat.scatter_gradients()
        return True

    def drain(self) -> None:
        for flat in self._flats:
            flat.buffer.zero_()
            dist.all_reduce(flat.buffer, op=dist.ReduceOp.SUM, group=self.ranks.device_group)


class _Flat:
    """One message: room for the gradients of all parameters of one number format, one after the other."""

    def __init__(self, parameters: list[nn.Parameter]):
        first = parameters[0]
        self.buffer = torch.zeros(
            sum(parameter.numel() for parameter in parameters), dtype=first.dtype, device=first.device
        )
        places = torch.split(self.buffer, [parameter.numel() for parameter in parameters])
        self._places: list[tuple[nn.Parameter, Tensor]] = [
            (parameter, place.view(parameter.shape)) for parameter, place in zip(parameters, places, strict=True)
        ]

    def gather_gradients(self) -> None:
        for parameter, place in self._places:
            if parameter.grad is None:
                place.zero_()
            else:
                place.copy_(parameter.grad)

    def scatter_gradients(self) -> None:
        for parameter, place in self._places:
            if parameter.grad is None:
                parameter.grad = place.clone()
            else:
                parameter.grad.copy_(place)


def _flats(parameters: list[nn.Parameter]) -> list[_Flat]:
    by_format: dict[torch.dtype, list[nn.Parameter]] = {}
    for parameter in parameters:
        if parameter.requires_grad:
            by_format.setdefault(parameter.dtype, []).append(parameter)
    return [_Flat(group) for group in by_format.values()]


def require_same_parameters(model: nn.Module, ranks: Ranks) -> None:
    """Raise unless all ranks have the same parameters in the same order, with the same values. All ranks must call this.

    DDP compares shapes only: two parameters of one shape in another order would be averaged with each other, and other
    values are overwritten in silence.
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
        more = {rank: f" and {len(names) - 1} more" if len(names) > 1 else "" for rank, names in found.items()}
        where = "; ".join(f"rank {rank}: {names[0]}{more[rank]}" for rank, names in found.items())
        raise EngineError(
            Reason.BAD_SPEC,
            f"the model starts with other weights than on rank 0 ({where}): model() must build the same weights on every "
            "rank, so let it draw from torch's default generator only, which the engine seeds alike",
        )


def _require_same(first: list[str], theirs: list[str], rank: int) -> None:
    for place in range(max(len(first), len(theirs))):
        zero = first[place] if place < len(first) else "none"
        here = theirs[place] if place < len(theirs) else "none"
        if zero != here:
            raise EngineError(
                Reason.BAD_SPEC,
                f"parameter {place} is {zero} on rank 0 and {here} on rank {rank}: model() must build the same model on "
                "every rank, with its parameters in the same order",
            )
