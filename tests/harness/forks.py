"""Programs of Python as forks of a process that has imported their modules.

Importing torch takes a program two to three seconds of a core, and importing the service's own
modules takes one to two. A fork takes milliseconds. A forked program is a process of its own: pid,
session, environment, working folder, standard streams, signals and exit code are as after an exec.
Only its parent, its command line in ``/proc`` and its hash seed are those of the forking process.

Not here: the forks of launchers and ranks (``engine.launcher``).
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import re
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lockstep.engine.launcher.start.forking import left_open
from lockstep.engine.launcher.start.processes import show_environment

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ("torch._dynamo", "torch.distributed.optim", "lockstep.engine.loop.trainer")
SERVICE = ("lockstep.api.server", "lockstep.scheduler.service", "lockstep.worker.service")
_READ_EARLY = re.compile("(PYTHON|LD_|LC_|OMP_|KMP_|MKL_|OPENBLAS_|TORCH|MALLOC_|GLIBC_).*|LANG|TZ")
_MAIN = "import sys; from tests.harness import forks; forks.serve(int(sys.argv[1]), sys.argv[2:])"
_BYTES_MAX = 200_000
_ONE_AT_A_TIME = threading.Lock()


class Server:
    """The forking process. It ends with this process, which has the other end of its channel."""

    def __init__(self, modules: Sequence[str]) -> None:
        # OpenBLAS starts threads while it is imported, and a fork would not have them. A fork shows
        # its environment in the memory of the first one, which needs room.
        self.environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "ROOM": "x" * 4096,
        }
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            words = [sys.executable, "-c", _MAIN, str(theirs.fileno()), *modules]
            self.process = subprocess.Popen(
                words, env=self.environment, cwd=ROOT, pass_fds=[theirs.fileno()]
            )
        atexit.register(self.close)

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        with _ONE_AT_A_TIME:  # Programs are started in threads, too.
            socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
            return int(self._channel.recv(64))

    def close(self) -> None:
        self._channel.close()
        self.process.wait()


@cache
def _started(modules: tuple[str, ...]) -> Server:
    return Server(modules)


def server(modules: tuple[str, ...]) -> Server:
    """Return the process that has imported ``modules``; start it if it is the first request."""
    with _ONE_AT_A_TIME:
        return _started(modules)


class Forked(subprocess.Popen[Any]):
    """``Popen`` of a program of ``sys.executable``, forked where ``modules`` are imported.

    It is executed after all if it inherits other descriptors, or if its environment has a variable
    that is read before a fork can set it.
    """

    def __init__(self, words: Sequence[Any], modules: tuple[str, ...], **more: Any) -> None:
        assert words[0] == sys.executable
        self._modules, self._status = modules, -1
        super().__init__(words, **more)

    def _execute_child(
        self, args, executable, preexec, close, passed, cwd, env, info, flags, shell,
        stdin, p2cwrite, c2pread, stdout, errread, stderr, *more,
    ):  # fmt: skip
        environment = dict(os.environ if env is None else env)
        forking = server(self._modules)
        if preexec or passed or _early(environment) - _early(forking.environment):
            super()._execute_child(
                args, executable, preexec, close, passed, cwd, env, info, flags, shell,
                stdin, p2cwrite, c2pread, stdout, errread, stderr, *more,
            )  # fmt: skip
            return
        self._status, status = os.pipe()
        streams = [
            number if given == -1 else given for number, given in enumerate((stdin, stdout, stderr))
        ]
        request = {
            "words": [os.fspath(word) for word in args[1:]],
            "environment": environment,
            "folder": os.fspath(cwd or Path.cwd()),
            "new_session": more[-2],
        }
        self.pid = forking.fork(request, [*streams, status])
        self._child_created = True
        os.close(status)
        self._close_pipe_fds(stdin, p2cwrite, c2pread, stdout, errread, stderr)

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def _try_wait(self, flags: int) -> tuple[int, int]:
        """Read the status that the forking process has written, in place of ``waitpid``."""
        if self._status == -1:
            return super()._try_wait(flags)
        if flags & os.WNOHANG and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        status = int(os.read(self._status, 64))
        os.close(self._status)
        return self.pid, status


def run(
    words: Sequence[Any], modules: tuple[str, ...], *, timeout: float, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Return the end of a program, with its text on stdout and stderr, as ``subprocess.run``."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with Forked(words, modules, **pipes, **more) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(words, process.returncode, out, err)


def _early(environment: Mapping[str, str]) -> set[tuple[str, str]]:
    return {pair for pair in environment.items() if _READ_EARLY.fullmatch(pair[0])}


def serve(channel: int, modules: Sequence[str]) -> None:
    """Fork the requested programs until the tests have ended. In a fork, run the program."""
    for name in modules:
        importlib.import_module(name)
    assert left_open() is None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C at the terminal is for the tests.
    gc.collect()
    gc.freeze()  # A garbage collection in a fork would copy every page that it visits.
    requests = socket.socket(fileno=channel)
    ends = select.poll()
    ends.register(channel, select.POLLIN)
    forks: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in ends.poll():
            if ready != channel:
                ends.unregister(ready)
                _report(ready, *forks.pop(ready))
                continue
            message, descriptors, _, _ = socket.recv_fds(requests, _BYTES_MAX, 4)
            if not message:
                return
            if (pid := os.fork()) == 0:
                _run(json.loads(message), descriptors)
                return
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            handle = os.pidfd_open(pid)
            forks[handle] = pid, descriptors[3]
            ends.register(handle, select.POLLIN)
            requests.send(str(pid).encode())


def _report(handle: int, pid: int, status: int) -> None:
    with open(status, "wb") as pipe:
        pipe.write(str(os.waitpid(pid, 0)[1]).encode())
    os.close(handle)


def _run(request: Mapping[str, Any], descriptors: Sequence[int]) -> None:
    """Become the program, and run it at the end of this one's main module."""
    if request["new_session"]:
        os.setsid()
    for target, source in enumerate(descriptors[:3]):
        os.dup2(source, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    show_environment(request["environment"])
    how, *words = request["words"]
    if how == "-c":
        sys.argv, sys.path[0] = ["-c", *words[1:]], ""
        exec(words[0], sys.modules["__main__"].__dict__)
    elif how == "-m":
        sys.argv, sys.path[0] = words, request["folder"]
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = [how, *words], str(Path(how).parent)
        runpy.run_path(how, run_name="__main__")
