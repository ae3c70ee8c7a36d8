"""Ranks that update on their own and average at intervals, and the contract items that they keep.

The reference trains one model per rank in one process, with torch's own optimizers, and averages
them as in the papers.
"""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.checkpoints import checkpoint
from tests.engine import cases, mutants
from tests.engine.cases import Seen
from tests.engine.reference import distance, objective
from tests.engine.shortage import shortage
from tests.engine.spool import events, records
from tests.engine.step.test_gradient import (
    OPTIMIZERS,
    check_gradients,
    check_weights,
    run,
    spec,
)
from tests.engine.toy import Toy, initial, item
from tests.harness.ranks import Pool

PLAIN = {"name": "sgd", "lr": 0.05}
DILOCO = {"name": "diloco", "outer_lr": 0.5, "outer_momentum": 0.8}
OUTER = {"name": "diloco", "outer_lr": 1.0, "outer_momentum": 0.0}
"""It equals the mean."""
both = pytest.mark.parametrize(
    "section", [{"name": "local_sgd"}, DILOCO], ids=["local_sgd", "diloco"]
)


def local(every: int, **more: Any) -> dict[str, Any]:
    return {"strategy": {"name": "local_sgd", "sync_every_steps": every, **more}}


@pytest.mark.contract(20)
@pytest.mark.parametrize(
    ("world_size", "size", "micro", "toy", "more"),
    [
        (2, 9, 2, Toy(), {}),
        (3, 11, 4, Toy(penalty=0.3), OUTER),
        (3, 7, 1, Toy(penalty=0.3), {}),
        (4, 4, 1, Toy(masked="odd"), OUTER),
        (2, 8, 4, Toy(weigh="samples"), {}),
    ],
    ids=["tokens", "penalty", "penalty-in-an-empty-micro-batch", "weightless", "samples"],
)
def test_averaging_after_every_step_equals_ddp_for_plain_sgd(
    pool: Pool,
    tmp_path: Path,
    world_size: int,
    size: int,
    micro: int,
    toy: Toy,
    more: dict[str, Any],
) -> None:
    options = spec(size, micro, steps=4, **local(1, **more)) | {
        "optimizer": PLAIN | {"weight_decay": 0.01}
    }
    seen, expected = run(pool, tmp_path, toy, options, world_size)
    check_weights(seen, expected, 1e-12)


@pytest.mark.contract(20)
def test_equally_weighted_ranks_fail_this_check(pool: Pool, tmp_path: Path) -> None:
    options = spec(9, 2, steps=3, **local(1)) | {"optimizer": PLAIN}
    seen, expected = run(pool, tmp_path, Toy(), options, 2, mutants.ranks_count_the_same)
    with pytest.raises(AssertionError):
        check_weights(seen, expected, 1e-5)


@pytest.mark.contract(20)
def test_with_adamw_the_difference_from_ddp_is_reported(pool: Pool, tmp_path: Path) -> None:
    options = spec(12, 3, steps=8, **local(1)) | {"optimizer": OPTIMIZERS["adamw"]}
    seen, expected = run(pool, tmp_path, Toy(), options, 2)
    assert distance(seen[0].weights, expected.weights) > 1e-3
    with pytest.raises(AssertionError):
        check_gradients(seen, expected, 1e-2)
    warnings = [event["message"] for event in events(tmp_path, "warning")]
    assert any("the gradient is not the whole batch's" in warning for warning in warnings)


@dataclass
class Replica:
    model: Any
    optimizer: torch.optim.Optimizer
    weight: float = 0.0


def tokens(toy: Toy, ids: list[int]) -> float:
    return float(sum(item(toy, index)[3].sum() for index in ids))


