"""Ranks that are forked from the launcher, which imports torch once for all of them.

Importing torch, DDP's half of dynamo and the engine takes a rank two to three seconds of a core. A
fork of a process that has done it takes milliseconds, and shares its memory. Ranks are forked
before the launcher has a thread or an open file, and then wait, each at a pipe, for their
environment. They are the launcher's own children, as with exec, and no state of another thread is
copied.

Ranks that could behave differently after a fork are not forked: see :func:`nursery_for`. They are
started by exec, seconds later and otherwise the same. A user's script always is: it must find its
own modules and its own interpreter.

Not here: the environment of a rank, and the time of its release (``engine.launcher.start.ranks``).
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from lockstep.domain.life.attempt import AssignmentFile
from lockstep.engine.launcher import environment
from lockstep.engine.launcher.start import processes, stub

_PRELOADED = (
    "torch",
    "torch._dynamo",  # DDP's constructor and every optimizer import it.
    "torch.distributed.optim",
    "lockstep.engine.__main__",
    "lockstep.engine.task.builtin",
)
_WHILE_IMPORTING = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    # torch.cuda.is_available() then asks the driver's library for management, and not CUDA, which
    # no fork survives.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
}
_READ_EARLY = re.compile(
    "(?:PYTHON|LD_|LC_|OMP_|KMP_|GOMP_|MKL_|OPENBLAS_|BLIS_|TORCH|PYTORCH_|TRITON_|MALLOC_|GLIBC_).*|LANG|LANGUAGE|TZ"
)
"""Variables that the interpreter or a library reads once, when it is loaded."""
_log = logging.getLogger(__name__)


class ForkedRank:
    """A child of this process, as ``engine.launcher.start.gang.RankProcess``.

    It only waits until :meth:`begin`.
    """

    def __init__(self, pid: int, pipe: int):
        self.pid = pid
        self._pipe = pipe
        self._code: int | None = None
        self._lock = threading.Lock()

    def begin(self, environ: Mapping[str, str], launch_folder: Path) -> None:
        """Send the environment to the waiting rank, which then runs."""
        with open(self._pipe, "wb") as pipe:  # noqa: PTH123 - a descriptor has no path
            pipe.write(
                json.dumps({"environ": dict(environ), "folder": str(launch_folder)}).encode()
            )

    def poll(self) -> int | None:
        """Return the exit code, the negative signal number, or None while it runs. Thread-safe."""
        with self._lock:
            if self._code is None:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._code = os.waitstatus_to_exitcode(status)
            return self._code

    def wait(self, timeout: float) -> int:
        """Wait for the end; return the code of :meth:`poll`.

        Raises
        ------
        subprocess.TimeoutExpired
            If it still runs after ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if (left := deadline - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired(f"rank {self.pid}", timeout)
            processes.wait_for_an_end([self.pid], min(left, 1.0))
        return code


def nursery_for(assignment: AssignmentFile, folder: Path) -> list[ForkedRank]:
    """Import the ranks' modules and fork them; empty if they must be started by exec.

    Call it in the main thread, which must outlive them, before there is another one. Started by
    exec: scripts; ranks whose job sets a variable that a library reads when it is loaded; code with
    a module of a name that is imported here already; all if an import left a thread or an open
    device.
    """
    if assignment.spec.kind != "train":
        return []
    reason = _set_early(assignment)
    if reason is None:
        # A SIGTERM must wait for the launcher's own handler.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        reason = preload() or _taken_names(environment.working_folder(folder)) or left_open()
    if reason is not None:
        _log.warning("the ranks are started by exec instead of fork: %s", reason)
        return []
    gc.collect()
    gc.freeze()  # A garbage collection in a rank would copy every page that it visits.
    sys.stdout.flush()
    sys.stderr.flush()
    launcher = os.getpid()
    return [_fork(launcher) for _ in range(assignment.ranks_here)]


def _set_early(assignment: AssignmentFile) -> str | None:
    names = sorted(name for name in assignment.spec.env if _READ_EARLY.fullmatch(name))
    return f"the job sets {', '.join(names)}" if names else None


def preload() -> str | None:
    """Import the ranks' modules; return the obstacle, or None."""
    try:
        with _environ(_WHILE_IMPORTING):
            for name in _PRELOADED:
                importlib.import_module(name)
    except Exception:  # noqa: BLE001 - the ranks will raise it too, in the job's log
        return f"importing failed:\n{traceback.format_exc()}"
    return None


def _taken_names(code: Path) -> str | None:
    """Return an obstacle if code of the job has the name of a module that is imported here."""
    imported = {name.partition(".")[0] for name in sys.modules}
    there = {entry.name.removesuffix(".py") for entry in code.iterdir()}
    taken = sorted(imported & there)
    return (
        (
            f"the job's code has {', '.join(taken)}, which the launcher has already imported from "
            f"another place"
        )
        if taken
        else None
    )


def left_open() -> str | None:
    """Return the state of this process that would not survive a fork, threads or CUDA, or None."""
    tasks = len(os.listdir("/proc/self/task"))  # noqa: PTH208 - names only
    if tasks > 1:
        return f"the imports started {tasks - 1} more threads"
    devices = [target for target in _open_files() if target.startswith("/dev/nvidia")]
    return f"importing opened {devices[0]}" if devices else None


def _open_files() -> Iterator[str]:
    for descriptor in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names only
        try:
            yield os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - no Path for each
        except OSError:
            continue


def _fork(launcher: int) -> ForkedRank:
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(reader)
        return ForkedRank(pid, writer)
    try:
        _wait_and_run(reader, launcher)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001 - nothing of the launcher's may run in a rank
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _wait_and_run(pipe: int, launcher: int) -> NoReturn:
    """Wait for the environment in a forked rank, then run it."""
    os.setsid()
    stub.die_with(launcher)
    os.closerange(3, pipe)
    os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
    logging.getLogger().handlers.clear()
    with open(pipe, "rb") as reader:
        message = reader.read()
    if not message:
        os._exit(0)  # The launcher starts no rank.
    order = json.loads(message)
    os.environ.clear()
    os.environ.update(order["environ"])
    processes.show_environment(order["environ"])
    processes.name_process(f"lockstep-rank{os.environ['RANK']}"[:15])
    command = stub.become_rank(order["folder"])
    # As at the start of `python -m lockstep.engine`.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    main = sys.modules["lockstep.engine.__main__"]
    sys.modules["__main__"] = main
    sys.argv = [str(main.__file__), *command["argv"][4:]]
    main.main(sys.argv[1:])
    raise AssertionError("a rank exits by itself")


@contextmanager
def _environ(values: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
