"""A parameter that a forward leaves out, injected."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import torch.distributed as dist

from engine.strategies.ddp import DDP
from tests.engine.toy import Net


@contextlib.contextmanager
def unused(parameter: str, *, rank: int | None, last: bool) -> Iterator[None]:
    """From the second step on, the model of ``rank`` (None: of all) leaves a parameter out in its last slot, or in others."""
    forward, calls = Net.forward, 0

    def partly(self: Net, x: Any) -> Any:
        nonlocal calls
        calls += 1
        hit = rank is None or rank == dist.get_rank()
        # Slots of step 0 come after two warm-up passes; with 12 samples on 2 ranks there are 3 per step.
        # What comes after the second step's is the look for the culprit, which meets the same slot again.
        in_last_slot = (calls - 3) % 3 == 2 or calls > 8
        if calls <= 5 or not hit or in_last_slot != last:
            return forward(self, x)
        owner, name = self.get_submodule(parameter.rpartition(".")[0]), parameter.rpartition(".")[2]
        kept = getattr(owner, name)
        with mock.patch.dict(owner._parameters, {name: kept.detach()}):
            return forward(self, x)

    with mock.patch.object(Net, "forward", partly):
        yield


@contextlib.contextmanager
def unchecked(parameter: str) -> Iterator[None]:
    """Believe that everything was reduced, as a plain loop over DDP does."""
    with unused(parameter, rank=None, last=True), mock.patch.object(DDP, "finish_reduction", return_value=True):
        yield
