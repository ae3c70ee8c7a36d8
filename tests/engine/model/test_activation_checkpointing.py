"""Activation checkpointing: the same gradient under the same names, with less memory."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lockstep.engine.memory.measured import count_of
from lockstep.engine.model import activation_checkpointing
from lockstep.engine.model.activation_checkpointing import checkpoint_blocks
from lockstep.engine.runtime.errors import EngineError
from tests.engine import cases
from tests.engine.reference import batches_of, distance, reference
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

STEPS = 4


def spec(micro: int, **more: Any) -> dict[str, Any]:
    return {
        "batch": {"size": 12, "micro_size": micro},
        "optimizer": {"name": "sgd", "lr": 0.1},
        "clip_grad_norm": None,
        "steps": STEPS,
        "activation_checkpointing": True,
        **more,
    }


@pytest.mark.parametrize(("world_size", "micro"), [(1, 12), (1, 5), (2, 2), (3, 4)])
def test_the_gradient_equals_that_of_a_run_that_keeps_activations(
    pool: Pool, tmp_path: Path, world_size: int, micro: int
) -> None:
    toy = Toy(blocks=3, penalty=0.01)
    seen = pool.run(cases.train, toy, spec(micro), tmp_path, world_size=world_size)
    expected = reference(
        toy, spec(micro), batches_of([one.micro_batches for one in seen], [12] * STEPS, micro)
    )
    for one in seen:
        for found, wanted in zip(one.gradients, expected.gradients, strict=True):
            assert distance(found, wanted) <= 1e-12
        assert distance(one.weights, expected.weights) <= 1e-12


@pytest.mark.parametrize("drops", [{"dropout": 0.3}, {"own_dropout": 0.3}], ids=["torch", "engine"])
def test_dropout_has_the_same_masks_in_backward(
    pool: Pool, tmp_path: Path, drops: dict[str, float]
) -> None:
    toy = Toy(blocks=3, **drops)  # type: ignore[arg-type] # only the two rates are in it
    weights = {}
    for on in (True, False):
        options = spec(2, activation_checkpointing=on)
        weights[on] = pool.run(cases.train, toy, options, tmp_path / str(on), world_size=2)[
            0
        ].weights
    assert distance(weights[True], weights[False]) <= 1e-12


class Drops(nn.Module):
    """Block that draws random numbers inside the recomputed part."""

    def __init__(self, width: int, p: float):
        super().__init__()
        self.up, self.down, self.dropout = (
            nn.Linear(width, 4 * width),
            nn.Linear(4 * width, width),
            nn.Dropout(p),
        )

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        found: Tensor = x + scale * self.down(self.dropout(torch.tanh(self.up(x))))
        return found


class Net(nn.Module):
    def __init__(self, width: int = 8, blocks: int = 4, p: float = 0.0):
        super().__init__()
        self.start = nn.Linear(width, width)
        self.blocks = nn.ModuleList(Drops(width, p) for _ in range(blocks))

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        for block in self.blocks:
            x = block(x, scale=0.5)
        return x


def gradients(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    torch.manual_seed(3)
    model.zero_grad()
    model(x).square().sum().backward()
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def test_a_block_that_drops_inside_is_computed_again_with_the_same_mask() -> None:
    model = Net(p=0.4).double()
    x = torch.randn(5, 8, dtype=torch.float64)
    expected = gradients(model, x)
    checkpoint_blocks(model)
    assert distance(gradients(model, x), expected) <= 1e-12


def test_blocks_keep_their_names_types_and_copies() -> None:
    model = Net()
    before, kind = list(model.state_dict()), type(model.blocks[0])
    assert checkpoint_blocks(model) == ["blocks.0", "blocks.1", "blocks.2", "blocks.3"]
    assert list(model.state_dict()) == before
    assert isinstance(model.blocks[0], kind)
    assert type(model.blocks[0]) is type(model.blocks[1])
    again = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in again.blocks[0].parameters():
            parameter.zero_()
    x = torch.randn(2, 8)
    assert torch.equal(again.blocks[0](x), x)
    assert not torch.equal(model.blocks[0](x), x), "a copy has parameters of its own"


def peak_bytes(model: nn.Module, x: Tensor) -> int:
    """Return the peak of the CPU allocator during a forward and a backward, above the level
    before."""
    model(x).square().sum().backward()
    return count_of(lambda: model(x).square().sum().backward(), torch.device("cpu")).peak


def test_activations_take_less_memory() -> None:
    model = Net(width=64, blocks=8)
    x = torch.randn(256, 64)
    kept = peak_bytes(model, x)
    checkpoint_blocks(model)
    assert peak_bytes(model, x) < 0.5 * kept


def test_nested_sequences_are_entered_and_blocks_are_not() -> None:
    inner = nn.Sequential(Drops(4, 0.0), Drops(4, 0.0))
    assert checkpoint_blocks(
        nn.Sequential(nn.Linear(4, 4), nn.Sequential(inner, Drops(4, 0.0)))
    ) == [
        "1.0.0",
        "1.0.1",
        "1.1",
    ]
    plain = nn.Sequential(
        *(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3)), nn.Linear(4, 1)
    )
    assert checkpoint_blocks(plain) == ["0", "1", "2"]


def test_a_block_that_has_two_names_is_computed_again_once() -> None:
    block, other = Drops(8, 0.0), Drops(8, 0.0)
    model = nn.ModuleDict({"one": nn.ModuleList([block, other]), "two": nn.ModuleList([block])})
    checkpoint_blocks(model)
    calls = []
    block.up.register_forward_hook(lambda *_: calls.append(1))
    block(torch.randn(2, 8, requires_grad=True)).sum().backward()
    assert len(calls) == 2


def test_without_a_gradient_no_block_is_prepared_for_a_second_forward(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model, calls = Net(), []

    def counting(function: Any, *inputs: Any, **options: Any) -> Any:
        calls.append(function)
        return checkpoint(function, *inputs, **options)

    monkeypatch.setattr(activation_checkpointing, "checkpoint", counting)
    checkpoint_blocks(model)
    with torch.no_grad():
        model(torch.randn(2, 8))
    assert calls == []
    model(torch.randn(2, 8))
    assert len(calls) == len(model.blocks)


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)),
        nn.Sequential(Drops(4, 0.0)),
        nn.Linear(2, 2),
    ],
    ids=["layers", "one block", "one layer"],
)
def test_a_model_without_blocks_is_refused_with_advice(model: nn.Module) -> None:
    with pytest.raises(
        EngineError, match=rf"a {type(model).__name__}, has no blocks.*nn\.ModuleList"
    ) as caught:
        checkpoint_blocks(model)
    assert caught.value.reason == "bad_spec"
