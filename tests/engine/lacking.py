"""Injection of a micro-batch that leaves out a parameter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch.distributed as dist

from lockstep.engine.model.objective import Objective
from lockstep.engine.strategies.ddp import DDP


@contextlib.contextmanager
def unused(parameter: str, *, rank: int | None, last: bool) -> Iterator[None]:
    """From the second step on, leave out a parameter on ``rank`` (None: all), in its last
    micro-batch or in the others."""
    forward, steps = Objective.forward, 0

    def partly(self: Objective, batch: Any, scales: Any, *, penalize: bool) -> Any:
        nonlocal steps
        lacks = steps >= 1 and penalize == last and (rank is None or rank == dist.get_rank())
        steps += penalize and scales is not None
        if not lacks:
            return forward(self, batch, scales, penalize=penalize)
        module, _, name = parameter.rpartition(".")
        owner = self.model.get_submodule(module)
        with mock.patch.dict(owner._parameters, {name: getattr(owner, name).detach()}):
            return forward(self, batch, scales, penalize=penalize)

    with mock.patch.object(Objective, "forward", partly):
        yield


@contextlib.contextmanager
def unchecked(parameter: str) -> Iterator[None]:
    """Skip the check that everything was reduced, as a plain loop over DDP does."""
    with (
        unused(parameter, rank=None, last=True),
        mock.patch.object(DDP, "finish_reduction", return_value=True),
    ):
        yield
