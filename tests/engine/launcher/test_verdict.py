"""Choice of the outcome among several failures.

The rules of the verdict, one by one, without processes.

Not here: real gangs that fail this way (``tests.engine.launcher.test_outcomes``).
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from lockstep.domain import limits
from lockstep.domain.life.attempt import METRICS, StopFile
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.spec.reading import read_spec
from lockstep.engine.launcher.evidence import (
    Evidence,
    elastic_error_file,
    error_file,
    gather,
)
from lockstep.engine.launcher.facts import Cause, Exit, Facts
from lockstep.engine.launcher.files import last_step
from lockstep.engine.launcher.outcome import decide
from lockstep.engine.launcher.stall.stacks import StackDump
from lockstep.engine.launcher.stall.stalls import RankProgress, StallReport
from lockstep.engine.launcher.tracebacks import last_printed
from lockstep.engine.runtime.errors import EngineError, write_error
from lockstep.engine.runtime.heartbeat import HeartbeatReading
from lockstep.system.untrusted import Untrusted
from tests.harness.attempts import assignment_of

LOST_PEER = Evidence(
    exception="RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer"
)
RAISED = Evidence(exception="ValueError: lr")
MICRO_BATCH, FIX = "smaller micro-batch", "fix the code"


def _decide(
    *exits: Exit,
    cause: Cause | None = "failure",
    stop: StopFile | None = None,
    evidence: dict[int, Evidence] | None = None,
    last_step: int | None = None,
    steps: int | None = None,
    memory_kills: int = 0,
    grace_over: bool = False,
    gang_failed: bool = False,
) -> Outcome:
    facts = Facts(ranks=(0, 1), exits=list(exits), cause=cause, stop=stop, grace_over=grace_over)
    facts.gang_failed = gang_failed
    assignment = assignment_of(ranks=2)
    return decide(
        facts,
        evidence or {},
        assignment,
        last_step=last_step,
        steps=steps,
        memory_kills=memory_kills,
    )


def _exit(rank: int, code: int, *, time: float = 10.0, torn_down: bool = False) -> Exit:
    return Exit(rank, code, time, torn_down)


def test_a_rank_that_lost_its_peer_first_yields_to_the_peer() -> None:
    exits = (_exit(0, 1, time=10.0), _exit(1, -signal.SIGTERM, time=10.2, torn_down=True))
    outcome = _decide(*exits, evidence={0: LOST_PEER, 1: RAISED})
    assert (outcome.reason, outcome.rank, outcome.exception) == (
        Reason.USER_ERROR,
        1,
        "ValueError: lr",
    )
    assert outcome.signal is None


def test_the_signal_of_the_shutdown_is_never_the_outcome() -> None:
    exits = (_exit(0, -signal.SIGTERM, time=9.0, torn_down=True), _exit(1, 7, time=10.0))
    outcome = _decide(*exits)
    assert (outcome.rank, outcome.exit_code) == (1, 7)


@pytest.mark.parametrize(
    ("exits", "reason"),
    [
        ([], Reason.NETWORK),
        ([Exit(0, -signal.SIGTERM, 1.0, torn_down=True)], Reason.NETWORK),
        ([Exit(0, 0, 1.0, torn_down=True), Exit(1, -9, 2.0, torn_down=True)], Reason.NETWORK),
        ([Exit(0, 3, 1.0, torn_down=False)], Reason.USER_ERROR),
    ],
)
def test_ranks_that_ended_for_another_node_name_no_cause_of_their_own(
    exits: list[Exit], reason: Reason
) -> None:
    assert _decide(*exits, gang_failed=True).reason is reason


def test_an_exit_code_that_asks_for_a_retry_wins_over_other_failures() -> None:
    exits = (_exit(0, 1, time=9.0), _exit(1, 75, time=10.0))
    outcome = _decide(*exits, evidence={0: RAISED, 1: LOST_PEER})
    assert (outcome.reason, outcome.rank, outcome.exit_code) == (Reason.USER_ERROR, 1, 75)
    torn_down = _decide(exits[0], _exit(1, 75, torn_down=True), evidence={0: RAISED})
    assert (torn_down.rank, torn_down.exit_code) == (0, 1)


def test_of_two_exceptions_the_earlier_is_the_outcome() -> None:
    evidence = {
        0: Evidence(reason=Reason.USER_ERROR, exception="later", time=5.5),
        1: Evidence(reason=Reason.NON_FINITE, exception="earlier", time=5.0),
    }
    outcome = _decide(
        _exit(0, 1, time=6.0), _exit(1, 1, time=6.5, torn_down=True), evidence=evidence
    )
    assert (outcome.rank, outcome.reason) == (1, Reason.NON_FINITE)


def test_a_crash_that_is_found_after_its_peers_is_the_outcome() -> None:
    exits = (_exit(1, 1, time=10.0), _exit(0, -signal.SIGSEGV, time=10.1, torn_down=True))
    outcome = _decide(*exits, evidence={1: LOST_PEER})
    assert (outcome.rank, outcome.signal, outcome.reason) == (0, "SIGSEGV", Reason.KILLED)
    killed = _exit(0, -signal.SIGKILL, time=10.1)
    assert _decide(exits[0], killed, evidence={1: LOST_PEER}).signal == "SIGKILL"
    assert _decide(*exits, evidence={1: RAISED}).rank == 1


def test_if_every_rank_lost_the_others_the_network_is_the_cause() -> None:
    exits = (_exit(0, 1), _exit(1, 1, time=11.0, torn_down=True))
    outcome = _decide(*exits, evidence={0: LOST_PEER, 1: LOST_PEER})
    assert (outcome.reason, outcome.rank) == (Reason.NETWORK, 0)


def test_a_rank_that_nccls_watchdog_aborted_has_lost_the_others() -> None:
    """It leaves no Python traceback; the cause is a rank of another node, or the network."""
    aborted = Evidence(
        traceback="terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  NCCL error: remote "
        "process exited or there was a network error\nncclRemoteError: A call failed possibly due to a network error"
    )
    outcome = _decide(_exit(0, -6), evidence={0: aborted})
    assert (outcome.reason, outcome.rank, outcome.signal) == (Reason.NETWORK, 0, "SIGABRT")


def test_a_rank_that_left_with_code_0_is_the_cause() -> None:
    outcome = _decide(_exit(1, 0), _exit(0, 1, time=11.0), evidence={0: LOST_PEER})
    assert (outcome.reason, outcome.rank, outcome.exit_code) == (Reason.USER_ERROR, 1, 0)
    assert "rank 1 exited with code 0 before the others" in outcome.message


def test_a_rank_that_left_early_with_code_0_failed() -> None:
    early = Exit(1, 0, 10.0, torn_down=False, early=True)
    outcome = _decide(early, _exit(0, 1, time=10.5, torn_down=True), evidence={0: LOST_PEER})
    assert (outcome.reason, outcome.rank, outcome.exit_code) == (Reason.USER_ERROR, 1, 0)
    assert outcome.message == "rank 1 exited with code 0 before the end of the run"


def test_an_abort_at_the_end_of_the_interpreter_is_not_retried() -> None:
    aborted = Evidence(traceback="loss 0.1\nterminate called without an active exception")
    by_word = _decide(_exit(0, -signal.SIGABRT), evidence={0: aborted})
    by_order = _decide(_exit(1, 0), _exit(0, -signal.SIGABRT, time=11.0))
    for outcome in (by_word, by_order):
        assert (outcome.reason, outcome.rank, outcome.signal) == (Reason.USER_ERROR, 0, "SIGABRT")
        assert "destroy_process_group" in outcome.advice
        assert "import torch.distributed.nn before" in outcome.advice


def test_an_abort_during_a_run_is_a_crash_that_may_be_retried() -> None:
    assert _decide(_exit(0, -signal.SIGABRT)).reason is Reason.KILLED
    raised = Evidence(
        exception="ValueError: lr", traceback="terminate called without an active exception"
    )
    assert _decide(_exit(0, -signal.SIGABRT), evidence={0: raised}).reason is Reason.KILLED


def test_a_stall_names_its_cause_or_the_way_to_find_it() -> None:
    def stalled(*phases: str) -> Outcome:
        views = tuple(
            RankProgress(
                rank, HeartbeatReading(0.0, 0.0, 3, phase, 9, 1, 0), 64.0, StackDump(1, "S")
            )
            for rank, phase in enumerate(phases)
        )
        facts = Facts(ranks=(0, 1), cause="stall", stalled=StallReport(64.0, 60.0, views))
        train = {"task": "causal_lm", "batch": {"size": 4, "micro_size": 2}, "steps": 200}
        spec = read_spec(
            {"name": "slow", "kind": "train", "resources": {"gpus": 2}, "train": train}
        )
        assignment = assignment_of(ranks=2).model_copy(update={"spec": spec})
        return decide(facts, {}, assignment, last_step=3, steps=200)

    named = stalled("communication", "data")
    assert (named.reason, named.rank, named.last_step) == (Reason.STALL, 1, 3)
    assert "rank 1 has been in data for 64 s; rank 0 waits" in named.message
    unnamed = stalled("communication", "communication")
    assert unnamed.rank is None
    assert "train.debug: true" in unnamed.advice


def test_a_run_with_an_abandoned_last_evaluation_has_not_succeeded() -> None:
    stop = StopFile(reason="preempted", grace_seconds=1.0)
    abandoned = Exit(0, 0, 10.0, torn_down=True, early=True)
    outcome = _decide(
        abandoned, _exit(1, 0, torn_down=True), cause="stop", stop=stop, last_step=50, steps=50
    )
    assert outcome.reason is Reason.PREEMPTED


def test_a_stop_reports_ranks_that_remained() -> None:
    exits = (_exit(0, 0, torn_down=True), _exit(1, -signal.SIGKILL, torn_down=True))
    facts = Facts(ranks=(0, 1), exits=list(exits), cause="stop", left_behind=True)
    facts.stop = StopFile(reason="preempted", grace_seconds=5.0)
    outcome = decide(facts, {}, assignment_of(ranks=2), last_step=7, steps=9)
    assert outcome.reason is Reason.PREEMPTED
    assert (
        "rank 0 saved the last completed step and exited, and the ranks in the next step"
        in outcome.message
    )


@pytest.mark.parametrize(
    ("last_step", "words"),
    [(7, "saved the last completed step and exited"), (None, "exited before a step was complete")],
)
def test_a_stop_of_a_single_rank_mentions_no_others(last_step: int | None, words: str) -> None:
    abandoned = Exit(0, 0, 10.0, torn_down=True, early=True)
    facts = Facts(ranks=(0,), exits=[abandoned], cause="stop", left_behind=True)
    facts.stop = StopFile(reason="preempted", grace_seconds=5.0)
    outcome = decide(
        facts,
        {},
        assignment_of(ranks_here=1, world_size=1, devices=[0]),
        last_step=last_step,
        steps=9,
    )
    assert outcome.message.endswith(f"rank 0 {words}")


def test_an_own_error_of_a_peer_precedes_an_exit_with_code_0() -> None:
    outcome = _decide(_exit(1, 0), _exit(0, 1, time=11.0), evidence={0: RAISED})
    assert (outcome.rank, outcome.exception) == (0, "ValueError: lr")


def test_a_kill_by_memory_of_the_node_is_reported_as_such() -> None:
    assert _decide(_exit(0, -signal.SIGKILL), memory_kills=1).reason is Reason.HOST_OUT_OF_MEMORY
    assert _decide(_exit(0, -signal.SIGKILL), memory_kills=0).reason is Reason.KILLED
    assert _decide(_exit(0, -signal.SIGSEGV), memory_kills=1).reason is Reason.KILLED


def test_a_kill_by_memory_that_the_script_went_on_after_is_told() -> None:
    outcome = _decide(_exit(0, 3), memory_kills=1)
    assert outcome.reason is Reason.USER_ERROR
    assert outcome.message.endswith(
        "exited with code 3 on rank 0; the node's memory ran out meanwhile, and the system killed "
        "a process on it"
    )
    assert "more memory" in outcome.advice
    assert "memory" not in _decide(_exit(0, 1), evidence={0: RAISED}, memory_kills=1).message


def test_a_killed_loader_worker_is_a_kill_or_a_memory_failure() -> None:
    evidence = {
        0: Evidence(Reason.KILLED, "a loader worker was killed by signal 9 (Killed)", "tb", 3, 1.0)
    }
    assert _decide(_exit(0, 1), evidence=evidence).reason is Reason.KILLED
    starved = _decide(_exit(0, 1), evidence=evidence, memory_kills=1)
    assert starved.reason is Reason.HOST_OUT_OF_MEMORY
    assert (
        starved.message == "a loader worker of rank 0 was killed because the node's memory ran out"
    )


@pytest.mark.parametrize(("last", "advised"), [(None, False), (1, False), (2, True)])
def test_advice_before_any_update_omits_the_learning_rate(last: int | None, advised: bool) -> None:
    evidence = {0: Evidence(Reason.NON_FINITE, "the loss is nan", "tb", None, 1.0)}
    outcome = _decide(_exit(0, 1), evidence=evidence, last_step=last)
    assert ("learning rate" in outcome.advice) is advised


def test_a_signal_without_a_name_is_reported_by_number() -> None:
    assert _decide(_exit(0, -40)).signal == "SIG40"


@pytest.mark.parametrize(
    ("last", "reason"), [(50, Reason.SUCCEEDED), (49, Reason.CANCELLED), (None, Reason.CANCELLED)]
)
def test_a_stop_does_not_undo_a_run_that_reached_its_last_step(
    last: int | None, reason: Reason
) -> None:
    stop = StopFile(reason="cancelled", grace_seconds=1.0)
    exits = (_exit(0, 0, torn_down=True), _exit(1, 0, torn_down=True))
    assert _decide(*exits, cause="stop", stop=stop, last_step=last, steps=50).reason is reason


@pytest.mark.parametrize(
    ("last", "reason"), [(19, Reason.SHUTDOWN), (None, Reason.SHUTDOWN), (200, Reason.SUCCEEDED)]
)
def test_ranks_that_left_for_an_unseen_stop_have_not_succeeded(
    last: int | None, reason: Reason
) -> None:
    train = {"task": "causal_lm", "batch": {"size": 4, "micro_size": 2}, "steps": 200}
    spec = read_spec({"name": "early", "kind": "train", "resources": {"gpus": 2}, "train": train})
    assignment = assignment_of(ranks=2).model_copy(update={"spec": spec})
    stop = StopFile(reason="shutdown", grace_seconds=5)
    facts = Facts(ranks=(0, 1), exits=[_exit(0, 0), _exit(1, 0)], cause=None, stop=stop)
    assert decide(facts, {}, assignment, last_step=last, steps=200).reason is reason


def test_a_failure_that_came_before_the_stop_is_the_outcome() -> None:
    stop = StopFile(reason="cancelled", grace_seconds=1.0)
    assert _decide(_exit(0, 3), stop=stop).reason is Reason.USER_ERROR


def test_error_files_have_precedence_over_stderr(
    tmp_path: Path,
) -> None:
    (tmp_path / "errors").mkdir()
    stderr = "Traceback (most recent call last):\n  File\nKeyError: 'a'\n"
    assert gather(Untrusted(tmp_path), 0, stderr).exception == "KeyError: 'a'"
    recorded = {
        "message": {
            "message": "OSError: b",
            "extraInfo": {"py_callstack": "stack", "timestamp": "1"},
        }
    }
    (tmp_path / elastic_error_file(0)).write_text(json.dumps(recorded))
    assert gather(Untrusted(tmp_path), 0, stderr)[:3] == (None, "OSError: b", "stack")
    own = {"reason": "stall", "exception": "c", "traceback": "t", "step": 3, "time": 5.0}
    (tmp_path / error_file(0)).write_text(json.dumps(own))
    assert gather(Untrusted(tmp_path), 0, stderr) == Evidence(Reason.STALL, "c", "t", 3, 5.0)


@pytest.mark.parametrize(
    "content", ["", "[]", '{"reason": "no such", "time": "x"}', '{"reason": ["stall"]}', "\xff"]
)
def test_a_damaged_error_file_is_ignored(tmp_path: Path, content: str) -> None:
    (tmp_path / "errors").mkdir()
    (tmp_path / error_file(0)).write_text(content, encoding="latin-1")
    assert gather(Untrusted(tmp_path), 0, "").reason is None


@pytest.mark.parametrize(
    ("text", "exception"),
    [
        ("Traceback (most recent call last):\n  File\nValueError: a\n", "ValueError: a"),
        ("[rank1]: Traceback (most recent call last):\n[rank1]:   File\n[rank1]: my.own.Trouble: b\n", "my.own.Trouble: b"),
        ("Traceback (most recent call last):\n  x\nKeyError: 1\n\nDuring...\n\nTraceback (most recent call last):\n  y\nOSError: 2", "OSError: 2"),
        ("Traceback (most recent call last):\n  File\nAssertionError\n", "AssertionError"),
        ("ValueError: only printed", None),
    ],
)  # fmt: skip
def test_the_last_exception_on_stderr_is_found(text: str, exception: str | None) -> None:
    found = last_printed(text)
    assert (found and found.exception) == exception


def test_the_last_step_is_found_after_lines_without_metrics(tmp_path: Path) -> None:
    spool, files = tmp_path / METRICS, Untrusted(tmp_path)
    assert last_step(files) is None
    spool.parent.mkdir()
    spool.write_text(
        '{"step": 6, "loss": 1.0}\n{"step": 7, "loss": NaN}\nhello\n{"loss": 3}\n{"step": 8, "lo'
    )
    assert last_step(files) == 7


def test_half_a_surrogate_pair_in_an_exception_does_not_hide_it(tmp_path: Path) -> None:
    path = tmp_path / elastic_error_file(0)
    path.parent.mkdir()
    error = ValueError(b"no such image: caf\xe9.png".decode("utf-8", "surrogateescape"))
    path.write_text(json.dumps({"message": {"message": str(error)}}))
    found = gather(Untrusted(tmp_path), 0, "")
    assert Outcome.of(Reason.USER_ERROR, "it raised", exception=found.exception).exception == (
        "no such image: caf\\udce9.png"
    )
    write_error(tmp_path, 0, error, step=3)
    found = gather(Untrusted(tmp_path), 0, "")
    assert (found.reason, found.step) == (Reason.USER_ERROR, 3)
    assert found.exception == "ValueError: no such image: caf\\udce9.png"


def test_long_exceptions_keep_their_start_and_tracebacks_their_end(
    tmp_path: Path,
) -> None:
    long = "cannot run\n" + "x" * 20_000
    write_error(tmp_path, 0, NotImplementedError(long), step=0)
    found = gather(Untrusted(tmp_path), 0, "")
    assert found.exception is not None
    assert found.traceback is not None
    assert found.exception.startswith("NotImplementedError: cannot run\n")
    assert max(len(found.exception), len(found.traceback)) == limits.TRACEBACK_CHARS_MAX
    assert found.traceback.endswith("x")
    assert (
        _decide(_exit(0, 1), evidence={0: found}).message
        == "rank 0 failed: NotImplementedError: cannot run"
    )
    message = {"message": long, "extraInfo": {"py_callstack": long}}
    (tmp_path / error_file(0)).unlink()
    (tmp_path / elastic_error_file(0)).write_text(json.dumps({"message": message}))
    recorded = gather(Untrusted(tmp_path), 0, "")
    assert (recorded.exception or "").startswith("cannot run")
    assert (recorded.traceback or "").startswith("xxx")


def test_a_syntax_error_is_reported_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(SyntaxError) as caught:
        compile("class T(T:\n  pass\n", "/code/my_task.py", "exec")
    write_error(tmp_path, 0, caught.value, step=0)
    outcome = _decide(_exit(0, 1), evidence={0: gather(Untrusted(tmp_path), 0, "")})
    assert outcome.message == "rank 0 failed: SyntaxError: invalid syntax (my_task.py, line 1)"
    assert "class T(T:" in (outcome.traceback or "")


def test_a_failure_of_the_engine_is_reported_without_its_class(
    tmp_path: Path,
) -> None:
    write_error(tmp_path, 0, EngineError(Reason.BAD_SPEC, "toy: weight() returned nan"), step=0)
    outcome = _decide(_exit(0, 1), evidence={0: gather(Untrusted(tmp_path), 0, "")})
    assert (outcome.reason, outcome.message) == (
        Reason.BAD_SPEC,
        "rank 0 failed: toy: weight() returned nan",
    )


def test_the_outcome_carries_the_last_lines_of_the_rank_that_it_names() -> None:
    facts = Facts(
        ranks=(0, 1), exits=[_exit(1, 3), _exit(0, 1, time=11.0, torn_down=True)], cause="failure"
    )
    assignment = assignment_of(ranks=2)
    printed = {0: "peer gone", 1: "loading\ncannot open /data"}
    outcome = decide(
        facts, {0: LOST_PEER}, assignment, last_step=None, steps=None, last_lines=printed
    )
    assert (outcome.rank, outcome.log_excerpt) == (1, "loading\ncannot open /data")


def test_an_outcome_without_a_rank_quotes_no_lines() -> None:
    facts = Facts(ranks=(0, 1), exits=[], cause="fence")
    assignment = assignment_of(ranks=2)
    outcome = decide(facts, {}, assignment, last_step=None, steps=None, last_lines={0: "a", 1: "b"})
    assert outcome.log_excerpt is None


@pytest.mark.parametrize(
    ("printed", "advice"),
    [
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", MICRO_BATCH),
        ("RuntimeError: CUDA error: out of memory", MICRO_BATCH),
        ("RuntimeError: MPS backend out of memory (MPS allocated: 8 GB)", MICRO_BATCH),
        ("ValueError: lr", FIX),
        ("RuntimeError: we are out of memory cards", FIX),
        ("EOFError: EOF when reading a line", "no input"),
        ("EOFError: Ran out of input", FIX),
    ],
)
@pytest.mark.parametrize("place", ["exception", "last lines"])
def test_a_script_is_advised_on_the_cause_that_it_printed(
    printed: str, advice: str, place: str
) -> None:
    evidence = {1: Evidence(exception=printed)} if place == "exception" else {}
    lines = {1: f"Traceback (most recent call last):\n{printed}"} if place == "last lines" else {}
    facts = Facts(ranks=(0, 1), exits=[_exit(1, 1)], cause="failure", stop=None, grace_over=False)
    outcome = decide(
        facts,
        evidence,
        assignment_of(ranks=2),
        last_step=None,
        steps=None,
        last_lines=lines,
    )
    assert outcome.reason is Reason.USER_ERROR
    assert [each for each in (MICRO_BATCH, FIX, "no input") if each in outcome.advice] == [advice]
