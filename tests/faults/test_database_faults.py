"""A run of jobs with a database that fails: each call, in each way, on both databases (F14).

An ordinary run fails a sample of the calls, selected by a seed that is printed. ``-m drill`` fails
calls of every function that makes some, in every way, and then thousands of commits whose answers
are lost.
"""

from __future__ import annotations

import ast
import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.harness.databases import Urls
from tests.harness.drills import Drill, fresh_seed, long
from tests.harness.faults.database_faults import (
    PROGRAMS,
    ROOT,
    Call,
    Fault,
    FaultyDatabase,
    ways_of,
)
from tests.harness.faults.story import Telling
from tests.harness.life.in_process import Service

SEED: Final = int(os.environ.get("LOCKSTEP_TEST_SEED", "14"))
SAMPLE: Final = 8
"""Runs of the three jobs in an ordinary test run, per database."""
INJECTIONS: Final = 5_000
"""Of the long form, per database: lost answers to commits."""
OPENED: Final = ("jobs", "series", "read_jobs", "read_series")
NOT_TOLD: Final = {
    "api": (
        "the story reads one job; other pages only read, and a reader that fails has changed "
        "nothing"
    ),
    "scheduler.cycle.lose": "the death of a node is told by the model",
    "scheduler.cycle._last_steps": "likewise",
    "scheduler.cycle._quarantine": "the story's node is a good one",
    "scheduler.cycle.settle": "gangs are told by the model",
    "worker.agent.peers": "likewise",
    "worker.upload.stream.is_open": (
        "a stream is looked at only after a refused append: lost answers make it so"
    ),
    "worker.agent.starting._report_wait": "the disk of the story's node has space",
    "worker.agent.claims.claim_again": "no backup is restored in the story",
    "worker.upload.events.effects._report_missing_points": "likewise",
    "worker.upload.events.effects.report_save_time": "the story's launcher measures no save",
    "worker.upload.kept.restoring": "a job of the story has one attempt",
    "storage.series.inherited": "no job of the story continues another",
    "scheduler.deletions": "no files are due for deletion",
    "worker.agent.supervisor._report_leaving": "the agent is not stopped in the story",
}

Tell = Callable[[], Telling]


class FaultyService(Service):
    """A service over a database that fails on request."""

    def __init__(self, urls: Urls, store: Path) -> None:
        self.faulty = FaultyDatabase()
        super().__init__(urls, store, prepare=self.faulty.rule)


@pytest.fixture
def faulty(database_urls: Urls, tmp_path: Path) -> Iterator[FaultyService]:
    service = FaultyService(database_urls, tmp_path / "store")
    service.database.ping()
    yield service
    service.close()


@pytest.fixture
def tell(faulty: FaultyService, tmp_path_factory: pytest.TempPathFactory) -> Tell:
    """Run the jobs once more, from an empty database, and check the result.

    Arm the faults first.
    """

    def telling() -> Telling:
        faulty.faulty.watching, before = False, faulty.faulty.watching
        faulty.wipe()
        faulty.faulty.watching = before
        told = Telling(faulty, tmp_path_factory.mktemp("node"))
        told.tell()
        faulty.faulty.watching = False
        told.check()
        return told

    return telling


def calls_of_the_story(faulty: FaultyService, tell: Tell) -> list[Call]:
    faulty.faulty.fail_never()
    tell()
    return list(faulty.faulty.calls)


def ways(calls: list[Call]) -> list[tuple[int, Fault]]:
    """Return every call with every possible kind of fault."""
    return [(number, fault) for number, call in enumerate(calls) for fault in ways_of(call)]


def of_every_place(calls: list[Call], chance: random.Random) -> list[tuple[int, Fault]]:
    """Return each kind of fault for one call of each function.

    All calls would take hours.
    """
    found: dict[tuple[Call, Fault], list[int]] = defaultdict(list)
    for number, fault in ways(calls):
        found[calls[number], fault].append(number)
    return [(chance.choice(numbers), fault) for (_call, fault), numbers in found.items()]


def fail_each(
    faulty: FaultyService,
    tell: Tell,
    drill: Drill,
    calls: list[Call],
    chosen: list[tuple[int, Fault]],
) -> None:
    for number, fault in chosen:
        # The run makes slightly more or fewer calls each time. If this one was not reached, the
        # first one of its function counts.
        for at in (number, calls.index(calls[number])):
            faulty.faulty.fail_at(at, fault)
            try:
                tell()
            except AssertionError as error:
                site = faulty.faulty.injected or "nothing was injected"
                raise AssertionError(f"{fault} at call {at}, {site}: {error}") from error
            if faulty.faulty.injected:
                break
        assert len(faulty.faulty.injected) == 1, (
            f"the story has no call {number} any more: {calls[number]}"
        )
        drill.injected += 1


def test_a_failing_call_loses_nothing_and_doubles_nothing(
    faulty: FaultyService, tell: Tell, drill: Drill
) -> None:
    """The run makes the calls of every function that opens a transaction."""
    chance = drill.begin("F14", f"{faulty.kind}: a call fails", seed=SEED)
    calls = calls_of_the_story(faulty, tell)
    told = {call.site for call in calls}
    missing = {
        site
        for site in sites_in_the_programs()
        if site not in told and not site.startswith(tuple(NOT_TOLD))
    }
    assert not missing
    fail_each(faulty, tell, drill, calls, chance.sample(ways(calls), SAMPLE))


@pytest.mark.drill
@pytest.mark.timeout(1800)
def test_failing_calls_of_every_function_lose_nothing_and_double_nothing(
    faulty: FaultyService, tell: Tell, drill: Drill
) -> None:
    seed = fresh_seed()
    chance = drill.begin("F14", f"{faulty.kind}: a call of each place fails", seed=seed)
    calls = calls_of_the_story(faulty, tell)
    chosen = of_every_place(calls, chance)
    print(f"{len(chosen)} of {len(ways(calls))} ways to fail {len(calls)} calls")
    fail_each(faulty, tell, drill, calls, chosen)


@pytest.mark.parametrize(
    ("seed", "enough"), [(SEED, 40), long(fresh_seed(), INJECTIONS, seconds=1800)]
)
def test_lost_answers_to_many_commits_double_nothing(
    faulty: FaultyService, tell: Tell, drill: Drill, seed: int, enough: int
) -> None:
    """Run the jobs until this number of answers was lost, two of five."""
    chance = drill.begin("F14", f"{faulty.kind}: the answer to a commit is lost", seed=seed)
    while drill.injected < enough:
        faulty.faulty.fail_often(0.4, (Fault.AFTER_COMMIT,), chance, most=80)
        tell()
        assert faulty.faulty.injected
        drill.injected += len(faulty.faulty.injected)


def sites_in_the_programs() -> set[str]:
    """Return every function of api, scheduler and worker that opens a transaction."""
    found = set()
    for program in PROGRAMS:
        for path in (ROOT / program).rglob("*.py"):
            module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            for function in ast.walk(ast.parse(path.read_text())):
                if isinstance(function, ast.FunctionDef) and any(map(_opens, own_nodes(function))):
                    found.add(f"{module}.{function.name}")
    return found


def own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function without those of nested functions."""
    waiting = list(ast.iter_child_nodes(function))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, ast.FunctionDef):
            waiting.extend(ast.iter_child_nodes(node))


def _opens(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.withitem)
        and isinstance(node.context_expr, ast.Call)
        and isinstance(node.context_expr.func, ast.Attribute)
        and node.context_expr.func.attr in OPENED
    )
