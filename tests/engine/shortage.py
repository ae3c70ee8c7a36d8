"""Injected shortage of memory: a micro-batch of more than a number of samples does not fit on one
rank.

It needs no device. The error is that of torch's allocator, and it is raised where memory really
ends: in forward, at the start of backward, or in its middle, when some gradients are on their way
to the other ranks already.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from lockstep.engine.model.objective import Objective

PLACES = ("forward", "backward", "mid_backward")


class Fails(torch.autograd.Function):
    """Identity whose backward does not fit."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory (injected)")


@contextlib.contextmanager
def shortage(
    place: str, *, rank: int | None, samples: int, after: int = 0, only_last: bool = False
) -> Iterator[None]:
    """From its forward number ``after`` on, let no micro-batch of more than ``samples`` fit on
    ``rank`` (None: on any).

    With ``only_last``, only the micro-batch that synchronises does not fit.
    """
    forward, calls = Objective.forward, 0

    def short(self: Objective, batch: Any, scales: Any, *, penalize: bool) -> Any:
        nonlocal calls
        calls += scales is not None
        mine = rank is None or rank == (dist.get_rank() if dist.is_initialized() else 0)
        fits = scales is None or calls <= after or len(batch[0]) <= samples
        if not mine or fits or (only_last and not penalize):
            return forward(self, batch, scales, penalize=penalize)
        if place == "forward":
            forward(self, batch, scales, penalize=penalize)
            raise torch.OutOfMemoryError("out of memory (injected)")
        if place == "mid_backward":
            # The gradients of the last layer exist, and their buckets are launched, when those of
            # the first do not fit.
            handle = self.model.hidden.register_forward_hook(
                lambda _module, _input, output: Fails.apply(output)
            )
            try:
                return forward(self, batch, scales, penalize=penalize)
            finally:
                handle.remove()
        objective, sums = forward(self, batch, scales, penalize=penalize)
        return Fails.apply(objective), sums

    with mock.patch.object(Objective, "forward", short):
        yield
