"""The state of a step is restored after any change in a pass, and is not touched otherwise."""

from __future__ import annotations

import contextlib
from collections import deque
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.engine.state.inventory import Inventory
from lockstep.engine.state.step import StepState
from lockstep.engine.task.interface import Task


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("added", torch.zeros(2))
        self.register_buffer("replaced", torch.tensor(0))
        self.register_buffer("repeated", torch.ones(1).expand(4))  # which cannot be written to
        self.inner = nn.BatchNorm1d(2)
        self.passes, self.seen = 0, deque([torch.zeros(2)], maxlen=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.added += 1
        self.passes += 1
        self.seen.append(x[0])
        self.replaced = self.replaced + 1
        normed: torch.Tensor = self.inner(x)
        return normed


def values(model: Model) -> dict[str, Any]:
    seen = [each.tolist() for each in model.seen]
    buffers = {name: buffer.flatten().tolist() for name, buffer in model.named_buffers()}
    return {**buffers, "passes": model.passes, "seen": seen}


@pytest.fixture
def model() -> Model:
    return Model()


@pytest.fixture
def buffers(model: Model) -> StepState:
    """Return the state of a step after a warm-up, which must restore the buffers."""
    before = values(model)
    kept = StepState(Inventory(model, Task()))
    with kept.warm_up():
        model(torch.randn(3, 2))
        assert values(model) != before
    assert values(model) == before
    return kept


@pytest.mark.parametrize("fails", [False, True])
def test_a_masked_pass_leaves_no_trace_even_if_it_fails(
    model: Model, buffers: StepState, fails: bool
) -> None:
    before = values(model)
    with contextlib.suppress(ZeroDivisionError), buffers.unchanged():
        model(torch.full((3, 2), torch.nan))
        assert values(model) != before
        if fails:
            raise ZeroDivisionError
    assert values(model) == before


@pytest.mark.parametrize("refused", [False, True, torch.tensor(0.0), torch.tensor(1.0)], ids=str)
def test_a_repeated_step_counts_once_and_a_refused_one_never(
    model: Model, buffers: StepState, refused: bool | torch.Tensor
) -> None:
    for number in (1, 2):
        for _ in range(3):
            buffers.begin(number)
            model(torch.randn(3, 2) if number == 1 else torch.full((3, 2), torch.nan))
        buffers.end(refused=refused if number == 2 else False)
    steps = 1 if refused else 2
    assert (model.added.tolist(), int(model.replaced)) == ([steps, steps], steps)
    # If only the device has the refusal of the step, numbers of the host stay.
    assert model.passes == (1 if refused is True else 2)
    assert int(model.inner.num_batches_tracked) == steps
    assert bool(model.inner.running_mean.isfinite().all()) == bool(refused)
