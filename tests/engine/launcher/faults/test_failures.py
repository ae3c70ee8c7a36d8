"""After any end of a rank at any moment, the gang ends, the outcome names the rank, and a restart
succeeds.

The whole matrix takes minutes and runs with ``pytest -m drill``; a part with every moment and every
cause runs always.

Not here: ranks that hang (``tests.engine.launcher.faults.test_stall``), stops
(``tests.engine.launcher.faults.test_stop``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.domain.life.outcomes import Reason
from tests.engine.launcher.faults.drills import (
    STEPS,
    Fault,
    all_gone,
    all_processes,
    checkpoints,
    prepare,
    struck,
    why,
)
from tests.harness.attempts import Attempt
from tests.harness.processes import alive, until

GONE_SECONDS = 60.0

MOMENTS = {
    "init": (Fault("init"), {None}),
    "first forward": (Fault("forward", at=1), {None}),
    "mid-accumulation": (Fault("forward", at=6), {2}),
    "all-reduce": (Fault("all-reduce", at=6), {2, 3}),
    "checkpoint": (Fault("checkpoint", rank=0), {2, 3, 4}),
    "stream": (Fault("stream", at=5), {2, 3, 4}),
    "shutdown": (Fault("shutdown"), {STEPS}),
}
"""Each moment with the last step that may be complete then: a rank may finish an operation that the
other has begun, and trains on while its checkpoint is written."""
CAUSES = ("raise", "exit 0", "exit 7", "kill")
ALWAYS = {
    ("init", "exit 0"),
    ("first forward", "raise"),
    ("mid-accumulation", "kill"),
    ("mid-accumulation", "exit 7"),
    ("all-reduce", "exit 0"),
    ("all-reduce", "raise"),
    ("checkpoint", "kill"),
    ("stream", "kill"),
    ("shutdown", "exit 7"),
}
MATRIX = [
    pytest.param(moment, cause, marks=() if (moment, cause) in ALWAYS else pytest.mark.drill)
    for moment, cause in itertools.product(MOMENTS, CAUSES)
    if (moment, cause) != ("shutdown", "exit 0")  # the normal end of a rank
]


def fault_of(moment: str, cause: str) -> Fault:
    fault, _ = MOMENTS[moment]
    return Fault(fault.moment, cause, fault.rank, fault.at)


@pytest.mark.contract(31)
@pytest.mark.parametrize(("moment", "cause"), MATRIX)
def test_a_rank_that_ends_takes_its_gang_down_and_is_named(
    attempt: Attempt, moment: str, cause: str
) -> None:
    fault = fault_of(moment, cause)
    prepare(attempt, fault).start()
    struck(attempt)
    until(lambda: all_gone(attempt), seconds=GONE_SECONDS, what="all processes are gone")
    outcome = attempt.outcome()
    assert outcome.rank == fault.rank, (outcome, why(attempt))
    assert outcome.last_step in MOMENTS[moment][1], outcome
    match cause:
        case "raise":
            assert outcome.reason is Reason.USER_ERROR
            assert outcome.exception == "RuntimeError: this is a drill"
        case "kill":
            assert (outcome.reason, outcome.signal) == (Reason.KILLED, "SIGKILL")
        case _:
            assert (outcome.reason, outcome.exit_code) == (
                Reason.USER_ERROR,
                int(cause.removeprefix("exit ")),
            )
    assert not [pid for pid in all_processes(attempt) if alive(pid)]


RESTARTS = 20
"""In the long form, the causes of each moment alternate."""


def restart(failed: Attempt, again: Attempt, moment: str, cause: str) -> None:
    """Let a run fail, and resume from its files in a new folder, as the next attempt does."""
    assert (
        prepare(failed, fault_of(moment, cause)).start().outcome(90).reason is not Reason.SUCCEEDED
    )
    found = checkpoints(failed)
    prepare(again, Fault(), resume=found[0] if found else None).start()
    outcome = again.outcome(90)
    assert (outcome.reason, outcome.last_step) == (Reason.SUCCEEDED, STEPS), (outcome, why(again))


@pytest.mark.contract(32)
def test_a_restart_after_a_failure_succeeds(
    attempts: Callable[[Path], Attempt], tmp_path: Path
) -> None:
    restart(attempts(tmp_path / "failed"), attempts(tmp_path / "again"), "all-reduce", "kill")


@pytest.mark.contract(32)
@pytest.mark.drill
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("moment", list(MOMENTS))
def test_restarts_succeed_20_of_20_at_every_moment(
    attempts: Callable[[Path], Attempt], tmp_path: Path, moment: str
) -> None:
    causes = itertools.cycle(cause for cause in CAUSES if (moment, cause) != ("shutdown", "exit 0"))
    for turn, cause in zip(range(RESTARTS), causes, strict=False):
        restart(
            attempts(tmp_path / f"{turn}" / "failed"),
            attempts(tmp_path / f"{turn}" / "again"),
            moment,
            cause,
        )
