"""The engine's dropout drops the same activations in every division of a batch, after a resume, and
in a recomputation."""

from __future__ import annotations

import copy
import itertools
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.task.causal_lm import GPT
from lockstep.engine.task.dropout import COLUMN, ROW, Dropout, Masks, name_layers
from tests.engine import cases, mutants
from tests.engine.reference import distance
from tests.engine.shortage import shortage
from tests.engine.spool import events
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

pytestmark = pytest.mark.contract(25)

CPU = torch.device("cpu")
TOY = Toy(items=33, own_dropout=0.1)
OPTIONS: dict[str, Any] = {
    "batch": {"size": 14, "micro_size": 14},
    "optimizer": {"name": "adamw", "lr": 1e-2, "weight_decay": 0.1},
    "clip_grad_norm": 0.5,
    "steps": 4,
    "checkpoint": {"every_steps": 2},
}


def train(
    pool: Pool, folder: Path, world_size: int, micro: int, toy: Toy = TOY, **more: Any
) -> dict[str, Tensor]:
    options = OPTIONS | {"batch": {"size": 14, "micro_size": micro}}
    return pool.run(cases.train, toy, options, folder, more.get("mutate"), world_size=world_size)[
        0
    ].weights


@pytest.mark.parametrize(
    ("weigh", "layouts"), [("tokens", [(1, 5), (2, 7), (4, 1)]), ("terms", [(2, 2), (3, 4)])]
)
def test_weights_are_the_same_in_every_layout(
    pool: Pool, tmp_path: Path, weigh: str, layouts: list[tuple[int, int]]
) -> None:
    # A loss of two terms runs the model twice per micro-batch.
    toy = Toy(items=33, own_dropout=0.1, weigh=weigh)
    expected = train(pool, tmp_path / "whole", 1, 14, toy)
    for world_size, micro in layouts:
        found = train(pool, tmp_path / f"{world_size}-{micro}", world_size, micro, toy)
        assert distance(found, expected) <= 1e-12
    assert (
        distance(train(pool, tmp_path / "without", 1, 14, Toy(items=33, weigh=weigh)), expected)
        > 1e-3
    )


def test_masks_by_micro_batch_fail_this_check(pool: Pool, tmp_path: Path) -> None:
    mutate = mutants.masks_by_micro_batch
    expected = train(pool, tmp_path / "whole", 1, 14, mutate=mutate)
    assert distance(train(pool, tmp_path / "split", 2, 2, mutate=mutate), expected) > 1e-4


@pytest.mark.parametrize(("world_size", "micro"), [(2, 2), (3, 4)])
def test_a_resumed_run_drops_the_same(
    pool: Pool, tmp_path: Path, world_size: int, micro: int
) -> None:
    whole = train(pool, tmp_path / "whole", 2, 2)
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000002", tmp_path / "again/resume")
    again = train(pool, tmp_path / "again", world_size, micro)
    assert distance(again, whole) <= (0.0 if (world_size, micro) == (2, 2) else 1e-12)


def test_a_step_that_is_repeated_in_smaller_micro_batches_drops_the_same(
    pool: Pool, tmp_path: Path
) -> None:
    expected = train(pool, tmp_path / "whole", 1, 14)
    short = partial(shortage, "mid_backward", rank=1, samples=3, after=2)
    assert distance(train(pool, tmp_path / "short", 2, 7, mutate=short), expected) <= 1e-12
    assert "ran out of memory" in events(tmp_path / "short", "warning")[0]["message"]


@pytest.mark.parametrize("strategy", ["manual", "zero1", "fsdp"])
def test_every_strategy_drops_the_same(pool: Pool, tmp_path: Path, strategy: str) -> None:
    expected = train(pool, tmp_path / "whole", 1, 14)
    options = OPTIONS | {"batch": {"size": 14, "micro_size": 3}, "strategy": {"name": strategy}}
    found = pool.run(cases.train, TOY, options, tmp_path / strategy, world_size=2)[0].weights
    assert distance(found, expected) <= 1e-12


def test_a_model_with_the_dropout_of_the_engine_draws_nothing(pool: Pool, tmp_path: Path) -> None:
    train(pool, tmp_path / "own", 1, 4)
    train(pool, tmp_path / "torchs", 1, 4, Toy(items=33, dropout=0.1))
    assert events(tmp_path / "own", "warning") == []
    assert "draws random numbers" in events(tmp_path / "torchs", "warning")[0]["message"]


class Two(nn.Module):
    """Two dropouts in a row, whose masks are visible in the output."""

    def __init__(self, p: float = 0.25):
        super().__init__()
        self.first, self.second = Dropout(p), Dropout(p)
        name_layers(self)

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([self.first(x), self.second(x)], 1)


