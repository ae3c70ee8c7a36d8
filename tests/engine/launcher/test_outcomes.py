"""Ends of attempts with real launchers and ranks: the outcome names the first cause, and no process
remains.

Not here: stops, fences and kills (``tests.engine.launcher.test_kills``), logs
(``tests.engine.launcher.output.test_logs``).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.domain import limits
from lockstep.domain.life.attempt import CODE
from lockstep.domain.life.outcomes import Reason
from tests.harness.attempts import Attempt, script_spec
from tests.harness.processes import alive, free_port, until

GLOO = textwrap.dedent(
    """
    import torch, torch.distributed as dist
    dist.init_process_group("gloo")
    while True:
        dist.all_reduce(torch.ones(4))
        print("reduced", flush=True)
    """
)


def test_a_script_that_ends_well_succeeds(attempt: Attempt) -> None:
    outcome = attempt.script("print('done')").start().outcome()
    assert outcome.reason is Reason.SUCCEEDED
    assert outcome.node == "node-a"


def test_nothing_temporary_is_left_in_the_folder(attempt: Attempt) -> None:
    attempt.script("print('done')", ranks=2).start().outcome()
    names = {path.name for path in attempt.folder.iterdir()}
    expected = (
        "assignment.json code errors launcher.json launcher.log logs ranks.json result.json spool"
    )
    assert names == set(expected.split())


def test_an_exit_code_is_reported_with_its_rank(attempt: Attempt) -> None:
    source = "import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(3)\ntime.sleep(600)"
    outcome = attempt.script(source, ranks=2).start().outcome()
    assert outcome.reason is Reason.USER_ERROR
    assert (outcome.rank, outcome.exit_code) == (1, 3)
    assert outcome.message == "script exited with code 3 on rank 1"


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        ("exit 0", 0, "rank 1 exited with code 0 before the others had finished, so rank 0 failed"),
        ("exit 75", 75, "script exited with code 75 on rank 1"),
        ("kill -SEGV $$", None, "rank 1 crashed in native code with an invalid memory access"),
        ("kill -TERM $$", None, "rank 1 was killed by SIGTERM"),
    ],
)
def test_a_rank_that_ends_after_those_that_lost_it_is_named(
    attempt: Attempt, end: str, code: int | None, message: str
) -> None:
    """Its program has ended before them, and its shell has more to do."""
    source = f"""
        if [ $RANK = 0 ]; then
            echo $$ > written; mv written lost
            printf 'Traceback (most recent call last):\\n  File "a", line 1, in f\\n' >&2
            echo "RuntimeError: [gloo/transport] Connection closed by peer" >&2
            exit 1
        fi
        until [ -e lost ]; do sleep 0.01; done
        while kill -0 $(cat lost) 2>/dev/null; do sleep 0.01; done
        {end}
    """
    (attempt.folder / CODE).mkdir()
    attempt.command("bash", "-c", textwrap.dedent(source), ranks=2)
    outcome = attempt.start(settle_seconds=50.0, failure_grace_seconds=55.0).outcome()
    assert (outcome.rank, outcome.exit_code) == (1, code)
    assert outcome.message.startswith(message)


def test_an_exit_code_of_the_spec_is_no_signal(attempt: Attempt) -> None:
    spec = script_spec(("bash", "-c", "exit 130"), ranks=1, env=None)
    attempt.assign({**spec, "retry": {"on_exit": [130]}}, ranks=1)
    outcome = attempt.start().outcome()
    assert (outcome.reason, outcome.exit_code, outcome.signal) == (Reason.USER_ERROR, 130, None)
    assert outcome.message == "script exited with code 130 on rank 0"


def test_the_last_lines_of_either_stream_are_in_the_outcome_and_bounded(attempt: Attempt) -> None:
    source = """
        import sys
        for number in range(100):
            print(f"line {number} " + "x" * 2_000, flush=True)
        print("no space on /data", file=sys.stderr, flush=True)
        sys.exit(3)
    """
    outcome = attempt.script(textwrap.dedent(source)).start().outcome()
    assert outcome.log_excerpt is not None
    lines = outcome.log_excerpt.splitlines()
    assert "no space on /data" in lines
    assert any(line.startswith("line 99 ") for line in lines)
    assert len(lines) <= limits.EXCERPT_LINES_MAX
    assert len(outcome.log_excerpt) <= limits.EXCERPT_CHARS_MAX


def test_the_exception_of_a_script_is_read_from_its_stderr(attempt: Attempt) -> None:
    outcome = (
        attempt.script("def inner():\n    raise ValueError('lr must be positive')\ninner()")
        .start()
        .outcome()
    )
    assert outcome.reason is Reason.USER_ERROR
    assert outcome.exception == "ValueError: lr must be positive"
    assert outcome.traceback is not None
    assert "in inner" in outcome.traceback


def test_the_engines_error_file_decides_reason_and_exception(attempt: Attempt) -> None:
    source = """
        import json, os, sys, time
        path = os.path.join(os.environ["FOLDER"], "errors", "rank0.json")
        json.dump({"reason": "non_finite", "exception": "loss is NaN", "traceback": "here", "step": 12,
                   "time": time.time()}, open(path, "w"))
        sys.exit(1)
        """
    attempt.script(textwrap.dedent(source), env={"FOLDER": str(attempt.folder)})
    outcome = attempt.start().outcome()
    assert outcome.reason is Reason.NON_FINITE
    assert (outcome.exception, outcome.traceback, outcome.last_step) == ("loss is NaN", "here", 12)


def test_a_rank_ended_by_a_signal_is_reported_by_the_signals_name(attempt: Attempt) -> None:
    outcome = (
        attempt.script("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)").start().outcome()
    )
    assert outcome.reason is Reason.KILLED
    assert (outcome.rank, outcome.signal, outcome.exit_code) == (0, "SIGSEGV", None)


def test_the_last_step_comes_from_the_metrics_spool(attempt: Attempt) -> None:
    source = """
        import json, os
        with open(os.environ["LOCKSTEP_METRICS"], "a") as metrics:
            for step in (1, 2, 41):
                print(json.dumps({"step": step, "loss": 2.0}), file=metrics)
            metrics.write('{"step": 4')
        """
    assert attempt.script(textwrap.dedent(source)).start().outcome().last_step == 41


def test_a_killed_rank_takes_its_gang_down_and_is_named(attempt: Attempt) -> None:
    attempt.script("import time\nprint('up', flush=True)\ntime.sleep(600)", ranks=2).start()
    ranks = attempt.ranks()
    attempt.saw("up")
    os.kill(ranks[1], signal.SIGKILL)
    until(lambda: not any(map(alive, ranks.values())), seconds=60, what="the gang is down")
    outcome = attempt.outcome()
    assert outcome.reason is Reason.KILLED
    assert (outcome.rank, outcome.signal) == (1, "SIGKILL")


def test_the_rank_that_raised_is_named_instead_of_its_peer(attempt: Attempt) -> None:
    source = GLOO.replace(
        "while True:", "if dist.get_rank() == 1: raise KeyError('layer.3')\nwhile True:"
    )
    outcome = attempt.script(source, ranks=2).start().outcome()
    assert outcome.reason is Reason.USER_ERROR
    assert (outcome.rank, outcome.exception) == (1, "KeyError: 'layer.3'")


@pytest.mark.parametrize("code", [0, 9, 75])
def test_a_rank_that_leaves_at_sigterm_is_not_the_one_that_failed(
    attempt: Attempt, code: int
) -> None:
    """Both are found dead together: the watch looks after the failed rank's peer has left."""
    source = f"""
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: os._exit({code}))
        both = [f"up{{rank}}" for rank in range(2)]
        open(f"up{{os.environ['RANK']}}", "w").close()
        while not all(map(os.path.exists, both)):
            time.sleep(0.01)
        if os.environ["RANK"] == "1":
            raise ValueError("a wrong label")
        time.sleep(600)
        """
    outcome = attempt.script(textwrap.dedent(source), ranks=2).start(watch_seconds=1.0).outcome()
    assert (outcome.reason, outcome.rank) == (Reason.USER_ERROR, 1)
    assert "ValueError: a wrong label" in (outcome.exception or "")


