"""After stops, fences, stalls and kills, no process of the attempt remains.

Not here: ends that the ranks cause themselves (``tests.engine.launcher.test_outcomes``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from lockstep.domain.life.attempt import EVENTS
from lockstep.domain.life.outcomes import Reason
from lockstep.engine.launcher.start import processes
from tests.harness.attempts import Attempt, script_spec
from tests.harness.processes import alive, until

WAIT = "import time\nprint('up', flush=True)\ntime.sleep(600)\n"

DEAF = textwrap.dedent(
    """
    import signal, time
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("up", flush=True)
    time.sleep(600)
    """
)

SAVING = textwrap.dedent(
    """
    import json, os, signal, time
    def save(number, frame):
        with open(os.environ["LOCKSTEP_STOP"]) as file:
            notice = json.load(file)
        left = notice["deadline"] - time.time()
        print("saved", signal.Signals(number).name, notice["reason"], round(left, -1), flush=True)
        raise SystemExit(0)
    signal.signal(signal.SIGUSR2, save)
    print("up", os.path.exists(os.environ["LOCKSTEP_STOP"]), flush=True)
    time.sleep(600)
    """
)

HIDING = textwrap.dedent(
    """
    import os, signal, sys, time
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pid = os.fork()
        if pid:
            os.write(write_end, b"%d\\n" % pid)
            os._exit(0)
        os.environ.clear()
        time.sleep(600)
    print("hidden", os.read(read_end, 100).decode().strip(), flush=True)
    """
)


def _hidden_pid(attempt: Attempt) -> int:
    attempt.saw("hidden")
    return int(next(line for line in attempt.lines() if line.startswith("hidden")).split()[1])


def test_a_daemon_that_ignores_sigterm_is_gone_after_success(
    attempt: Attempt,
) -> None:
    outcome = attempt.script(HIDING).start().outcome()
    assert outcome.reason is Reason.SUCCEEDED
    assert not alive(_hidden_pid(attempt))


def test_a_daemon_that_ignores_sigterm_is_gone_after_a_stop(
    attempt: Attempt,
) -> None:
    attempt.script(HIDING + "time.sleep(600)").start()
    pid = _hidden_pid(attempt)
    attempt.stop("cancelled", grace_seconds=0.5)
    outcome = attempt.outcome()
    assert outcome.reason is Reason.CANCELLED
    assert not alive(pid)


def test_a_script_reads_why_and_until_when_at_the_signal_of_its_choice(attempt: Attempt) -> None:
    attempt.script(SAVING)
    spec = {**script_spec(("train.py",), ranks=2, env=None), "stop_signal": "USR2"}
    attempt.assign(spec, ranks=2).start()
    until(lambda: all("up False" in attempt.lines(rank) for rank in (0, 1)), what="both are up")
    attempt.stop("timed_out", grace_seconds=60)
    assert attempt.outcome().reason is Reason.TIMED_OUT
    for rank in (0, 1):
        assert attempt.lines(rank)[-1] == "saved SIGUSR2 timed_out 60.0"


@pytest.mark.parametrize(("sleeps", "is_named"), [("600", True), ("0.05", False)])
def test_programs_that_a_script_leaves_running_are_named(
    attempt: Attempt, sleeps: str, is_named: bool
) -> None:
    attempt.command("sh", "-c", f"sleep {sleeps} >/dev/null 2>&1 & echo up").start()
    assert attempt.outcome().reason is Reason.SUCCEEDED
    events = (attempt.folder / EVENTS).read_text() if (attempt.folder / EVENTS).exists() else ""
    assert ("left running were killed 0.5 s after its end: sleep" in events) is is_named


def test_ranks_die_with_their_launcher(attempt: Attempt) -> None:
    attempt.script(DEAF, ranks=2).start()
    ranks = attempt.ranks()
    attempt.saw("up")
    assert attempt.process is not None
    attempt.process.kill()
    until(lambda: not any(map(alive, ranks.values())), seconds=60, what="the ranks are gone")


def test_ranks_are_killed_at_the_fence_without_any_agent(attempt: Attempt) -> None:
    attempt.fence(600)
    attempt.script(DEAF, ranks=2).start()
    ranks = attempt.ranks()
    attempt.saw("up")
    attempt.fence(0.3)
    until(lambda: not any(map(alive, ranks.values())), seconds=60, what="the ranks are gone")
    assert attempt.outcome().reason is Reason.CUT_OFF


def test_a_launcher_frozen_past_its_fence_kills_first(
    attempt: Attempt,
) -> None:
    source = WAIT.replace("time.sleep(600)", "time.sleep(20)")
    attempt.script(source).start()
    attempt.ranks()
    attempt.saw("up")
    assert attempt.process is not None
    attempt.process.send_signal(signal.SIGSTOP)
    attempt.fence(-1.0)
    attempt.process.send_signal(signal.SIGCONT)
    assert attempt.outcome().reason is Reason.CUT_OFF


def test_a_hanging_start_of_ranks_does_not_outlive_the_fence(attempt: Attempt) -> None:
    attempt.fence(0.5)
    assert attempt.script(WAIT).start(hanging=True).outcome(seconds=60).reason is Reason.CUT_OFF


def test_a_launcher_that_cannot_write_its_result_ends(attempt: Attempt) -> None:
    (attempt.folder / "result.json").mkdir()
    attempt.fence(0.5)
    attempt.script(WAIT).start(hanging=True)
    until(attempt.process_ended, seconds=60, what="the launcher has ended")


def test_a_launcher_that_cannot_write_the_stop_file_stops(attempt: Attempt) -> None:
    attempt.script(WAIT).start()
    attempt.saw("up")
    (attempt.folder / "stop").mkdir()
    assert attempt.process is not None
    attempt.process.send_signal(signal.SIGTERM)
    assert attempt.outcome(seconds=60).reason is Reason.SHUTDOWN


def test_a_process_that_cannot_be_killed_does_not_protect_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed = []

    def kill(pid: int, _number: int) -> None:
        if pid == 11:
            raise PermissionError(1, "Operation not permitted")
        killed.append(pid)

    monkeypatch.setattr(processes, "living_descendants", lambda _root: [11, 12])
    monkeypatch.setattr(processes.os, "kill", kill)
    processes.kill_descendants()
    assert killed == [12]


def test_after_its_fence_an_attempt_starts_no_rank(attempt: Attempt) -> None:
    attempt.fence(-1.0)
    outcome = attempt.script("open('started', 'w')").start().outcome()
    assert outcome.reason is Reason.CUT_OFF
    assert not (attempt.folder / "code" / "started").exists()


def test_a_script_gets_sigterm_and_its_grace_when_it_is_stopped(attempt: Attempt) -> None:
    source = """
        import signal, sys, time
        def save(*_):
            time.sleep(0.3)
            print("saved", flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("up", flush=True)
        time.sleep(600)
        """
    attempt.script(textwrap.dedent(source)).start()
    attempt.saw("up")
    attempt.stop("preempted", grace_seconds=10.0)
    outcome = attempt.outcome()
    assert outcome.reason is Reason.PREEMPTED
    assert "in time" in outcome.message
    assert attempt.lines() == ["up", "saved"]


def test_a_save_that_fails_at_a_stop_is_named(attempt: Attempt) -> None:
    source = """
        import signal, time
        def save(number, frame):
            raise OSError(28, "No space left on device")
        signal.signal(signal.SIGTERM, save)
        print("up", flush=True)
        time.sleep(600)
        """
    attempt.script(textwrap.dedent(source)).start().saw("up")
    attempt.stop("paused", grace_seconds=60)
    outcome = attempt.outcome()
    assert outcome.reason is Reason.PAUSED
    assert "but rank 0 failed: OSError: [Errno 28] No space left" in outcome.message
    assert (outcome.exception or "").startswith("OSError: [Errno 28]")


@pytest.mark.parametrize(("seconds", "grace"), [(1.5, 60.0), (600.0, 1.0)])
def test_a_program_of_a_shell_gets_the_grace_of_a_stop(
    attempt: Attempt, seconds: float, grace: float
) -> None:
    """The shell ends at once."""
    program = f"""
        import signal, sys, time
        def save(number, frame):
            time.sleep({seconds})
            print("saved", flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("up", flush=True)
        time.sleep(600)
        """
    attempt.script(textwrap.dedent(program)).command("bash", "-c", "python train.py; true").start()
    attempt.saw("up")
    attempt.stop("cancelled", grace_seconds=grace)
    outcome = attempt.outcome()
    is_saved = seconds < grace
    assert ("saved" in attempt.lines()) is is_saved
    assert ("the ranks ended in time" in outcome.message) is is_saved, outcome.message


def test_a_process_that_ignores_the_stop_is_killed(attempt: Attempt) -> None:
    attempt.script(DEAF, ranks=2).start()
    ranks = attempt.ranks()
    attempt.saw("up")
    asked = time.monotonic()
    attempt.stop("timed_out", grace_seconds=0.5)
    until(lambda: not any(map(alive, ranks.values())), seconds=60, what="the ranks are gone")
    assert time.monotonic() - asked >= 0.5
    outcome = attempt.outcome()
    assert outcome.reason is Reason.TIMED_OUT
    assert "killed after the grace" in outcome.message


def test_a_stop_that_replaces_another_ends_its_grace(attempt: Attempt) -> None:
    attempt.script(DEAF, ranks=2).start()
    ranks = attempt.ranks()
    attempt.saw("up")
    attempt.stop("cancelled", grace_seconds=300.0)
    attempt.saw("grace period of 300 s")
    attempt.stop("cancelled", grace_seconds=0.0)
    until(lambda: not any(map(alive, ranks.values())), seconds=60, what="the ranks are gone")
    assert attempt.outcome().reason is Reason.CANCELLED


def test_a_stop_before_the_start_prevents_it(attempt: Attempt) -> None:
    attempt.stop("cancelled", grace_seconds=5.0)
    outcome = attempt.script("open('started', 'w')").start().outcome()
    assert outcome.reason is Reason.CANCELLED
    assert not (attempt.folder / "code" / "started").exists()


def test_sigterm_to_the_launcher_is_a_shutdown_for_train_ranks(attempt: Attempt) -> None:
    attempt.script(WAIT).start()
    attempt.ranks()
    assert attempt.process is not None
    attempt.process.terminate()
    assert attempt.outcome().reason is Reason.SHUTDOWN
    assert (attempt.folder / "stop").exists()


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_signals_of_a_closed_terminal_do_not_end_training(
    attempt: Attempt, number: signal.Signals
) -> None:
    source = (
        "import os, time\nprint('up', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)"
    )
    attempt.script(source).start()
    attempt.saw("up")
    assert attempt.process is not None
    attempt.process.send_signal(number)
    (attempt.folder / "code" / "go").touch()
    assert attempt.outcome().reason is Reason.SUCCEEDED


def test_ranks_that_do_not_exit_after_another_are_an_exit_stall(attempt: Attempt) -> None:
    source = "import os, time\nif os.environ['RANK'] == '1': time.sleep(600)"
    outcome = attempt.script(source, ranks=2, exit_stall_seconds=0.5).start().outcome()
    assert outcome.reason is Reason.EXIT_STALL
    assert outcome.rank == 1
    assert "rank 0 exited with code 0" in outcome.message


def test_a_script_that_had_ended_before_the_stop_has_succeeded(attempt: Attempt) -> None:
    """A child holds the pipe, so that the launcher still runs when the stop comes."""
    source = (
        "import subprocess, os\nos.set_inheritable(1, True)\nsubprocess.Popen(['sleep', '600'])"
    )
    attempt.script(source).start(linger_seconds=1.0)
    (rank,) = attempt.ranks().values()
    until(lambda: not alive(rank), seconds=60, what="the rank has ended")
    attempt.stop("cancelled", grace_seconds=5.0)
    assert attempt.outcome().reason is Reason.SUCCEEDED


def test_a_process_exists_as_long_as_any_of_its_threads() -> None:
    leave = 60 if os.uname().machine == "x86_64" else 93  # the system call that ends one thread
    source = (
        f"import ctypes, threading; threading.Thread(target=input).start(); "
        f"ctypes.CDLL(None).syscall({leave}, 0)"
    )
    with subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE) as started:
        try:
            until(
                lambda: processes.state_of(started.pid) == "Z",
                seconds=60,
                what="the end of its first thread",
            )
            assert started.pid in processes.living_descendants(os.getpid())
        finally:
            started.kill()
    assert started.pid not in processes.living_descendants(os.getpid())


def test_the_end_or_reaping_of_one_child_ends_the_wait() -> None:
    living = subprocess.Popen(["sleep", "600"])
    ending = subprocess.Popen(["sleep", "600"])
    try:
        began = time.monotonic()
        processes.wait_for_an_end([living.pid, ending.pid], 0.1)
        assert time.monotonic() - began >= 0.1
        threading.Timer(0.05, ending.kill).start()
        began = time.monotonic()
        processes.wait_for_an_end([living.pid, ending.pid], 600.0)
        ending.wait()
        processes.wait_for_an_end([living.pid, ending.pid], 600.0)
        assert time.monotonic() - began < 200.0
    finally:
        for process in (living, ending):
            process.kill()
            process.wait()