def masks_of(model: nn.Module, seed: int = 3) -> Masks:
    return Masks(model, seed=seed, device=CPU)


def dropped(
    samples: int, features: int, *, step: int = 0, position: int = 0, p: float = 0.25, seed: int = 3
) -> Tensor:
    """Return the mask of a model of two layers: (samples, layers, features), true where an
    activation was dropped."""
    model = Two(p)
    masks_of(model, seed).begin_micro_batch(step, position, samples)
    found: Tensor = model(torch.ones(samples, features)) == 0
    return found


def test_a_mask_depends_on_the_position_instead_of_the_micro_batch() -> None:
    whole = dropped(16, 37, step=5)
    for first, samples in ((0, 1), (3, 5), (8, 8), (15, 1)):
        assert torch.equal(
            dropped(samples, 37, step=5, position=first), whole[first : first + samples]
        )


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_activations_are_dropped_at_the_rate_and_the_rest_is_scaled(p: float) -> None:
    off = dropped(512, 1026, p=p).double()
    assert abs(off.mean() - p) < 5 * (p * (1 - p) / off.numel()) ** 0.5 + 1 / 65536
    model = Two(p)
    masks_of(model).begin_micro_batch(0, 0, 512)
    kept = model(torch.ones(512, 1026))
    assert abs(kept.double().mean() - 1) < 5 * (p / (1 - p) / kept.numel()) ** 0.5
    assert kept[kept != 0].unique().item() == pytest.approx(1 / (1 - p), rel=1e-4)


def shifted() -> dict[str, tuple[Tensor, Tensor]]:
    """Return pairs of masks that must be independent."""
    here = dropped(512, 1024)
    pairs = {f"elements {d} apart": (here[..., d:], here[..., :-d]) for d in (1, 2, 3, 4, 5, 8, 64)}
    pairs |= {f"positions {d} apart": (here[d:], here[:-d]) for d in (1, 2, 4, 64)}
    pairs |= {f"steps 0 and {step}": (here, dropped(512, 1024, step=step)) for step in (1, 2, 1024)}
    pairs |= {f"seeds 3 and {seed}": (here, dropped(512, 1024, seed=seed)) for seed in (2, 4)}
    pairs["layers"] = (here[:, :1], here[:, 1:])
    pairs["layers, an element apart"] = (here[:, :1, 1:], here[:, 1:, :-1])
    pairs["layers, a position apart"] = (here[1:, :1], here[:-1, 1:])
    return pairs


@pytest.mark.parametrize(("name", "pair"), shifted().items(), ids=shifted().keys())
def test_masks_of_different_places_are_independent(name: str, pair: tuple[Tensor, Tensor]) -> None:
    one, other = (mask.double() - 0.25 for mask in pair)
    correlation = float((one * other).mean()) / (0.25 * 0.75)
    assert abs(correlation) < 5 / one.numel() ** 0.5


def test_rates_over_positions_and_elements_vary_as_expected() -> None:
    # Too much, and some positions are dropped more often than others; too little, and masks are not
    # random.
    off = dropped(1024, 1024).double()[:, 0]
    for rates, trials in ((off.mean(1), 1024), (off.mean(0), 1024)):
        spread = float(rates.var()) / (0.25 * 0.75 / trials)
        assert abs(spread - 1) < 5 * (2 / len(rates)) ** 0.5


def test_no_two_activations_of_a_layer_share_a_word() -> None:
    # Gauss's reduction finds the shortest a, b with a * ROW + b * COLUMN = 0 mod 2**64.
    modulus = 1 << 64
    one, two = (1, -ROW * pow(COLUMN, -1, modulus) % modulus), (0, modulus)
    while True:
        one, two = sorted((one, two), key=lambda v: v[0] ** 2 + v[1] ** 2)
        length = one[0] ** 2 + one[1] ** 2
        times = (2 * (one[0] * two[0] + one[1] * two[1]) + length) // (2 * length)
        if times == 0:
            break
        two = (two[0] - times * one[0], two[1] - times * one[1])
    assert max(map(abs, one)) > 950_000_000
    assert min(map(abs, one)) > 950_000_000


