"""Effects of calls that the sum of losses does not show are named before the first step."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.preflight import check_size
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.interface import Task
from tests.engine.cases import planned
from tests.engine.preflight import additive_tasks
from tests.engine.preflight import effect_tasks as tasks
from tests.engine.preflight.coupled_tasks import Late
from tests.engine.preflight.test_couplings import by_turns, checked
from tests.engine.spool import events
from tests.engine.start_cases import OPTIONS
from tests.harness.ranks import Pool

READ: list[tuple[Callable[[], Task], str]] = [
    (tasks.Reversed, "loss() reads state that calls of the task change (calls): "),
    (tasks.Detached, "loss() reads state that calls of the task change (calls): "),
    (tasks.MovedBackwards, "loss() reads state that calls of the task change (calls"),
    (tasks.Left, "loss() reads state that calls of the task change (task.last): "),
    (partial(tasks.Weighing, "weight"), "(task.calls, read after 1,000 calls)"),
    (partial(tasks.Weighing, "collate"), "(task.calls, read after 1,000 calls)"),
    (partial(tasks.Weighing, "evaluate"), "(task.calls, read after 1,000 calls)"),
    (tasks.Smoothed, "evaluate() reads state that calls of the task change (task.average"),
]


@pytest.mark.parametrize(("task", "named", "free"), by_turns(READ))
def test_state_that_other_calls_move_or_read_is_named(
    task: Callable[[], Task], named: str, free: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_size, "_FREE", free)
    (warning,) = checked(task(), evaluates=True).warnings_beside([])
    assert named in warning


def normed(gradient: torch.Tensor) -> torch.Tensor:
    return gradient / gradient.norm(dim=1, keepdim=True)


NONLINEAR: list[tuple[Callable[[], Task], str]] = [
    (partial(tasks.Hooked, lambda each: each.clamp(-1, 1)), "backward hooks of head"),
    (partial(tasks.Hooked, normed), "backward hooks of head"),
    (partial(tasks.Changed, torch.sign), "gradient of first"),
]
LINEAR: list[Callable[[], Task]] = [
    partial(tasks.Hooked, lambda each: each * 0.5),
    partial(tasks.Changed, torch.nan_to_num),
    tasks.NoisyGradient,
    additive_tasks.Encoder,
    additive_tasks.Spectral,
    additive_tasks.LoRA,
]


@pytest.mark.parametrize(
    ("task", "named", "free"), by_turns([*NONLINEAR, *((task, "") for task in LINEAR)])
)
def test_a_backward_that_is_not_linear_is_named(
    task: Callable[[], Task], named: str, free: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_size, "_FREE", free)
    warning = checked(task()).effects.nonlinear
    assert warning.startswith("backward() is not linear") == bool(named)
    assert named in warning


@pytest.mark.parametrize("draws", [False, True])
def test_draws_of_some_samples_are_found(draws: bool) -> None:
    assert checked(tasks.Heads(draws)).effects.draws
    assert not checked(Late(30)).effects.draws


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (tasks.OnTheFirstRank, "task.scale: 2.0 on rank 0, absent on rank 1"),
        ("rank", "task.rank: 0 on rank 0, 1 on rank 1"),
        ("noise", "task.noise: "),
        ("bias", "task.bias: "),
        ("board", "task.board: an object on rank 0, absent on rank 1"),
        ("", ""),
    ],
)
def test_read_state_that_differs_between_ranks_is_named(
    pool: Pool, tmp_path: Path, kind: Any, named: str
) -> None:
    words = "from the start"
    warnings = pool.run(tasks.warnings_by_rank, kind, tmp_path, words, world_size=2)[0]
    assert len(warnings) == bool(named)
    assert named in "".join(warnings)


@pytest.mark.parametrize("kind", ["rank", "environment", "reduce", "evaluate", "log"])
def test_a_task_that_computes_something_else_on_one_rank_is_reported(
    pool: Pool, tmp_path: Path, kind: str
) -> None:
    task, words = partial(tasks.InAWorld, kind), "something else on a single rank"
    size = 4 if kind in {"reduce", "evaluate"} else 2  # All ranks of the pool reduce.
    warnings = pool.run(tasks.warnings_by_rank, task, tmp_path, words, world_size=size)[0]
    assert len(warnings) == (kind != "log")


def test_a_resumed_run_repeats_its_warnings(tmp_path: Path) -> None:
    def warnings_after(steps: int, **more: Any) -> list[str]:
        plan, spec = planned({**OPTIONS, "steps": steps}, 1)
        Trainer(spec, plan, tasks.Left(), Ranks(), tmp_path, **more).run()
        return [event["message"] for event in events(tmp_path, "warning")]

    first = warnings_after(2)
    assert any("task.last" in each for each in first)
    assert warnings_after(4, resumes=True) == first * 2