def shards_of(seen: list[Seen], size: int, micro: int) -> list[list[list[int]]]:
    """Return the items of each rank in each step, where every rank's shard fills its
    micro-batches."""
    per_step = math.ceil(size // len(seen) / micro)
    steps = len(seen[0].micro_batches) // per_step
    return [
        [
            [
                i
                for micro_batch in one.micro_batches[step * per_step : (step + 1) * per_step]
                for i in micro_batch
            ]
            for one in seen
        ]
        for step in range(steps)
    ]


def averaged(
    toy: Toy,
    steps: list[list[list[int]]],
    optimizer: Any,
    every: int,
    outer: dict[str, float] | None,
) -> dict[str, torch.Tensor]:
    """Return the final weights by the papers: local steps, then an average, which may be the
    gradient of an outer optimizer."""
    replicas = [
        Replica(model, optimizer(model.parameters())) for model in (initial(toy) for _ in steps[0])
    ]
    globals_ = [
        parameter.detach().clone().requires_grad_() for parameter in replicas[0].model.parameters()
    ]
    momentum = outer["outer_momentum"] if outer else 0.0
    outer_sgd = torch.optim.SGD(
        globals_, lr=outer["outer_lr"] if outer else 1.0, momentum=momentum, nesterov=momentum > 0
    )
    for step, shards in enumerate(steps):
        whole = sum(tokens(toy, ids) for ids in shards)
        for replica, ids in zip(replicas, shards, strict=True):
            loss = objective(toy, replica.model, ids)
            if loss is None:
                continue
            replica.optimizer.zero_grad()
            loss.backward()
            replica.optimizer.step()
            replica.weight += tokens(toy, ids) / whole
        if (step + 1) % every and step + 1 < len(steps):
            continue
        together = sum(replica.weight for replica in replicas)
        for index, value in enumerate(globals_):
            mean = sum(
                list(r.model.parameters())[index].detach() * (r.weight / together) for r in replicas
            )
            value.grad = value.detach() - mean
        outer_sgd.step()
        for replica in replicas:
            replica.weight = 0.0
            for parameter, value in zip(replica.model.parameters(), globals_, strict=True):
                parameter.data.copy_(value.detach())
    return {name: value.detach() for name, value in replicas[0].model.state_dict().items()}


@pytest.mark.contract(20)
@both
@pytest.mark.parametrize(("world_size", "every", "masked"), [(2, 3, "some"), (3, 100, "odd")])
def test_ranks_follow_the_algorithm_of_the_paper(
    pool: Pool, tmp_path: Path, section: dict[str, Any], world_size: int, every: int, masked: str
) -> None:
    toy = Toy(masked=masked)
    settings = {"name": "adamw", "lr": 1e-2, "weight_decay": 0.0, "betas": [0.9, 0.95]}
    options = spec(12, 2, steps=7, **local(every, **section)) | {"optimizer": settings}
    seen = pool.run(cases.train, toy, options, tmp_path, world_size=world_size)
    adamw = partial(torch.optim.AdamW, lr=1e-2, betas=(0.9, 0.95), weight_decay=0.0)
    outer = DILOCO if section is DILOCO else None
    expected = averaged(toy, shards_of(seen, 12, 2), adamw, every, outer)
    for one in seen:
        assert distance(one.weights, expected) <= 1e-12


@both
def test_ranks_are_bitwise_equal_at_the_end(
    pool: Pool, tmp_path: Path, section: dict[str, Any]
) -> None:
    options = spec(9, 2, steps=7, **local(3, **section)) | {"optimizer": OPTIMIZERS["adamw"]}
    seen = pool.run(cases.train, Toy(double=False), options, tmp_path, world_size=3)
    for one in seen[1:]:
        assert all(torch.equal(one.weights[name], value) for name, value in seen[0].weights.items())
    saved = checkpoint.load(tmp_path / "checkpoints/step-00000007")
    assert all(torch.equal(saved["model"][name], value) for name, value in seen[0].weights.items())


@pytest.mark.contract(5)
@both
def test_batches_without_weight_update_nothing(
    pool: Pool, tmp_path: Path, section: dict[str, Any]
) -> None:
    toy = Toy(masked="all")
    options = spec(4, 1, steps=5, **local(2, **section)) | {"optimizer": OPTIMIZERS["adamw"]}
    seen = pool.run(cases.train, toy, options, tmp_path, world_size=2)
    assert all(distance(one.weights, initial(toy).state_dict()) == 0 for one in seen)


@pytest.mark.contract(9)
def test_between_averages_only_control_and_norm_are_sent(pool: Pool, tmp_path: Path) -> None:
    counts = []
    for steps in (4, 12):
        options = spec(12, 2, steps=steps, **local(4))
        seen = pool.run(
            cases.train, Toy(), options, tmp_path / str(steps), None, True, world_size=2
        )
        counts.append(seen[0].collectives)
    # An average sends the parameters, and the weight on which each rank trained.
    assert counts[1]["gloo:all_reduce"] - counts[0]["gloo:all_reduce"] == 8 + 2 * 2
    assert counts[1]["control"] - counts[0]["control"] == 8
    assert {
        kind: count for kind, count in counts[1].items() if counts[0][kind] != count
    }.keys() == {"gloo:all_reduce", "control"}


@pytest.mark.contract(16)
def test_the_logged_norm_is_the_weighted_mean_square_over_ranks(pool: Pool, tmp_path: Path) -> None:
    toy = Toy()
    options = spec(12, 2, steps=6, **local(4)) | {"optimizer": PLAIN}
    seen = pool.run(cases.train, toy, options, tmp_path, world_size=3)
    for step, shards in enumerate(shards_of(seen, 12, 2)):
        weights = [tokens(toy, ids) for ids in shards]
        squares = [sum(float((g**2).sum()) for g in one.gradients[step].values()) for one in seen]
        wanted = math.sqrt(sum(w * s for w, s in zip(weights, squares, strict=True)) / sum(weights))
        assert records(tmp_path)[step + 1]["train/grad_norm"] == pytest.approx(wanted, rel=1e-12)


def test_clipping_uses_the_norm_of_each_rank(pool: Pool, tmp_path: Path) -> None:
    options = spec(12, 2, steps=6, **local(4)) | {"optimizer": PLAIN}
    free = pool.run(cases.train, Toy(), options | {"steps": 1}, tmp_path / "free", world_size=3)
    clipped = pool.run(
        cases.train, Toy(), options | {"clip_grad_norm": 0.7}, tmp_path / "clipped", world_size=3
    )
    for one, other in zip(free, clipped, strict=True):
        norm = math.sqrt(sum(float((g**2).sum()) for g in one.gradients[0].values()))
        limit = min(1.0, 0.7 / (norm + 1e-6))
        for name, gradient in one.gradients[0].items():
            torch.testing.assert_close(
                other.gradients[0][name], gradient * limit, rtol=1e-12, atol=0
            )


LONG: dict[str, Any] = {
    "batch": {"size": 14, "micro_size": 2},
    "optimizer": OPTIMIZERS["adamw"],
    "schedule": {"name": "cosine", "warmup_steps": 3, "min_lr": 1e-3},
    "clip_grad_norm": 0.5,
    "steps": 12,
}
OFTEN = {"checkpoint": {"every_steps": 4}, "eval": {"every_steps": 2}}
"""With an average every 3 steps, the checkpoints of steps 4 and 8 are between two of them."""
NOISY = Toy(items=33, double=False, noise=True, dropout=0.3)


@pytest.mark.contract(41)
@both
def test_the_interval_of_evaluations_and_saves_changes_no_weight(
    pool: Pool, tmp_path: Path, section: dict[str, Any]
) -> None:
    options = LONG | local(3, **section)
    rarely = pool.run(cases.train, NOISY, options, tmp_path / "rarely", world_size=2)
    often = pool.run(cases.train, NOISY, options | OFTEN, tmp_path / "often", world_size=2)
    for one, other in zip(rarely, often, strict=True):
        assert all(torch.equal(value, other.weights[name]) for name, value in one.weights.items())


@pytest.mark.contract(26)
@both
@pytest.mark.parametrize("mutant", [None, mutants.own_state_forgotten], ids=["", "forgetful"])
def test_a_run_resumes_bitwise_between_two_averages(
    pool: Pool, tmp_path: Path, section: dict[str, Any], mutant: Any
) -> None:
    options = LONG | OFTEN | local(3, **section)
    whole = pool.run(cases.train, NOISY, options, tmp_path / "whole", world_size=3)
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000008", tmp_path / "again/resume")
    again = pool.run(cases.train, NOISY, options, tmp_path / "again", mutant, world_size=3)
    equal = all(
        torch.equal(value, again[0].weights[name]) for name, value in whole[0].weights.items()
    )
    old, new = records(tmp_path / "whole"), records(tmp_path / "again")
    assert sorted(new) == [9, 10, 11, 12]
    logged = [
        values.get(name) == old[step].get(name)
        for step, values in new.items()
        for name in ("train/loss", "train/grad_norm", "train/lr", "eval/loss")
    ]
    assert (equal and all(logged)) is (mutant is None)


@pytest.mark.contract(27)
@both
def test_a_checkpoint_between_averages_holds_the_average(
    pool: Pool, tmp_path: Path, section: dict[str, Any]
) -> None:
    toy = Toy(items=33)
    # A run that ends there averages.
    options = LONG | {"steps": 8, "schedule": {"name": "constant"}}
    pool.run(
        cases.train, toy, options | OFTEN | local(3, **section), tmp_path / "constant", world_size=2
    )
    longer = options | {"steps": 12} | OFTEN | local(3, **section)
    pool.run(cases.train, toy, longer, tmp_path / "longer", world_size=2)
    ended, between = (
        checkpoint.load(tmp_path / name / "checkpoints/step-00000008")
        for name in ("constant", "longer")
    )
    assert distance(between["model"], ended["model"]) == 0
    assert (
        records(tmp_path / "constant")[8]["eval/loss"]
        == records(tmp_path / "longer")[8]["eval/loss"]
    )
    # Other numbers of ranks, and other strategies, resume from the average.
    for world_size, strategy in ((3, local(3, **section)), (2, {"strategy": {"name": "ddp"}})):
        folder = tmp_path / str(world_size)
        shutil.copytree(tmp_path / "longer/checkpoints/step-00000008", folder / "resume")
        pool.run(cases.train, toy, longer | {"steps": 8} | strategy, folder, world_size=world_size)
        onward = checkpoint.load(folder / "checkpoints/step-00000008")
        assert distance(onward["model"], between["model"]) == 0
        for index, values in between["optimizer"]["state"].items():
            assert distance(onward["optimizer"]["state"][index], values) <= 1e-12


@pytest.mark.contract(36)
@both
def test_a_step_that_does_not_fit_is_repeated_by_all_ranks(
    pool: Pool, tmp_path: Path, section: dict[str, Any]
) -> None:
    options = spec(24, 6, steps=4, **local(3, **section)) | {"optimizer": OPTIMIZERS["adamw"]}
    toy = Toy(items=60)
    short = partial(shortage, "mid_backward", rank=1, samples=3, after=2)
    disturbed = pool.run(cases.train, toy, options, tmp_path / "short", short, world_size=2)
    plain = pool.run(cases.train, toy, options, tmp_path / "plain", world_size=2)
    assert [plan["micro_batch_size"] for plan in events(tmp_path / "short", "plan")] == [6, 3]
    for one, other in zip(disturbed, plain, strict=True):
        assert distance(one.weights, other.weights) <= 1e-12
