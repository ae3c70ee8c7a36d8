"""The exception that ended a script, among those that it handled.

Not here: the verdict among several ranks (``tests.engine.launcher.test_verdict``).
"""

from __future__ import annotations

import textwrap

import pytest

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.launcher.evidence import Evidence, gather, may_have_raised
from lockstep.system.untrusted import Untrusted
from tests.harness.attempts import Attempt

NO_SPACE = "[Errno 28] No space left on device"
FULL = "OSError(28, 'No space left on device')"
LOGGED = f"""
import logging, os, signal, sys
try:
    raise {FULL}
except OSError:
    logging.exception("no checkpoint this time")
"""
HEAD = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\n    f()\n'
DISK = f"{HEAD}OSError: {NO_SPACE}"


@pytest.mark.parametrize(
    ("end", "reason", "exception"),
    [
        ("sys.exit(75)", Reason.USER_ERROR, None),
        ("os.kill(os.getpid(), signal.SIGSEGV)", Reason.KILLED, None),
        ("print('epoch 2', file=sys.stderr)\nsys.exit('no data')", Reason.USER_ERROR, None),
        ("sys.exit(1)", Reason.STORAGE, f"OSError: {NO_SPACE}"),
        ("print('epoch 2', file=sys.stderr)\nraise KeyError(3)", Reason.USER_ERROR, "KeyError: 3"),
        (f"try:\n  raise {FULL}\nfinally:\n  raise ValueError(4)", Reason.STORAGE, "ValueError: 4"),
        ("raise ExceptionGroup('two', [ValueError(1)])", Reason.USER_ERROR,
         "ExceptionGroup: two (1 sub-exception)"),
        ("import struct\nstruct.unpack('I', b'')", Reason.USER_ERROR,
         "struct.error: unpack requires a buffer of 4 bytes"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["train.py", "python -S train.py", "sh -c"])
def test_only_the_exception_that_ended_a_script_counts(
    attempt: Attempt, command: str, end: str, reason: Reason, exception: str | None
) -> None:
    _check(attempt, command, f"{LOGGED}\n{end}", reason, exception)


def _check(
    attempt: Attempt, command: str, source: str, reason: Reason, exception: str | None
) -> None:
    argv = [*command.split(), "python train.py; exit $?"] if command == "sh -c" else command.split()
    outcome = attempt.script(source).command(*argv).start().outcome()
    assert (outcome.reason, outcome.exception) == (reason, exception), outcome


@pytest.mark.parametrize("command", ["train.py", "sh -c"])
def test_an_exception_of_several_lines_is_whole(attempt: Attempt, command: str) -> None:
    end = "raise ValueError('a\\nb\\n\\nc')"
    _check(attempt, command, LOGGED + end, Reason.USER_ERROR, "ValueError: a\nb\n\nc")


def test_what_a_script_prints_at_its_exit_does_not_hide_its_exception(attempt: Attempt) -> None:
    source = "import atexit, sys\natexit.register(print, 'bye', file=sys.stderr)\nraise " + FULL
    _check(attempt, "train.py", source, Reason.STORAGE, f"OSError: {NO_SPACE}")


def test_an_exception_of_a_child_that_a_shell_went_on_after_is_not_the_end(
    attempt: Attempt,
) -> None:
    source = f"raise {FULL}"
    attempt.script(source).command("sh", "-c", "python train.py; echo no data >&2; exit 1")
    outcome = attempt.start().outcome()
    assert (outcome.reason, outcome.exception) == (Reason.USER_ERROR, None)


def test_an_exception_of_a_child_in_a_session_of_its_own_is_not_the_end(attempt: Attempt) -> None:
    source = f"""
        import subprocess, sys
        subprocess.run([sys.executable, "-c", "raise {FULL}"], start_new_session=True)
        sys.exit("no data")
        """
    outcome = attempt.script(textwrap.dedent(source)).start().outcome()
    assert (outcome.reason, outcome.exception) == (Reason.USER_ERROR, None)


def _printed(text: str, *, raised: bool = True) -> Evidence:
    return gather(Untrusted("/nonexistent"), 0, text, raised=raised)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "after",
    [
        "",
        "\n[rank0]:[W1128 14:05:59.1 ProcessGroupNCCL.cpp:1250] Warning: destroy_process_group()",
        "\nterminate called without an active exception",
        "\nException ignored in: <function F.__del__ at 0x7f>\n" + HEAD + "TypeError: 'None'",
        "\n    a note\n 12%|#     | 3/25 [00:00<00:01]\nmake: *** [Makefile:2: train] Error 1",
        "\nnode-a:77:81 [0] NCCL INFO comm 0x1 rank 0 - Abort COMPLETE",
    ],
)
@pytest.mark.parametrize("prefix", ["", "[rank3]: "])
def test_lines_at_the_end_of_a_process_do_not_hide_its_exception(after: str, prefix: str) -> None:
    found = _printed(textwrap.indent(DISK, prefix, lambda _: True) + after)
    assert found.reason is Reason.STORAGE
    assert found.exception == f"OSError: {NO_SPACE}"


def test_lines_of_a_program_that_went_on_hide_the_exception_that_it_logged() -> None:
    port = DISK.replace("28] No space left on device", "98] Address already in use")
    for text in (f"{DISK}\nepoch 2", f"{port}\ntaking port 81\nstep\nstep\nno data", port[:60]):
        found = _printed(text)
        assert (found.reason, found.exception) == (None, None)
        assert found.traceback is not None


def test_only_exit_code_1_and_ends_by_the_launcher_leave_an_exception() -> None:
    for code, tail, torn_down, raised in [
        (1, "", False, True),
        (75, "", False, False),
        (-11, "", False, False),
        (-15, "", True, True),
        (143, "", True, True),
        (75, "", True, False),
        (-6, "terminate called without an active exception", False, True),
        (-6, "free(): invalid pointer", False, False),
    ]:
        assert may_have_raised(code, tail, torn_down=torn_down) is raised


@pytest.mark.parametrize(
    ("said", "is_peer"),
    [
        ("ConnectionResetError: [Errno 104] Connection reset by peer", False),
        ("requests.exceptions.ConnectionError: ('Connection aborted.', ConnectionResetError(104, "
         "'Connection reset by peer'))", False),
        ("RuntimeError: download failed: Connection reset by peer", False),
        ("RuntimeError: Connection reset by peer", True),
        ("torch.distributed.DistNetworkError: The client socket has failed", True),
        ("DistStoreError: Socket Timeout", True),
        ("RuntimeError: [/b/gloo/transport/tcp/pair.cc:5] Connection closed by peer [::1]:4", True),
        ("torch.distributed.DistBackendError: NCCL error: ncclRemoteError", True),
    ],
)  # fmt: skip
def test_only_an_error_of_torchs_own_connections_is_a_lost_peer(said: str, is_peer: bool) -> None:
    assert _printed(f"{HEAD}{said}").blames_peer is is_peer
    during = "During handling of the above exception, another exception occurred:"
    wrapped = f"{HEAD}{said}\n\n{during}\n\n{HEAD}my.Error"
    assert _printed(wrapped).blames_peer is is_peer


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            """
            from torch.utils.data import DataLoader
            class Data:
                def __len__(self): return 8
                def __getitem__(self, at): os.kill(os.getpid(), signal.SIGKILL)
            list(DataLoader(Data(), num_workers=1))
            """,
            "is killed by signal: Killed",
        ),
        (
            """
            from concurrent.futures import ProcessPoolExecutor
            def work(at): os.kill(os.getpid(), signal.SIGKILL)
            with ProcessPoolExecutor(1) as pool: list(pool.map(work, [1]))
            """,
            "was terminated abruptly",
        ),
        (
            """
            from joblib import Parallel, delayed
            def work(): os.kill(os.getpid(), signal.SIGKILL)
            Parallel(2)(delayed(work)() for _ in range(2))
            """,
            "was unexpectedly terminated",
        ),
    ],
)
def test_a_killed_worker_is_found_along_the_chain(attempt: Attempt, source: str, said: str) -> None:
    source = "import os, signal\n" + textwrap.dedent(source)
    outcome = attempt.script(source).start().outcome(seconds=120)
    assert outcome.reason is Reason.KILLED, outcome
    assert said in outcome.message
