"""A stop at any moment ends the run within its grace, with a checkpoint of the last completed step.

Not here: a stop of a run that trains on (``tests.engine.runtime.test_alone``), and of scripts
(``tests.engine.launcher.test_kills``).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lockstep.domain.life.attempt import StopFile
from lockstep.domain.life.outcomes import Reason
from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.runtime import stopping
from lockstep.engine.runtime.stopping import StopRequest
from tests.engine.launcher.faults.drills import (
    STEPS,
    Fault,
    all_gone,
    checkpoints,
    prepare,
    struck,
    why,
)
from tests.engine.spool import records
from tests.harness.attempts import Attempt
from tests.harness.processes import until

GRACE_SECONDS = 8.0
NO_CHECKPOINTS = {"checkpoint": {"every_steps": 100}}


HANGS = {
    "set-up": (Fault("init", "hang", rank=1), None),
    "set-up of rank 0": (Fault("init", "hang", rank=0), None),
    "warm-up": (Fault("forward", "hang", rank=1, at=1), None),
    "data wait": (Fault("data", "hang", rank=1, at=15), 2),
    "data wait of rank 0": (Fault("data", "hang", rank=0, at=15), 2),
    "mid-window": (Fault("forward", "hang", rank=1, at=6), 2),
    "mid-window of rank 0": (Fault("forward", "hang", rank=0, at=6), 2),
    "evaluation": (Fault("eval", "hang", rank=1), 3),
}
"""Each moment with the last step that is complete then."""
ALWAYS = {"set-up", "data wait", "data wait of rank 0", "evaluation"}


@pytest.mark.contract(35)
@pytest.mark.parametrize(
    "moment",
    [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.drill) for name in HANGS],
)
def test_a_hanging_step_is_abandoned_and_the_last_one_saved(attempt: Attempt, moment: str) -> None:
    fault, last_step = HANGS[moment]
    prepare(attempt, fault, eval={"every_steps": 3}, **NO_CHECKPOINTS).start()
    struck(attempt)
    attempt.stop("preempted", GRACE_SECONDS)
    outcome = attempt.outcome()
    assert outcome.reason is Reason.PREEMPTED, (outcome, why(attempt))
    # After the grace the launcher would have killed it, and would report that.
    done = "saved the last completed step and exited" if last_step else "exited before a step"
    assert f"rank 0 {done}" in outcome.message
    assert outcome.last_step == last_step
    assert [checkpoint.verify(folder) for folder in checkpoints(attempt)] == (
        [last_step] if last_step else []
    )
    if last_step:
        assert checkpoint.load(checkpoints(attempt)[0])["step"] == last_step
        assert sorted(records(attempt.folder)) == list(range(1, last_step + 1))
    assert all_gone(attempt)


@pytest.mark.contract(35)
def test_rank_0_saves_without_its_dead_peers(attempt: Attempt) -> None:
    prepare(attempt, Fault("data", "hang", rank=1, at=23), **NO_CHECKPOINTS).start()
    struck(attempt)
    attempt.stop("cancelled", 60.0)
    attempt.saw("Stopping (cancelled)")
    os.kill(attempt.ranks()[1], signal.SIGKILL)
    outcome = attempt.outcome()
    assert outcome.reason is Reason.CANCELLED, (outcome, why(attempt))
    assert [checkpoint.verify(folder) for folder in checkpoints(attempt)] == [outcome.last_step]
    assert outcome.last_step


@pytest.mark.contract(35)
@pytest.mark.drill
def test_a_stop_during_a_checkpoint_waits_for_it(attempt: Attempt) -> None:
    prepare(attempt, Fault("checkpoint", "slow", rank=0)).start()
    struck(attempt)
    attempt.stop("shutdown", 60.0)
    outcome = attempt.outcome()
    assert outcome.reason is Reason.SHUTDOWN, (outcome, why(attempt))
    assert "the ranks ended in time" in outcome.message
    assert checkpoint.verify(checkpoints(attempt)[0]) == outcome.last_step


@pytest.mark.contract(35)
@pytest.mark.drill
def test_an_abandoned_run_resumes_to_the_same_end(
    attempt: Attempt, attempts: Callable[[Path], Attempt], tmp_path: Path
) -> None:
    prepare(attempt, Fault("forward", "hang", rank=1, at=6), **NO_CHECKPOINTS).start()
    struck(attempt)
    attempt.stop("preempted", GRACE_SECONDS)
    assert attempt.outcome().reason is Reason.PREEMPTED
    ends = []
    for resume in (checkpoints(attempt)[0], None):
        other = attempts(tmp_path / f"from{resume is not None}")
        assert prepare(other, Fault(), resume=resume).start().outcome(60).reason is Reason.SUCCEEDED
        ends.append(checkpoint.load(checkpoints(other)[0])["model"])
    assert all(torch.equal(value, ends[1][name]) for name, value in ends[0].items())


# --- the thread that abandons, by itself


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Exit codes with which the process would have ended."""
    codes: list[int] = []
    monkeypatch.setattr(stopping.os, "_exit", codes.append)
    return codes


