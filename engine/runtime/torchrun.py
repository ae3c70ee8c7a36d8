"""Duties of a rank under torchrun: end with it, stop at its SIGTERM, and report its failure.

Under the service the launcher does all of this (``engine.launcher``), and this module is not used.

Not here: the stop itself (``engine.runtime.stopping``).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

from lockstep.system import processes

TERMINATED: Final = 128 + signal.SIGTERM
"""Exit code of a run that SIGTERM ended, as a shell reports it."""
GRACE_SECONDS: Final = 30.0
"""Time between SIGTERM and SIGKILL of torchrun (``--shutdown-timeout``)."""
_ONE_REQUEST_SECONDS: Final = 1.0
"""Signals so close together are one request: systemd and Slurm send SIGTERM to all processes of a
job, and torchrun sends its own to the ranks."""


def die_with_torchrun(environ: Mapping[str, str]) -> None:
    """Let the kernel end this rank when its torchrun dies; leave at once if it is gone already.

    A rank that is started by itself (a shell, ``nohup``) outlives its parent.
    """
    if "TORCHELASTIC_RUN_ID" not in environ:
        return
    processes.die_with_parent()
    if not _below_torch(os.getppid()):
        sys.stderr.write("torchrun has ended, so this rank exits\n")
        os._exit(1)


def _below_torch(pid: int) -> bool:
    """Return whether a process or one of its ancestors has loaded torch, as torchrun has.

    All ancestors are checked because the parent may be a shell script that torchrun runs. The
    ancestors of an orphan are an init or a shell.
    """
    while pid > 0:
        try:
            if "libtorch" in Path(f"/proc/{pid}/maps").read_text(errors="replace"):
                return True
            pid = int(processes.stat_fields(pid)[1])
        except PermissionError:
            return (
                pid != 1
            )  # An init. Of another user's process nothing shows that it is not torchrun.
        except OSError:
            return False
    return False


def on_sigterm(stop: Callable[[], bool]) -> None:
    """Call ``stop`` in a thread at the first SIGTERM; end the process at the second.

    To be called by the main thread, once. A thread acts, because Python's own handlers wait for the
    main thread, which may be stuck in a collective. Where ``stop`` returns False there is nothing
    to save, and the process ends.
    """
    reader, writer = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(writer, False)
    signal.signal(signal.SIGTERM, _written_to_the_pipe)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    # A forked process that is sent SIGTERM must neither survive it nor stop the run.
    os.register_at_fork(after_in_child=_forget)
    threading.Thread(target=_obey, args=(reader, stop), name="sigterm", daemon=True).start()


def _written_to_the_pipe(*_: object) -> None:
    """Do nothing: the kernel's signal was written to the wake-up descriptor already."""


def _forget() -> None:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _obey(reader: int, stop: Callable[[], bool]) -> None:
    asked_at: float | None = None
    while received := os.read(reader, 1):
        if received[0] != signal.SIGTERM:
            continue
        now = time.monotonic()
        if asked_at is None:
            if not stop():
                _end("SIGTERM: ended before the first step")
            asked_at = now
        elif now - asked_at >= _ONE_REQUEST_SECONDS:
            _end("SIGTERM again: ended at once, without the steps since the last checkpoint")


def _end(why: str) -> NoReturn:
    """End the process, past a main thread that may be stuck."""
    os.write(2, f"{why}\n".encode())
    os._exit(TERMINATED)


def report_failure(environ: Mapping[str, str], text: str, *, is_echo: bool) -> None:
    """Write ``text`` to torchrun's error file; torchrun prints it as the traceback of the failure.

    Parameters
    ----------
    environ : mapping
    text : str
    is_echo : bool
        True if another rank has printed its failure first. torchrun shows the earliest one as the
        root cause.
    """
    path = environ.get("TORCHELASTIC_ERROR_FILE")
    if not path:
        return
    text = "see the root cause" if is_echo else text.strip()
    timestamp = int(time.time()) + is_echo  # In whole seconds: an echo comes within the same one.
    message = {"message": text, "extraInfo": {"py_callstack": text, "timestamp": str(timestamp)}}
    with suppress(OSError):
        Path(path).write_text(json.dumps({"message": message}))