def test_a_rank_that_ignores_sigterm_is_killed_with_its_gang(attempt: Attempt) -> None:
    source = """
        import os, signal, sys, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if os.environ["RANK"] == "0":
            print("deaf", flush=True)
            time.sleep(600)
        while not os.path.exists("go"):
            time.sleep(0.02)
        sys.exit(9)
        """
    attempt.script(textwrap.dedent(source), ranks=2).start()
    ranks = attempt.ranks()
    attempt.saw("deaf")
    (attempt.folder / "code" / "go").touch()
    until(lambda: not alive(ranks[0]), seconds=60, what="rank 0 is gone")
    assert attempt.outcome().exit_code == 9


def test_a_missing_program_is_named(attempt: Attempt) -> None:
    outcome = attempt.command("no-such-program", "--lr", "1").start().outcome()
    assert outcome.reason is Reason.BAD_SPEC
    assert "'no-such-program' was not found on PATH" in outcome.message


def test_a_missing_script_is_named(attempt: Attempt) -> None:
    outcome = attempt.command("trian.py").start().outcome()
    assert outcome.reason is Reason.BAD_SPEC
    assert "'trian.py' was not found" in outcome.message


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def test_one_node_starts_although_its_rendezvous_port_is_taken(
    attempt: Attempt, taken_port: int
) -> None:
    outcome = attempt.command("true", rendezvous_port=taken_port).start().outcome()
    assert outcome.reason is Reason.SUCCEEDED