def test_a_layer_used_twice_drops_differently_and_each_use_is_repeatable() -> None:
    model = Dropout(0.5)
    masks = masks_of(model)
    found = []
    for _ in range(2):
        masks.begin_micro_batch(4, 2, 8)
        found.append([model(torch.ones(8, 100)) for _ in range(3)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    for one, other in itertools.combinations(found[0], 2):
        assert not torch.equal(one, other)


class Recomputed(nn.Module):
    def __init__(self, *, uses: int, recompute: bool, reentrant: bool = False):
        super().__init__()
        self.linear, self.dropout, self.uses = nn.Linear(6, 6), Dropout(0.5), uses
        self.recompute, self.reentrant = recompute, reentrant
        name_layers(self)

    def block(self, x: Tensor) -> Tensor:
        return self.dropout(torch.tanh(self.linear(x)))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.uses):
            x = (
                checkpoint(self.block, x, use_reentrant=self.reentrant)
                if self.recompute
                else self.block(x)
            )
        return x


def gradient_of(model: nn.Module) -> Tensor:
    masks = masks_of(model)
    masks.begin_micro_batch(0, 0, 5)
    total = model(torch.linspace(-1, 1, 30).view(5, 6).requires_grad_()).sum()
    masks.begin_backward()
    total.backward()
    return next(parameter.grad for parameter in model.parameters() if parameter.grad is not None)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_layer_computed_again_in_backward_drops_the_same(reentrant: bool) -> None:
    plain = Recomputed(uses=1, recompute=False)
    again = Recomputed(uses=1, recompute=True, reentrant=reentrant)
    again.load_state_dict(plain.state_dict())
    assert torch.equal(gradient_of(again), gradient_of(plain))


def test_a_layer_used_twice_and_computed_again_is_refused() -> None:
    with pytest.raises(
        EngineError, match="used 2 times in one micro-batch and recomputed in backward"
    ):
        gradient_of(Recomputed(uses=2, recompute=True))


def test_compiling_changes_no_mask_and_happens_once() -> None:
    eager = Recomputed(uses=2, recompute=False)
    compiled = copy.deepcopy(eager)
    compiled.compile(backend="aot_eager")
    torch._dynamo.reset()
    both = [masks_of(eager), masks_of(compiled)]
    graphs = [torch._dynamo.utils.counters["stats"]["unique_graphs"]]
    for step in range(4):
        for position, samples in ((0, 4), (4, 4), (8, 3)):
            for masks in both:
                masks.begin_micro_batch(step, position, samples)
            x = torch.linspace(-1, 1, 6 * samples).view(samples, 6)
            assert torch.equal(compiled(x), eager(x))
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[0] < graphs[1] == graphs[-1], graphs
    torch._dynamo.reset()


def test_the_number_format_of_autocast_is_kept() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Dropout(0.5))
    masks_of(model).begin_micro_batch(0, 0, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.ones(2, 4)).dtype == torch.bfloat16


@pytest.mark.parametrize("shape", [(9, 8, 4), (32, 4), (4, 8), ()])
def test_activations_whose_first_dimension_is_not_the_batch_are_refused(
    shape: tuple[int, ...],
) -> None:
    model = Dropout(0.1)
    masks_of(model).begin_micro_batch(0, 0, 8)
    with pytest.raises(
        EngineError, match="must be the 8 samples of the micro-batch, but the input has the shape"
    ):
        model(torch.ones(shape))


def test_nothing_is_dropped_in_evaluation_or_at_rate_zero() -> None:
    x = torch.ones(8, 5)
    for model in (Dropout(0.5).eval(), Dropout(0.0)):
        masks_of(model).begin_micro_batch(0, 0, 8)
        assert model(x) is x


def test_outside_of_a_micro_batch_it_equals_the_dropout_of_torch() -> None:
    model = Dropout(0.5)
    masks = masks_of(model)
    masks.begin_micro_batch(0, 0, 8)
    twin = copy.deepcopy(model)
    masks.end()
    for one in (model, twin, Dropout(0.5)):
        torch.manual_seed(0)
        expected = nn.functional.dropout(torch.ones(3, 7), 0.5)
        torch.manual_seed(0)
        assert torch.equal(one(torch.ones(3, 7)), expected)


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, 0.999999])
def test_an_impossible_rate_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match="at least 0 and below 1"):
        Dropout(p)


def test_the_built_in_gpt_drops_by_sample() -> None:
    model = GPT(context=8, layers=2, heads=2, width=16, dropout=0.2)
    name_layers(model)
    masks, tokens = masks_of(model), torch.arange(32).view(4, 8)
    masks.begin_micro_batch(1, 0, 4)
    whole = model(tokens)
    for first in (0, 2):
        masks.begin_micro_batch(1, first, 2)
        assert torch.allclose(model(tokens[first : first + 2]), whole[first : first + 2], atol=1e-6)
    masks.begin_micro_batch(2, 0, 4)
    assert not torch.allclose(model(tokens), whole, atol=1e-2)
