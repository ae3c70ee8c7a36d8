"""Ends of a script behind a wrapper: a pipe into tee, torchrun, a shell.

Not here: exit codes of a shell that a signal explains (``tests.engine.launcher.test_signals``).
"""

from __future__ import annotations

import textwrap

import pytest

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.launcher.evidence import Evidence, gather
from lockstep.system.untrusted import Untrusted
from tests.harness.attempts import Attempt, script_spec

TEE = "set -o pipefail; python train.py 2>&1 | tee log.txt"
TAKEN = """
import socket
held = socket.create_server(("127.0.0.1", 0))
socket.create_server(held.getsockname())
"""
WORKER = """
import os, signal
from concurrent.futures import ProcessPoolExecutor
def work(at): os.kill(os.getpid(), signal.SIGKILL)
with ProcessPoolExecutor(1) as pool: list(pool.map(work, [1]))
"""


@pytest.mark.parametrize(
    ("source", "reason", "exception"),
    [
        (TAKEN, Reason.PORT_IN_USE, "OSError: [Errno 98]"),
        ("raise OSError(28, 'No space left on device')", Reason.STORAGE, "OSError: [Errno 28]"),
        (WORKER, Reason.KILLED, "BrokenProcessPool"),
        ("raise ValueError('bad')", Reason.USER_ERROR, "ValueError: bad"),
    ],
)
def test_an_exception_that_a_pipe_moves_to_stdout_counts(
    attempt: Attempt, source: str, reason: Reason, exception: str
) -> None:
    outcome = attempt.script(source).command("bash", "-xc", TEE).start().outcome()
    assert outcome.reason is reason, outcome
    assert exception in (outcome.exception or "")


def test_an_exception_that_was_logged_to_stdout_before_the_end_does_not_count(
    attempt: Attempt,
) -> None:
    source = """
        import sys, traceback
        try:
            raise OSError(28, "No space left on device")
        except OSError:
            traceback.print_exc(file=sys.stdout)
        sys.exit("no data")
        """
    outcome = attempt.script(textwrap.dedent(source)).start().outcome()
    assert (outcome.reason, outcome.exception) == (Reason.USER_ERROR, None)


REPORT = """\
Traceback (most recent call last):
  File "/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
t.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-29_11:12:44
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 27166)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 27166
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-29_11:12:43
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 27167) {name}
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/
============================================================"""
LOG = "E1129 11:12:44.170000 27144 torch/distributed/elastic/api.py:1002] failed (exitcode: 1)\n"
HEAD = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    f()\n'
FULL = f"{HEAD}OSError: [Errno 28] No space left on device\n"
LOST = f"{HEAD}RuntimeError: [/b/gloo/transport/tcp/pair.cc:5] Connection closed by peer\n"


def _gathered(text: str) -> Evidence:
    return gather(Untrusted("/nonexistent"), 0, text)  # type: ignore[arg-type]


def _of(rank: int, text: str) -> str:
    return textwrap.indent(text, f"[rank{rank}]: ")


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (-9, "SIGKILL"),
        (-11, "SIGSEGV"),
        (-6, "SIGABRT"),
        (-7, "SIGBUS"),
        (137, "SIGKILL"),  # of a shell between torchrun and the program
    ],
)
def test_a_signal_that_torchrun_reports_ended_the_rank(code: int, name: str) -> None:
    found = _gathered(LOG + REPORT.format(code=code, name=f" ({name})"))
    assert found.reason is Reason.KILLED
    assert found.brief == f"rank 1 of its torchrun terminated with signal {name}"


def test_the_exception_of_torchruns_first_failed_rank_counts() -> None:
    report = LOG + REPORT.format(code=1, name="")
    for text in (_of(1, FULL) + _of(0, LOST), FULL):
        found = _gathered(text + report)
        assert found.reason is Reason.STORAGE
        assert found.exception == "OSError: [Errno 28] No space left on device"
        assert "ChildFailedError" not in (found.traceback or "")


def test_a_report_of_torchrun_that_a_wrapper_went_on_after_does_not_count() -> None:
    report = REPORT.format(code=-9, name=" (SIGKILL)")
    assert _gathered(f"{report}\nsecond try\nno data").reason is None
    assert _gathered(f"{FULL}epoch 2\n{LOG}{REPORT.format(code=1, name='')}").reason is None


def test_a_rank_that_torchrun_behind_a_pipe_found_killed_is_tried_again(attempt: Attempt) -> None:
    report = REPORT.format(code=-9, name=" (SIGKILL)")
    attempt.script(f"print({report!r})").command("bash", "-c", f"{TEE}; exit 1")
    outcome = attempt.start().outcome()
    assert outcome.reason is Reason.KILLED, outcome
    assert "terminated with signal SIGKILL" in outcome.message


@pytest.mark.parametrize(
    ("code", "on_exit", "exit_code"), [(75, [75], 75), (75, [1], 1), (3, [75], 3)]
)
def test_the_exit_code_of_torchruns_first_failed_rank_counts(
    attempt: Attempt, code: int, on_exit: list[int], exit_code: int
) -> None:
    report = REPORT.format(code=code, name="")
    source = f"import sys\nprint({report!r}, file=sys.stderr)\nsys.exit(1)"
    spec = script_spec(("train.py",), ranks=1, env=None) | {"retry": {"on_exit": on_exit}}
    outcome = attempt.script(source).assign(spec, ranks=1).start().outcome()
    assert (outcome.reason, outcome.exit_code) == (Reason.USER_ERROR, exit_code)
    of_rank = f"a rank of its torchrun exited with code {exit_code}"
    assert (of_rank in outcome.message) == (exit_code != 1)


@pytest.mark.parametrize(
    ("script", "advice"),
    [
        ("#!/usr/bin/env bash\r\necho x\r\n", "Windows line ends"),
        ("no-such-command", "was not found"),
        ("touch x; ./x", "may not be executed"),
        ("timeout 0.1 sleep 9", "timeout"),
        ("exit 3", "last lines of its log"),
    ],
)
def test_the_advice_about_a_script_without_an_exception_names_its_cause(
    attempt: Attempt, script: str, advice: str
) -> None:
    file = attempt.folder / "code/run.sh"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes((script if script.startswith("#!") else f"#!/bin/bash\n{script}\n").encode())
    file.chmod(0o755)
    outcome = attempt.command("./run.sh").start().outcome()
    assert outcome.reason is Reason.USER_ERROR
    assert advice in outcome.advice


@pytest.mark.parametrize(
    "text", ["set -e\r\nif true; then\r\n:\r\nfi\r\n", "set -o pipefail\r\n", "\r\nexit 1\r\n"]
)
def test_a_shell_that_reads_windows_line_ends_is_explained(attempt: Attempt, text: str) -> None:
    file = attempt.folder / "code/run.sh"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(text.encode())
    outcome = attempt.command("bash", "run.sh").start().outcome()
    assert "Windows line ends" in outcome.advice, outcome


def test_an_interrupt_is_the_signal_that_it_is_without_lockstep(attempt: Attempt) -> None:
    outcome = attempt.script("raise KeyboardInterrupt").start().outcome()
    assert (outcome.reason, outcome.signal) == (Reason.KILLED, "SIGINT")