def test_a_taken_port_of_node_rank_0_is_named_at_once(attempt: Attempt, taken_port: int) -> None:
    outcome = (
        attempt.command("true", rendezvous_port=taken_port, node_count=2, world_size=2)
        .start()
        .outcome()
    )
    assert (
        outcome.reason is Reason.LAUNCH_FAILED
    )  # a cause: the other nodes, which only wait for this one, name none
    assert f"127.0.0.1:{taken_port}" in outcome.message


@pytest.mark.parametrize("node_rank", [0, 1])
def test_missing_peers_are_a_network_failure_that_names_them(
    attempt: Attempt, node_rank: int
) -> None:
    gang = {"node_rank": node_rank, "node_count": 2, "world_size": 2}
    outcome = attempt.command("true", **gang).start(rendezvous_seconds=2.0).outcome()
    assert outcome.reason is Reason.NETWORK
    assert ("node rank 1 did not connect" if node_rank == 0 else "node rank 0") in outcome.message


@pytest.mark.parametrize("listening", [False, True])
def test_a_stop_ends_the_wait_for_the_other_nodes_at_once(
    attempt: Attempt, taken_port: int, listening: bool
) -> None:
    """Also if another program listens on the port, for which torch would wait without an end."""
    port = taken_port if listening else free_port()
    attempt.command("true", node_rank=1, node_count=2, world_size=2, rendezvous_port=port).start()
    until(
        (attempt.folder / "launch/command.json").exists,
        seconds=60,
        what="the launcher is about to meet",
    )
    attempt.stop("cancelled", grace_seconds=60.0)
    assert attempt.outcome(seconds=60).reason is Reason.CANCELLED


def test_two_nodes_form_one_gang(attempt: Attempt, tmp_path: Path) -> None:
    other = Attempt(tmp_path / "other")
    other.folder.mkdir()
    port = free_port()
    source = GLOO.replace("while True:", "for _ in range(2):")
    # Without destroy_process_group torch 2.13 on Gloo sometimes aborts at the end of the
    # interpreter.
    source += "print(dist.get_rank(), dist.get_world_size())\ndist.destroy_process_group()\n"
    for node_rank, node in enumerate((attempt, other)):
        gang = {"node_rank": node_rank, "node_count": 2, "world_size": 2, "rendezvous_port": port}
        node.script(source, **gang).start()
    try:
        assert [node.outcome().reason for node in (attempt, other)] == [Reason.SUCCEEDED] * 2
        assert other.lines(rank=1)[-1] == "1 2"
    finally:
        other.end()


def test_an_assignment_that_cannot_be_read_still_gets_a_result(attempt: Attempt) -> None:
    attempt.write("assignment.json", json.dumps({"job_id": "x"}))
    outcome = attempt.start().outcome()
    assert outcome.reason is Reason.LAUNCH_FAILED
    assert "assignment.json" in outcome.message
