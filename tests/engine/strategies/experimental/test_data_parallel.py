"""One process that drives several GPUs has the same gradient, and is refused without GPUs.

Copies of the model are simulated on the CPU: the division of a micro-batch and the sum of the
copies' terms are the engine's code, and the same on devices. Torch's own copying is not run here;
the last test needs a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.domain.spec.job import Strategy
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies import STRATEGIES
from lockstep.engine.strategies.experimental.data_parallel import (
    _require_no_sample_dropout,
    require_samples_first,
)
from lockstep.engine.task.dropout import Dropout
from tests.engine import cases
from tests.engine.cases import Seen
from tests.engine.reference import Expected, distance, reference
from tests.engine.shortage import shortage
from tests.engine.step.test_gradient import (
    LONG,
    OPTIMIZERS,
    check_gradients,
    check_weights,
    spec,
)
from tests.engine.strategies import strategy_cases
from tests.engine.strategies.strategy_cases import (
    averaged_copies,
    penalty_in_every_copy,
    pretended_gpus,
)
from tests.engine.toy import Toy, initial, toy_task
from tests.harness.ranks import Pool

SECTION = {"strategy": {"name": "data_parallel"}}
PENALIZED = Toy(penalty=0.3, weigh="terms")


def pretended(
    pool: Pool, folder: Path, toy: Toy, options: dict[str, Any], condition: Callable[[], Any]
) -> tuple[list[Seen], Expected]:
    """Run with copies, which each get a part of the micro-batch, and the reference on the same
    batches."""
    seen = pool.run(cases.train, toy, options, folder, condition, world_size=1)
    ids = [index for micro_batch in seen[0].micro_batches for index in micro_batch]
    size = options["batch"]["size"]
    return seen, reference(toy, options, [ids[at : at + size] for at in range(0, len(ids), size)])


@pytest.mark.contract(14)
@pytest.mark.parametrize(
    ("gpus", "size", "micro"),
    [(1, 9, 4), (2, 8, 8), (2, 7, 2), (2, 3, 1), (3, 8, 8), (3, 9, 4), (3, 7, 2)],
)
def test_the_gradient_equals_that_of_the_whole_batch(
    pool: Pool, tmp_path: Path, gpus: int, size: int, micro: int
) -> None:
    # With micro-batches of one sample, some GPUs have none.
    options = spec(size, micro, steps=2, **SECTION)
    seen, expected = pretended(pool, tmp_path, PENALIZED, options, partial(pretended_gpus, gpus))
    assert {len(micro_batch) for micro_batch in seen[0].micro_batches} <= {
        -(-micro // gpus),
        *range(1, -(-micro // gpus)),
    }
    check_gradients(seen, expected, 1e-12)


@pytest.mark.contract(14)
def test_twenty_steps_end_at_the_weights_of_the_reference(pool: Pool, tmp_path: Path) -> None:
    options = spec(12, 5, **LONG) | {"optimizer": OPTIMIZERS["adamw"], "steps": 20} | SECTION
    toy = Toy(masked="odd")
    seen, expected = pretended(pool, tmp_path, toy, options, partial(pretended_gpus, 2))
    check_weights(seen, expected, 1e-12)


@pytest.mark.contract(14)
@pytest.mark.parametrize("mutant", [averaged_copies, penalty_in_every_copy])
def test_a_mean_over_copies_or_a_repeated_penalty_fails_this_check(
    pool: Pool, tmp_path: Path, mutant: Any
) -> None:
    seen, expected = pretended(pool, tmp_path, PENALIZED, spec(8, 4, steps=1, **SECTION), mutant)
    with pytest.raises(AssertionError):
        check_gradients(seen, expected, 1e-5)


@pytest.mark.contract(14)
def test_a_step_that_ran_out_of_memory_is_repeated(pool: Pool, tmp_path: Path) -> None:
    options = spec(8, 8, steps=2, **SECTION)

    plain = pool.run(
        cases.train, Toy(), options, tmp_path / "plain", partial(pretended_gpus, 2), world_size=1
    )
    short = partial(
        strategy_cases.both,
        partial(pretended_gpus, 2),
        partial(shortage, "backward", rank=0, samples=2),
    )
    disturbed = pool.run(cases.train, Toy(), options, tmp_path / "short", short, world_size=1)
    for found, wanted in zip(disturbed[0].gradients, plain[0].gradients, strict=True):
        assert distance(found, wanted) <= 1e-12


@pytest.mark.contract(14)
@pytest.mark.parametrize("world_size", [1, 2])
def test_data_parallel_on_the_cpu_is_refused_with_advice(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    with pytest.raises(
        EngineError, match=r"this node trains on cpu: set strategy: \{name: ddp\}"
    ) as caught:
        pool.run(
            cases.train, Toy(), spec(8, 4, steps=1, **SECTION), tmp_path, world_size=world_size
        )
    assert caught.value.reason == "bad_spec"


@pytest.mark.contract(14)
def test_several_ranks_are_refused_on_gpus() -> None:
    objective = Objective(toy_task(Toy()), initial(Toy()))
    ranks = Ranks(world_size=2, device=torch.device("cuda", 0))
    with pytest.raises(EngineError, match="one process on one node, and 2 were started") as caught:
        STRATEGIES["data_parallel"](objective, ranks, Strategy(name="data_parallel"))
    assert caught.value.reason == "bad_spec"


@pytest.mark.parametrize(
    ("batch", "found"),
    [
        ((torch.zeros(1, 3), torch.zeros(4)), r"a tensor of shape \(4,\)"),
        ({"x": torch.zeros(1, 3), "scale": torch.tensor(2.0)}, r"a tensor of shape \(\)"),
        ([torch.zeros(1, 3), ["a text"]], "str"),
    ],
)
def test_a_batch_that_is_not_divided_into_samples_is_refused(batch: Any, found: str) -> None:
    with pytest.raises(EngineError, match=f"a batch of one sample has {found}"):
        require_samples_first(batch)
    require_samples_first(
        {"x": torch.zeros(1, 3), "pair": (torch.zeros(1), [torch.zeros(1, 2, 2)])}
    )


def test_dropout_by_sample_is_refused() -> None:
    _require_no_sample_dropout(nn.Sequential(nn.Dropout(0.5), Dropout(0.0)))
    message = r"does not support lockstep\.Dropout.* or set strategy: \{name: ddp\}$"
    with pytest.raises(EngineError, match=message):
        _require_no_sample_dropout(nn.Sequential(Dropout(0.1)))


@pytest.mark.contract(14)
@pytest.mark.gpu
def test_on_gpus_the_gradient_equals_that_on_the_cpu() -> None:
    toy = Toy(weigh="terms", penalty=0.3)
    task = toy_task(toy)
    batch = torch.utils.data.default_collate([task.dataset("train")[index] for index in range(8)])
    gradients = []
    for device in ("cpu", "cuda:0"):
        model = task.model().to(device)
        there = [part.to(device) for part in batch]
        objective = Objective(task, model)
        if device == "cpu":
            scaled, _ = objective(there, {"fit": 0.5, "mean": 0.25}, penalize=True)
        else:
            strategy = STRATEGIES["data_parallel"](
                objective, Ranks(device=torch.device(device)), Strategy(name="data_parallel")
            )
            strategy.forward([part[:1] for part in there], None, penalize=True)
            scaled, _ = strategy.forward(there, {"fit": 0.5, "mean": 0.25}, penalize=True)
        scaled.backward()
        gradients.append(
            torch.cat([p.grad.cpu().flatten() for p in model.parameters() if p.grad is not None])
        )
    assert float((gradients[1] - gradients[0]).norm() / gradients[0].norm()) <= 1e-12