def _stopping(
    folder: Path, save: Callable[[], None], *, grace_seconds: float = 0.02
) -> StopRequest:
    made = StopRequest(folder, reads_file=True, device=torch.device("cpu"))
    made.begin(save)
    made.watch()
    _ask(folder, grace_seconds)
    return made


def _ask(folder: Path, grace_seconds: float) -> None:
    """Write the stop file atomically, as the launcher does: its reader must not get half of it."""
    temporary = folder / "stop.tmp"
    temporary.write_text(
        StopFile(reason="cancelled", grace_seconds=grace_seconds).model_dump_json()
    )
    temporary.replace(folder / "stop")


@pytest.mark.contract(35)
def test_a_step_that_ends_in_time_is_not_abandoned(tmp_path: Path, leaving: list[int]) -> None:
    made = _stopping(tmp_path, lambda: None, grace_seconds=600.0)
    assert made.requested()
    made.over()
    until(
        lambda: "stopping" not in [thread.name for thread in threading.enumerate()],
        seconds=60,
        what="the end",
    )
    assert leaving == []


@pytest.mark.contract(35)
def test_no_checkpoint_is_saved_during_an_update(tmp_path: Path, leaving: list[int]) -> None:
    order = []
    made = StopRequest(tmp_path, reads_file=True, device=torch.device("cpu"))
    with made.update():
        _ask(tmp_path, 0.02)
        made.begin(lambda: order.append("saved"))
        made.watch()
        until(made._file.exists, seconds=60, what="the request")
        order.append("moved")
    until(lambda: leaving, seconds=60, what="the end of the process")
    assert (order, leaving) == (["moved", "saved"], [0])


@pytest.mark.contract(35)
def test_half_an_update_is_never_saved(tmp_path: Path, leaving: list[int]) -> None:
    saved = []
    made = _stopping(tmp_path, lambda: saved.append(True), grace_seconds=2.0)
    with pytest.raises(ZeroDivisionError), made.update():
        raise ZeroDivisionError
    until(lambda: leaving, seconds=60, what="the end of the process")
    assert (saved, leaving) == ([], [1])


@pytest.mark.contract(35)
def test_an_unwritable_checkpoint_does_not_delay_the_exit(
    tmp_path: Path, leaving: list[int]
) -> None:
    def save() -> None:
        raise OSError(28, "No space left on device")

    _stopping(tmp_path, save)
    until(lambda: leaving, seconds=60, what="the end of the process")
    assert leaving == [1]


@pytest.mark.contract(35)
def test_a_stop_by_hand_has_no_grace_and_waits_for_the_step(
    tmp_path: Path, leaving: list[int]
) -> None:
    made = StopRequest(tmp_path, reads_file=True, device=torch.device("cpu"))
    (tmp_path / "stop").touch()
    made.watch()
    until(
        lambda: "stopping" not in [thread.name for thread in threading.enumerate()],
        seconds=60,
        what="the end",
    )
    assert made.requested()
    assert leaving == []


def test_only_rank_0_reads_the_stop_file(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    assert not StopRequest(tmp_path, reads_file=False, device=torch.device("cpu")).requested()


def test_the_run_of_the_drills_succeeds_without_a_fault(attempt: Attempt) -> None:
    outcome = prepare(attempt, Fault()).start().outcome(60)
    assert (outcome.reason, outcome.last_step) == (Reason.SUCCEEDED, STEPS), why(attempt)
