"""A gang that does not move is ended; the rank for which the others wait is named, with every
rank's stack.

Most rules are tested on small processes that have only the heartbeat of a rank; one on a whole run.

Not here: ranks that end (``tests.engine.launcher.faults.test_failures``).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.train import Stall
from lockstep.domain.training.layout import RankLayout
from lockstep.engine.launcher.stall import stacks
from lockstep.engine.launcher.stall.stacks import StackDump
from lockstep.engine.launcher.stall.stalls import RankProgress, StallDetector, StallReport
from lockstep.engine.runtime import heartbeat
from lockstep.engine.runtime.heartbeat import Heartbeat, HeartbeatReading
from tests.engine.launcher.faults.drills import Fault, all_gone, prepare, why
from tests.harness.attempts import Attempt
from tests.harness.processes import until

LIMITS = Stall(first_step_seconds=100.0, min_seconds=10.0, factor=5.0)
BEGIN = """
import pathlib, sys, time
from lockstep.engine.runtime.heartbeat import Heartbeat
heartbeat = Heartbeat.begin(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
"""
JOB = """import ctypes, time

def fetch():
    time.sleep(600)

def compute():
    ctypes.PyDLL(None).sleep(600)  # this holds the interpreter's lock
"""


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[int, str], int]]:
    """Factory of processes that the watch treats as ranks; they end with the test."""
    running = []

    def begin(rank: int, source: str) -> int:
        code = tmp_path / "code"
        code.mkdir(exist_ok=True)
        (code / "job.py").write_text(JOB)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join((str(Path(__file__).parents[4]), str(code)))
        }
        command = [sys.executable, "-c", BEGIN + textwrap.dedent(source), str(tmp_path), str(rank)]
        running.append(subprocess.Popen(command, env=environment, start_new_session=True))
        return running[-1].pid

    yield begin
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Rank:
    """Rank whose heartbeats are written by the test."""

    def __init__(self, folder: Path, rank: int, phase: str = "data"):
        self._memory = bytearray(4096)
        self._heartbeat = Heartbeat(self._memory)
        self.train_from = self._heartbeat.train_from
        self._file = folder / heartbeat.heartbeat_name(rank)
        self._file.parent.mkdir(exist_ok=True)
        self.mark(phase)

    def mark(self, phase: str, step: int = 0) -> None:
        self._heartbeat.step(step)
        self._heartbeat.mark(phase)
        self._file.write_bytes(self._memory)


def stalled_after(stalls: StallDetector, pids: dict[int, int], *, begin: float) -> StallReport:
    """Check once per second of the watch's clock until there is a stall; stacks take their own
    time."""
    now = begin

    def look() -> StallReport | None:
        nonlocal now
        now += 1.0
        return stalls.poll(pids, now)

    found = until(look, seconds=60, what="a stall")
    assert found is not None
    return found


@pytest.mark.contract(33)
@pytest.mark.parametrize(
    ("phase", "limit_seconds"), [("backward", 100.0), ("communication", 100.0), ("data", 10.0)]
)
def test_a_node_that_waits_for_another_node_uses_the_long_limit(
    tmp_path: Path, phase: str, limit_seconds: float
) -> None:
    """Ranks of the other node may be saving or evaluating, which is not visible from this node."""
    rank, other = Rank(tmp_path, 0), Rank(tmp_path, 1)
    several, alone = (
        StallDetector(tmp_path, LIMITS, poll_seconds=1.0, nodes=nodes) for nodes in (2, 1)
    )
    for each in (rank, other):
        each.mark("communication", step=5)
    rank.mark(phase, step=5)
    for stalls in (several, alone):
        stalls.poll({0: 1, 1: 1}, 0.0)
    assert several.limit_seconds() == limit_seconds
    assert alone.limit_seconds() == 10.0


@pytest.mark.contract(33)
def test_after_the_first_step_the_limit_follows_the_median(
    tmp_path: Path,
) -> None:
    rank = Rank(tmp_path, 0, "setup")
    stalls = StallDetector(tmp_path, LIMITS, poll_seconds=1.0)
    stalls.poll({0: 1}, 0.0)
    assert stalls.limit_seconds() == 100.0
    rank.train_from(5)
    rank.mark("forward", step=5)
    stalls.poll({0: 1}, 1.0)
    assert stalls.limit_seconds() == 100.0
    for step, at in ((6, 60.0), (7, 61.0), (8, 62.0), (9, 90.0), (10, 91.0)):
        rank.mark("forward", step=step)
        stalls.poll({0: 1}, at)
    assert stalls.limit_seconds() == 10.0
    for step in range(11, 30):
        rank.mark("forward", step=step)
        stalls.poll({0: 1}, 91.0 + 4.0 * (step - 10))
    assert stalls.limit_seconds() == 20.0


@pytest.mark.contract(33)
@pytest.mark.parametrize(
    ("phase", "limit"), [("eval", 100.0), ("checkpoint", 100.0), ("backward", 10.0)]
)
def test_evaluation_and_checkpoints_may_take_longer_than_a_step(
    tmp_path: Path, phase: str, limit: float
) -> None:
    ranks = [Rank(tmp_path, 0), Rank(tmp_path, 1)]
    stalls = StallDetector(tmp_path, LIMITS, poll_seconds=1.0)
    for step in (0, 1, 2):
        for rank in ranks:
            rank.mark("communication", step=step)
        stalls.poll({0: 1, 1: 1}, float(step))
    ranks[0].mark(phase, step=2)
    stalls.poll({0: 1, 1: 1}, 3.0)
    assert stalls.limit_seconds() == limit


@pytest.mark.contract(33)
def test_halfway_to_the_limit_a_warning_names_the_phase_of_ranks(tmp_path: Path) -> None:
    rank = Rank(tmp_path, 0, "data")
    Rank(tmp_path, 1, "communication")
    stalls = StallDetector(tmp_path, LIMITS, poll_seconds=1.0)
    messages = []
    for at in range(70):
        if at == 60:
            rank.mark("forward")
        stalls.poll({0: 1, 1: 1}, float(at))
        messages.append(stalls.warning())
    assert [at for at, message in enumerate(messages) if message] == [50]
    assert messages[50] == (
        "no rank has made progress for 50 s: rank 0 is in data, rank 1 is in communication; "
        "after 100 s the run is killed"
    )


@pytest.mark.contract(33)
def test_a_machine_that_slept_has_not_stalled(tmp_path: Path) -> None:
    Rank(tmp_path, 0)
    stalls = StallDetector(tmp_path, LIMITS, poll_seconds=1.0)
    found = [stalls.poll({0: 1}, at) for at in (0.0, 1.0, 90_000.0, 90_001.0)]
    assert found == [None] * 4
    assert stalls.warning() is None


@pytest.mark.contract(33)
def test_a_rank_that_moves_during_the_inspection_has_not_stalled(tmp_path: Path) -> None:
    rank = Rank(tmp_path, 0)
    limits = Stall(first_step_seconds=2.0, min_seconds=2.0, factor=1.0)
    stalls = StallDetector(tmp_path, limits, poll_seconds=1.0)
    assert [stalls.poll({0: 1}, float(at)) for at in range(3)] == [None] * 3
    until(
        lambda: "stacks" not in [thread.name for thread in threading.enumerate()],
        seconds=60,
        what="the answers",
    )
    rank.mark("forward")
    assert [stalls.poll({0: 1}, float(at)) for at in (3, 4)] == [None] * 2


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for stacks as long as a busy machine needs to write them. Every signalled process writes
    some."""
    monkeypatch.setattr(stacks, "_STACKS_SECONDS", 60.0)
    monkeypatch.setattr(stacks, "_STILL_SECONDS", 0.5)


@pytest.mark.contract(33)
@pytest.mark.usefixtures("patient")
def test_the_rank_that_does_not_wait_is_named_with_its_line(
    tmp_path: Path, start: Callable[[int, str], int]
) -> None:
    waiting = """
        heartbeat.mark("communication")
        time.sleep(600)
        """
    # As in the engine: the main thread waits for a thread that fetches samples.
    fetching = """
        import job, threading
        thread = threading.Thread(target=job.fetch)
        thread.start()
        heartbeat.mark("data")
        thread.join()
        """
    pids = {rank: start(rank, fetching if rank == 1 else waiting) for rank in range(3)}
    until(
        lambda: all((b := heartbeat.read(tmp_path, r)) and b.mark_count > 1 for r in pids),
        seconds=60,
        what="heartbeats",
    )
    found = stalled_after(StallDetector(tmp_path, LIMITS, poll_seconds=1.0), pids, begin=0.0)
    assert [view.rank for view in found.culprits] == [1]
    assert "rank 1 has been in data for " in found.sentence()
    assert "at job.py line 4 in fetch; 2 ranks wait" in found.sentence()
    assert found.excerpt().startswith("rank 1, data for ")
    assert all(f"rank {rank}, communication" in found.excerpt() for rank in (0, 2))
    assert found.quiet_seconds >= found.limit_seconds == 100.0


@pytest.mark.contract(33)
@pytest.mark.usefixtures("patient")
def test_stacks_come_from_a_rank_that_holds_the_interpreters_lock(
    tmp_path: Path, start: Callable[[int, str], int]
) -> None:
    source = """
        import job
        heartbeat.mark("forward")
        job.compute()
        """
    pid = start(0, source)
    until(
        lambda: (b := heartbeat.read(tmp_path, 0)) and b.phase == "forward",
        seconds=60,
        what="the phase",
    )
    found = stalled_after(StallDetector(tmp_path, LIMITS, poll_seconds=1.0), {0: pid}, begin=0.0)
    assert "at job.py line 7 in compute" in found.sentence()


@pytest.mark.contract(33)
@pytest.mark.usefixtures("patient")
def test_loader_workers_write_stacks_too(tmp_path: Path, start: Callable[[int, str], int]) -> None:
    source = """
        import job, os
        child = os.fork()
        if not child:
            job.fetch()
        heartbeat.mark("data")
        os.waitpid(child, 0)
        """
    pid = start(0, source)
    until(
        lambda: (b := heartbeat.read(tmp_path, 0)) and b.phase == "data",
        seconds=60,
        what="the phase",
    )

    def told() -> StallReport | None:
        stalls = StallDetector(tmp_path, LIMITS, poll_seconds=1.0)
        found = stalled_after(stalls, {0: pid}, begin=0.0)
        return found if "at job.py line 4 in fetch" in found.sentence() else None

    # On a busy machine the worker has not begun to fetch when the rank waits for it.
    found = until(told, seconds=60, what="the place of the worker")
    assert found is not None
    assert "of its process" in found.excerpt()


@pytest.mark.contract(33)
def test_a_stopped_process_is_named_as_the_cause(
    tmp_path: Path, start: Callable[[int, str], int]
) -> None:
    pids = {
        rank: start(rank, "heartbeat.mark('communication')\ntime.sleep(600)") for rank in range(2)
    }
    for rank in pids:
        until(
            lambda r=rank: (b := heartbeat.read(tmp_path, r)) and b.mark_count > 1,
            seconds=60,
            what="heartbeats",
        )
    os.kill(pids[1], signal.SIGSTOP)
    found = stalled_after(StallDetector(tmp_path, LIMITS, poll_seconds=1.0), pids, begin=0.0)
    assert [view.rank for view in found.culprits] == [1]
    assert "(its process was stopped)" in found.sentence()


def test_a_process_without_a_handler_is_never_signalled() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        assert not heartbeat.catches(process.pid)
        process.kill()


@pytest.mark.contract(33)
@pytest.mark.parametrize(
    ("entered", "culprits"), [((7, 9, 9), [0]), ((9, 9, 9), []), ((7, None, 9), [])]
)
def test_if_all_wait_the_rank_with_fewer_collectives_is_named(
    entered: tuple[int | None, ...], culprits: list[int]
) -> None:
    reading = HeartbeatReading(0.0, 0.0, 3, "communication", 9, 1, 0)
    views = tuple(
        RankProgress(rank, reading, 9.0, StackDump(1, "S", (), count))
        for rank, count in enumerate(entered)
    )
    stalled = StallReport(9.0, 8.0, views)
    assert [view.rank for view in stalled.culprits] == culprits
    assert culprits or "all of them wait in a collective" in stalled.sentence()


@pytest.mark.parametrize("busy", ["forward", "tensor"])
def test_ranks_that_wait_for_their_tensor_group_are_named(busy: str) -> None:
    phases = (busy, "tensor", "communication", "communication")
    views = tuple(
        RankProgress(rank, HeartbeatReading(0.0, 0.0, 3, phase, 9, 1, 0), 9.0, StackDump(1, "S"))
        for rank, phase in enumerate(phases)
    )
    stalled = StallReport(9.0, 8.0, views)
    who = "rank 1 waits" if busy == "forward" else "ranks 0, 1 wait"
    assert stalled.sentence().endswith(f" ({who} for a message of their tensor group)")
    assert [view.rank for view in stalled.culprits] == ([0] if busy == "forward" else [])


def test_ranks_that_wait_for_a_stage_are_named_with_stage_and_message() -> None:
    phases = ("gradient", "gradient", "tensor", "forward", "activation", "activation")
    views = tuple(
        RankProgress(rank, HeartbeatReading(0.0, 0.0, 3, phase, 9, 1, 0), 9.0, StackDump(1, "S"))
        for rank, phase in enumerate(phases)
    )
    stalled = StallReport(9.0, 8.0, views, RankLayout(copies=1, tensor=2, pipeline=3))
    assert [view.rank for view in stalled.culprits] == [3]
    assert stalled.sentence().endswith(
        " (ranks 0, 1 of stage 0 wait for a gradient of stage 1; rank 2 waits for a message of "
        "their tensor group; ranks 4, 5 of stage 2 wait for an activation of stage 1)"
    )


@pytest.mark.contract(33)
def test_a_run_that_hangs_ends_with_the_cause_and_stacks(
    attempt: Attempt,
) -> None:
    stall = {"first_step_seconds": 60, "min_seconds": 4, "factor": 5}
    prepare(attempt, Fault("data", "hang", rank=1, at=15), stall=stall).start(heartbeat_seconds=0.2)
    outcome = attempt.outcome(seconds=180)
    assert (outcome.reason, outcome.rank) == (Reason.STALL, 1), (outcome, why(attempt))
    assert "rank 1 has been in data for " in outcome.message
    assert "in strike; rank 0 waits" in outcome.message
    assert outcome.last_step == 2
    assert outcome.traceback is not None
    assert "drill.py" in outcome.traceback
    assert "rank 0, communication for " in outcome.traceback
    messages = {
        record.rank
        for record in attempt.records()
        if record.stream == "launcher" and "File " in record.text
    }
    assert messages == {0, 1}
    traces = [
        json.loads((attempt.folder / f"stacks/rank{rank}.json").read_text()) for rank in (0, 1)
    ]
    assert all("missing" in trace or trace["entries"] for trace in traces)
    assert all_gone(attempt)


GIVES_UP = """
def model(self, model=Drill.model):
    for group in {dist.group.WORLD, *dist.distributed_c10d._world.pg_map}:
        timeout = group._get_backend(torch.device("cpu")).options._timeout
        print("a collective gives up after", timeout.total_seconds(), "s", flush=True)
    return model(self)

Drill.model = model
"""


@pytest.mark.contract(33)
def test_collectives_wait_as_long_as_the_longest_stall_limit(
    attempt: Attempt,
) -> None:
    """A rank that prepares data for an hour is given the time of ``stall`` instead of torch's
    default."""
    prepare(attempt, Fault())
    with (attempt.folder / "code/drill.py").open("a") as task:
        task.write(GIVES_UP)
    assert attempt.start().outcome(seconds=120).reason is Reason.SUCCEEDED, why(attempt)
    timeouts = [
        line.split() for rank in (0, 1) for line in attempt.lines(rank) if "gives up" in line
    ]
    (longest,) = (
        limit.le
        for limit in Stall.model_fields["first_step_seconds"].metadata
        if hasattr(limit, "le")
    )
    assert timeouts
    assert all(float(line[-2]) > longest for line in timeouts)
