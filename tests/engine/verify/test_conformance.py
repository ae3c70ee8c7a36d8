"""Conformance kit: this engine passes every item, and the kit finds the errors of others."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.conformance.__main__ import main
from benchmarks.conformance.case import Case, Rows, optimizer
from benchmarks.conformance.checks import ITEMS
from benchmarks.conformance.engines import ENGINES, engine_named
from benchmarks.conformance.engines.base import Engine
from benchmarks.conformance.engines.lockstep import Lockstep
from benchmarks.conformance.gang import (
    DeadRankError,
    Failed,
    HangError,
    RankIdentity,
    RankPool,
    Work,
)
from benchmarks.conformance.observer import Observer
from benchmarks.conformance.runs import Runs
from benchmarks.conformance.table import findings
from lockstep.engine.runtime.ranks import Ranks
from tests.engine import mutants
from tests.harness.ranks import Pool

HERE = "tests.engine.verify.test_conformance"
"""Name of this module for the command; pytest may use another one."""


def kit(folder: Path, *arguments: str) -> tuple[dict[str, list[dict[str, Any]]], str, int]:
    """Run the command; return engine → findings, its table and its exit code.

    It runs in this process, whose server of ranks has imported torch.
    """
    file = folder / "found.json"
    with contextlib.redirect_stdout(io.StringIO()) as table:
        code = main([*arguments, "--json", str(file)])
    return json.loads(file.read_text())["engines"], table.getvalue(), code


class Resident(RankPool):
    """Runs the work of engines without state and collectives on the ranks of the other tests."""

    def __init__(self, pool: Pool):
        self.pool = pool

    def run(self, work: Work, world_size: int, folder: Path) -> list[Any]:
        folder.mkdir(parents=True, exist_ok=True)
        return self.pool.run(answer, work, folder, world_size=world_size)


def answer(ranks: Ranks, work: Work, folder: Path) -> Any:
    found = work(RankIdentity(ranks.rank, ranks.world_size, folder))
    return found.answer if isinstance(found, Failed) else found


def of(findings: list[dict[str, Any]], number: str, title: str = "") -> dict[str, Any]:
    """Return the finding of one item."""
    (found,) = [one for one in findings if one["item"] == number and title in one["title"]]
    return found


@pytest.fixture(scope="module")
def compared(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[dict[str, list[dict[str, Any]]], str]:
    found, table, code = kit(
        tmp_path_factory.mktemp("kit"), "--engine", "raw", "--engine", "lockstep"
    )
    assert code == 0, "a comparison exits with 0 whatever it finds"
    return found, table


def test_one_command_prints_a_table_in_which_lockstep_passes(
    compared: tuple[dict[str, list[dict[str, Any]]], str],
) -> None:
    found, table = compared
    assert {
        (one["item"], one["verdict"], one["note"])
        for one in found["lockstep"]
        if one["verdict"] != "pass"
    } == set()
    lines = table.splitlines()
    assert lines[0].split() == ["raw", "lockstep"]
    assert [line.split()[0] for line in lines[2:] if line.startswith("C")] == [
        one["item"] for one in found["lockstep"]
    ]
    assert {one["item"] for one in found["lockstep"]} >= {
        f"C{n}" for n in (1, 2, 3, 4, 5, 7, 8, 9, 11, 16, 17, 18, 19, 26)
    }


@pytest.mark.contract(4)
def test_the_usual_loop_halves_the_ragged_batch(
    compared: tuple[dict[str, list[dict[str, Any]]], str],
) -> None:
    found, _ = compared
    assert of(found["lockstep"], "C4", "window")["measured"] == "1.000"
    assert of(found["raw"], "C4", "window")["value"] == pytest.approx(0.5, rel=1e-9)


def test_the_kit_finds_correct_and_wrong_items_of_a_usual_loop(
    compared: tuple[dict[str, list[dict[str, Any]]], str],
) -> None:
    found, _ = compared
    verdicts: dict[str, set[str]] = {}
    for one in found["raw"]:
        verdicts.setdefault(one["verdict"], set()).add(one["item"])
    assert verdicts["pass"] == {"C1", "C2", "C8", "C9", "C16", "C18"}
    assert verdicts["fail"] == {"C3", "C4", "C5", "C7", "C11", "C17", "C19"}
    assert verdicts["n/a"] == {"C26"}
    assert of(found["raw"], "C9")["measured"] == "1, 1"
    assert of(found["lockstep"], "C9")["measured"] == "1, 1"


@pytest.mark.contract(4, 18)
@pytest.mark.skipif(
    importlib.util.find_spec("accelerate") is None, reason="accelerate is not installed"
)
def test_accelerate_halves_the_ragged_batch_and_multiplies_the_schedule(
    tmp_path: Path,
) -> None:
    found, _, _ = kit(
        tmp_path,
        "--engine",
        "accelerate",
        "--engine",
        "accelerate-tokens",
        "--items",
        "C1,C3,C4,C18,C26",
    )
    usual, by_tokens = found["accelerate"], found["accelerate-tokens"]
    assert of(usual, "C4", "window")["value"] == pytest.approx(0.5, rel=1e-9)
    assert of(by_tokens, "C4", "window")["value"] == pytest.approx(1.0, rel=1e-9)
    assert [of(usual, number)["verdict"] for number in ("C1", "C3", "C18", "C26")] == [
        "pass",
        "fail",
        "fail",
        "pass",
    ]
    assert [of(by_tokens, number)["verdict"] for number in ("C1", "C3", "C18")] == [
        "pass",
        "pass",
        "fail",
    ]


@pytest.mark.contract(4, 17)
@pytest.mark.skipif(
    importlib.util.find_spec("lightning") is None, reason="lightning is not installed"
)
def test_fabric_halves_the_ragged_batch_and_refuses_nan(
    tmp_path: Path,
) -> None:
    found, _, _ = kit(tmp_path, "--engine", "fabric", "--items", "C4,C17")
    assert of(found["fabric"], "C4", "window")["value"] == pytest.approx(0.5, rel=1e-9)
    assert of(found["fabric"], "C17")["verdict"] == "pass"


class MeanOfMeans(Lockstep):
    """This engine with a mean per micro-batch, over the number of micro-batches."""

    name = "mean-of-means"

    def trainer(self, *arguments: Any) -> None:
        with mutants.mean_of_means():
            super().trainer(*arguments)


class FastSchedule(Lockstep):
    """This engine with a schedule that counts every rank."""

    name = "fast-schedule"

    def trainer(self, *arguments: Any) -> None:
        with mutants.schedule_counts_every_rank():
            super().trainer(*arguments)


@pytest.mark.parametrize(
    ("engine", "ranks", "wrong", "right"),
    [
        ("MeanOfMeans", "1", {"C3", "C4"}, {"C8", "C18"}),
        ("FastSchedule", "2", {"C18"}, {"C3", "C4", "C8"}),
    ],
)
def test_an_engine_that_breaks_a_rule_fails_its_row_alone(
    tmp_path: Path, engine: str, ranks: str, wrong: set[str], right: set[str]
) -> None:
    words = ("--items", "C3,C4,C8,C18", "--world-size", ranks)
    found, _, code = kit(tmp_path, "--engine", f"{HERE}:{engine}", *words)
    (findings,) = found.values()
    assert {one["item"] for one in findings if one["verdict"] == "fail"} == wrong
    assert {one["item"] for one in findings if one["verdict"] == "pass"} >= right - wrong
    assert code == 1, "for a single engine the exit code is the result"


# --- the gang


def silent(place: RankIdentity) -> int:
    """Rank 0 never responds."""
    while place.rank == 0:
        time.sleep(0.1)
    return place.rank


def gone(place: RankIdentity) -> int:
    if place.rank == 1:
        os._exit(7)
    return place.rank


def failed(place: RankIdentity) -> object:
    """Rank 1 fails; rank 0 waits for it in a collective, which fails when rank 1 is gone."""
    if place.rank == 1:
        return Failed("cannot")
    try:
        torch.distributed.all_reduce(torch.ones(1))
    except RuntimeError:
        return "heard"
    return "not heard"


def added(place: RankIdentity) -> float:
    number = torch.tensor(float(place.rank + 1))
    torch.distributed.all_reduce(number)
    return float(number)


def test_a_rank_that_hangs_dies_or_fails_is_named(
    tmp_path: Path,
) -> None:
    assert RankPool(60.0).run(added, 2, tmp_path) == [3.0, 3.0]
    assert RankPool(60.0).run(failed, 2, tmp_path) == ["heard", "cannot"]
    with pytest.raises(HangError, match="rank 0 gave no answer within 2 s"):
        RankPool(2.0).run(silent, 2, tmp_path)
    with pytest.raises(DeadRankError, match="rank 1 ended with exit code 7"):
        RankPool(60.0).run(gone, 2, tmp_path)


# --- the observer


class Once(Engine):
    """Makes one update by hand, after a masked pass and a step without a gradient, as a warm-up of
    an engine may."""

    name, page = "once", ""

    def train(self, case: Case, place: RankIdentity, observer: Observer) -> None:
        model = observer.model()
        moving = optimizer(case, model)
        rows = Rows(case)
        torch.autograd.backward(observer.sum(model, batch(rows, [3])) * 0.0)
        moving.zero_grad()
        moving.step()
        torch.autograd.backward(observer.sum(model, batch(rows, [0, 2])) / 3)
        torch.autograd.backward(observer.sum(model, batch(rows, [1])) / 3)
        moving.step()


def batch(rows: Rows, numbers: list[int]) -> list[torch.Tensor]:
    return [torch.stack(part) for part in zip(*(rows[number] for number in numbers), strict=True)]


def test_the_observer_counts_the_rows_of_real_passes_only(tmp_path: Path) -> None:
    runs = Runs(Once(), RankPool(60.0), (1,))
    run = runs.whole(Case(1, 2, 2, items=4))
    assert [update.rows for update in run.ranks[0].updates] == [[[0, 2], [1]]]
    assert run.gradient_error() <= 1e-12
    assert run.weights_error() <= 1e-12
    runs.close()


# --- an engine that the kit cannot observe


class Idle(Engine):
    """Builds the model and trains nothing."""

    name, page, reports_loss = "idle", "", True

    def refusal(self, case: Case) -> str | None:
        return None

    def train(self, case: Case, place: RankIdentity, observer: Observer) -> None:
        observer.model()


class Blind(Idle):
    """Trains with an optimizer of its own, which torch's hook does not observe, on a gradient that
    is 17 times too large."""

    def train(self, case: Case, place: RankIdentity, observer: Observer) -> None:
        model = observer.model()
        rows = Rows(case)
        for number in range(len(rows)):
            model.zero_grad()
            torch.autograd.backward(observer.sum(model, batch(rows, [number])) * 17)
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(0.1 * parameter.grad)


class Broken(Idle):
    """Does not start."""

    def train(self, case: Case, place: RankIdentity, observer: Observer) -> None:
        raise ImportError("no module named fast")


@pytest.mark.parametrize(
    ("engine", "note"),
    [
        (
            Idle(),
            "no update was seen: no torch.optim.Optimizer stepped after a backward of the "
            "observer's loss",
        ),
        (
            Blind(),
            "no update was seen: no torch.optim.Optimizer stepped after a backward of the "
            "observer's loss",
        ),
        (Broken(), "ImportError: no module named fast"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_engine_without_an_observed_update_passes_no_row(
    pool: Pool, engine: Engine, note: str
) -> None:
    found = findings(engine, Resident(pool), (1, 2), ITEMS)
    assert [(one.verdict, one.note) for one in found] == [("fail", note)] * len(ITEMS)


class Careful(Once):
    """Refuses all that may be refused before the first update: a NaN row, a part that not every row
    uses."""

    def train(self, case: Case, place: RankIdentity, observer: Observer) -> None:
        if case.poisoned is not None or case.sparse:
            raise ValueError("not this one")
        super().train(case, place, observer)


def test_an_engine_that_refuses_some_runs_is_observed_by_others(pool: Pool) -> None:
    found = findings(
        Careful(),
        Resident(pool),
        (1, 2),
        [item for item in ITEMS if item.number in {"C11", "C17"}],
    )
    assert [(one.verdict, one.note) for one in found] == [("pass", "ValueError: not this one")] * 2


def test_an_engine_is_found_by_name_or_class() -> None:
    assert {name: engine_named(name).name for name in ENGINES} == {name: name for name in ENGINES}
    assert isinstance(engine_named(f"{HERE}:Once"), Engine)
    for wrong in ("deepspeed", f"{HERE}:Missing", "os:sep"):
        with pytest.raises(ValueError, match="engine"):
            engine_named(wrong)
