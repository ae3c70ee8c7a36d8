"""Signals behind a wrapper's exit code, crashes of native code, and ports in use, by name."""

from __future__ import annotations

import signal
import socket
from pathlib import Path
from typing import Any

import pytest

from lockstep.domain.life.outcomes import RULES, Outcome, Reason
from lockstep.engine.launcher.evidence import Evidence, gather
from lockstep.engine.launcher.facts import Exit, Facts
from lockstep.engine.launcher.outcome import decide
from lockstep.engine.launcher.signals import signal_in
from lockstep.system.untrusted import Untrusted
from tests.harness.attempts import Attempt, assignment_of

NOTHING = Untrusted(Path("/nonexistent"))

WRAPPER = "import os, signal, sys\nos.kill(os.getpid(), int(sys.argv[1]))"


def _decide(*exits: Exit, found: Evidence | None = None, kills: int = 0) -> Outcome:
    facts = Facts(ranks=(0, 1), exits=list(exits), cause="failure")
    assignment = assignment_of(ranks=2)
    evidence = {0: found} if found else {}
    return decide(facts, evidence, assignment, last_step=None, steps=None, memory_kills=kills)


def _code(code: int, **more: Any) -> Exit:
    return Exit(0, code, 10.0, torn_down=False, **more)


@pytest.mark.parametrize("number", [1, 2, 4, 6, 7, 8, 9, 11, 13, 14, 15, 24])
def test_exit_code_128_plus_a_signal_is_that_signal(number: int) -> None:
    direct, wrapped = _decide(_code(-number)), _decide(_code(128 + number))
    assert wrapped.reason is direct.reason is Reason.KILLED
    assert wrapped.signal == direct.signal == signal.Signals(number).name
    assert (direct.exit_code, wrapped.exit_code) == (None, 128 + number)
    assert wrapped.advice == direct.advice
    assert f"exit code {128 + number}" in wrapped.message


@pytest.mark.parametrize("code", [1, 128, 145, 146, 151, 156, 160, 192, 200, 255])
def test_another_exit_code_is_not_a_signal(code: int) -> None:
    outcome = _decide(_code(code), kills=1)
    assert (outcome.reason, outcome.signal) == (Reason.USER_ERROR, None)


def test_an_exit_code_of_the_engine_is_not_a_signal() -> None:
    assert signal_in(137, wrapped=False) is None


def test_a_memory_kill_behind_a_wrapper_is_the_nodes_memory() -> None:
    for code in (137, -9):
        outcome = _decide(_code(code), kills=1)
        assert outcome.reason is Reason.HOST_OUT_OF_MEMORY


@pytest.mark.parametrize(
    "exception_text",
    [
        "subprocess.CalledProcessError: Command 'x' died with <Signals.SIGKILL: 9>.",
        "torch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGKILL",
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Killed. ",
    ],
)
def test_a_child_that_was_killed_counts_behind_its_parents_exception(exception_text: str) -> None:
    found = gather(NOTHING, 0, f"Traceback (most recent call last):\n  File\n{exception_text}")
    assert _decide(_code(1), found=found, kills=1).reason is Reason.HOST_OUT_OF_MEMORY
    assert _decide(_code(1), found=found).reason is Reason.KILLED
    crashed = found._replace(
        exception=exception_text.replace("KILL", "SEGV").replace("Killed", "Bus error")
    )
    assert "sender" not in _decide(_code(1), found=crashed).advice


def test_a_wrapper_that_the_launcher_ended_is_not_the_first_failure() -> None:
    ended = Exit(1, 143, 9.0, torn_down=True)
    assert (_decide(ended, _code(7)).rank, _decide(ended, _code(7)).exit_code) == (0, 7)


def test_a_crash_names_the_native_code() -> None:
    for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS):
        outcome = _decide(_code(-number))
        assert "crashed in native code" in outcome.message
        assert "sender" not in outcome.advice
    assert "PYTHONFAULTHANDLER" in _decide(_code(139)).advice
    assert _decide(_code(-15)).advice == RULES[Reason.KILLED].advice


def test_real_wrappers_pass_the_signal_on(attempt: Attempt) -> None:
    attempt.script(WRAPPER, name="x.py").command("bash", "-c", "python x.py 11; exit $?")
    outcome = attempt.start().outcome()
    assert (outcome.reason, outcome.signal, outcome.exit_code) == (Reason.KILLED, "SIGSEGV", 139)


def test_a_crash_is_placed_by_the_stack_of_faulthandler(attempt: Attempt) -> None:
    source = "import faulthandler\nfaulthandler.enable()\ndef inner():\n    faulthandler._sigsegv()\ninner()"
    outcome = attempt.script(source).start().outcome()
    assert outcome.message.startswith(
        "rank 0 crashed in native code with an invalid memory access (at "
    )
    assert 'train.py", line 4 in inner' in outcome.message


@pytest.mark.parametrize(
    "source",
    [
        "import socket\nsocket.create_server(('127.0.0.1', {port}))",
        "import torch.distributed as d\n"
        "d.init_process_group('gloo', init_method='tcp://127.0.0.1:{port}', rank=0, world_size=1)",
        "import socket\ntry:\n  socket.create_server(('127.0.0.1', {port}))\n"
        "except OSError as e:\n  raise RuntimeError('no server on port {port}') from e",
        "import sys\nsys.exit('ERROR: bind to 127.0.0.1:{port}: address already in use')",
    ],
    ids=["python", "torch", "chained", "message"],
)
def test_a_port_in_use_is_named_and_retried(attempt: Attempt, source: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
        outcome = attempt.script(source.format(port=port)).start().outcome()
    assert outcome.reason is Reason.PORT_IN_USE, outcome
    assert f"port {port}: another process on node-a holds it" in outcome.message
    assert "MASTER_PORT" in outcome.advice


def test_a_port_in_use_that_the_program_handled_is_not_the_cause() -> None:
    text = (
        "port 80: Address already in use; taking another\n"
        "Traceback (most recent call last):\n  File ...\nValueError: lr"
    )
    assert gather(NOTHING, 0, text).reason is None
