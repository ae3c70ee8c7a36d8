"""Programs of Python as forks of a process that has imported their modules.

Importing torch takes a program two to three seconds of a core, and importing the service's own
modules takes one to two. A fork takes milliseconds. A forked program is a process of its own: pid,
session, environment, working folder, standard streams, signals and exit code are as after an exec.
Only its parent, its command line in ``/proc`` and its hash seed are those of the forking process.

Not here: the forks of launchers and ranks (``engine.launcher``).
"""

from __future__ import annotations

import atexit
import ctypes
import filecmp
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
import traceback
from collections.abc import Mapping, Sequence
from multiprocessing import util
from pathlib import Path
from typing import Any, Final, NoReturn

from lockstep.client.local import die_with_parent
from lockstep.engine.launcher.start.forking import left_open
from lockstep.engine.launcher.start.processes import show_environment
from lockstep.system.processes import stat_fields

ROOT = Path(__file__).resolve().parents[2]
ENGINE = (
    *("torch._dynamo", "torch.distributed.optim", "lockstep.engine.loop.trainer"),
    # What launchers and their ranks import in addition.
    *("lockstep.engine.__main__", "lockstep.engine.launcher.fork_server"),
    *("lockstep.engine.task.builtin", "lockstep.engine.launcher.start.rendezvous"),
)
SERVICE = (
    *("lockstep.api.server", "lockstep.scheduler.service", "lockstep.worker.service"),
    # What these import after their start: the application alone takes 0.7 s of a core.
    *("lockstep.api.serving", "celery.worker.consumer", "celery.concurrency.thread"),
)
COMMAND = (
    *("lockstep.cli.app", "lockstep.cli.jobs.jobs", "lockstep.cli.service.service"),
    *("lockstep.client.local.up", "lockstep.client.local.down", "lockstep.client.api", "httpcore2"),
)
UP = (*SERVICE, *COMMAND, *ENGINE)
"""For all programs of one running service, each of which is forked by the one that starts it."""
_BECOME = "from tests.harness import forks; forks.become()"
PIPES: Final = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
_WORDS_SHOWN = slice(45, 47)
"""Fields 48 and 49 of ``/proc/PID/stat``, counted from the third on."""
_READ_EARLY = re.compile(
    "(PYTHON|LD_|LC_|OMP_|KMP_|MKL_|OPENBLAS_|TORCH(?!INDUCTOR_CACHE_DIR)|MALLOC_|GLIBC_).*|LANG|TZ"
)
"""Not the folder of a cache: torch sets it in any process that compiles, and reads it late."""
Tree = tuple[tuple[str, str], ...]
_OF_A_TREE: Final = ("PYTHONPATH", "PYTHONSAFEPATH")
"""Variables with which a program in any folder imports another version's modules."""
_MAIN = "import sys; from tests.harness import forks; forks.serve(int(sys.argv[1]), sys.argv[2:])"
_OURS = re.compile("(-[Pu] )?-m lockstep")
_BYTES_MAX = 200_000
_STARTING, _ONE_AT_A_TIME = threading.Lock(), threading.Lock()


class Server:
    """The forking process. It ends with this process, which has the other end of its channel.

    It is a fork of ``below``, if there is one, and has imported the modules of that, too.
    """

    def __init__(
        self, modules: Sequence[str], tree: Tree = (), below: Server | None = None
    ) -> None:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            if below is None:
                self._execute(modules, tree, theirs.fileno())
            else:
                self.environment = below.environment
                self._status, status = os.pipe()
                channel = theirs.fileno()
                self.pid = below.fork({"serve": modules}, [channel, channel, channel, status])
                os.close(status)
        atexit.register(self.close)

    def _execute(self, modules: Sequence[str], tree: Tree, channel: int) -> None:
        # OpenBLAS starts threads while it is imported, and a fork would not have them. A fork shows
        # its environment in the memory of the first one, which needs room.
        self.environment = {
            **os.environ,
            **dict(tree),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "ROOM": "x" * 4096,
        }
        words = [sys.executable, "-c", _MAIN, str(channel), *modules]
        self._process = subprocess.Popen(words, env=self.environment, cwd=ROOT, pass_fds=[channel])
        self.pid, self._status = self._process.pid, -1

    def fork(self, request: Mapping[str, Any], descriptors: Sequence[int]) -> int:
        with _ONE_AT_A_TIME:  # Programs are started in threads, too.
            socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
            return int(self._channel.recv(64))

    def close(self) -> None:
        self._channel.close()
        if self._status == -1:
            self._process.wait()
        else:
            os.read(self._status, 64)


_SERVERS: Final[dict[tuple[tuple[str, ...], Tree], Server]] = {}


def server(modules: tuple[str, ...], environment: Mapping[str, str] | None = None) -> Server:
    """Return a process that has imported ``modules``; start it if there is none.

    An environment may name a tree of another version, from which they are imported if its form of
    this module is the same.
    """
    named = {name: (environment or {}).get(name, "") for name in _OF_A_TREE}
    here = Path(named["PYTHONPATH"]) / Path(__file__).relative_to(ROOT)
    is_alike = all(named.values()) and here.is_file() and filecmp.cmp(here, __file__)
    with _STARTING:
        return _with(modules, tuple(named.items()) if is_alike else ())


def _with(modules: tuple[str, ...], tree: Tree) -> Server:
    for (imported, of), found in _SERVERS.items():
        if of == tree and set(modules) <= set(imported):
            return found
    # torch is most of it.
    below = _with(ENGINE, tree) if set(ENGINE) < set(modules) else None
    found = _SERVERS[modules, tree] = Server(modules, tree, below)
    return found


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
        forking = server(self._modules, environment)
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
    return ended(Forked(words, modules, **PIPES, **more), timeout)


def ended(started: Forked, timeout: float) -> subprocess.CompletedProcess[str]:
    """Return the end of a program whose streams are pipes."""
    with started as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def with_all_below(
    module: str, *words: str | Path, modules: tuple[str, ...] = UP, **more: Any
) -> Forked:
    """Start a module; the programs of Lockstep that it starts are forked like itself."""
    return Forked([sys.executable, "-c", _BECOME, module, *words], modules, **more)


def become() -> None:
    """Run the module that the command line names, without an exec below it."""
    fork_below()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


def fork_below() -> None:
    """Let this process fork the programs of Lockstep that it starts."""
    for module in list(sys.modules.values()):
        if getattr(module, "Popen", None) is ForkedHere.__base__:
            module.Popen = ForkedHere  # type: ignore[attr-defined] # as torchrun has it


class ForkedHere(subprocess.Popen[Any]):
    """``Popen`` that forks this process for ``python -m lockstep…``. It executes all others."""

    def _execute_child(
        self, args, executable, preexec, close, passed, cwd, env, info, flags, shell,
        stdin, p2cwrite, c2pread, stdout, errread, stderr, *more,
    ):  # fmt: skip
        words = [] if isinstance(args, str | bytes) else [os.fspath(word) for word in args]
        tied = words[3:4] == [die_with_parent.__file__]
        words = words[5:] if tied else words
        if words[:1] != [sys.executable] or not _OURS.match(" ".join(words[1:4])):
            super()._execute_child(
                args, executable, preexec, close, passed, cwd, env, info, flags, shell,
                stdin, p2cwrite, c2pread, stdout, errread, stderr, *more,
            )  # fmt: skip
            return
        parent = os.getpid()
        if (pid := os.fork()) == 0:
            code = 1
            try:
                if tied:
                    ctypes.CDLL(None).prctl(die_with_parent.PR_SET_PDEATHSIG, signal.SIGKILL)
                    assert os.getppid() == parent
                if more[-1] == 0:
                    os.setpgid(0, 0)
                request = {
                    "words": words[1:],
                    "environment": dict(os.environ if env is None else env),
                    "folder": os.fspath(cwd or Path.cwd()),
                    "new_session": more[-2],
                }
                _run(request, [stdin, stdout, stderr], passed)
                code = 0
            except SystemExit as leaving:
                code = _code(leaving)
            except BaseException:  # noqa: BLE001 - nothing of the parent's may run in the program
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        self.pid = pid
        self._child_created = True
        self._close_pipe_fds(stdin, p2cwrite, c2pread, stdout, errread, stderr)


def _early(environment: Mapping[str, str]) -> set[tuple[str, str]]:
    return {pair for pair in environment.items() if _READ_EARLY.fullmatch(pair[0])}


def serve(channel: int, modules: Sequence[str]) -> None:
    """Fork the requested programs until the tests have ended. In a fork, run the program."""
    for name in modules:
        importlib.import_module(name)
        if name.endswith("__main__"):
            del sys.modules[name]  # What it imports stays; runpy warns of itself.
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
                code = 0
                request = json.loads(message)
                try:
                    if "serve" in request:
                        _close_all_but(descriptors[:1])
                        serve(descriptors[0], request["serve"])
                    else:
                        _run(request, descriptors)
                except SystemExit as leaving:
                    code = _code(leaving)
                _exit(code)
            for descriptor in descriptors[:3]:
                os.close(descriptor)
            handle = os.pidfd_open(pid)
            forks[handle] = pid, descriptors[3]
            ends.register(handle, select.POLLIN)
            requests.send(str(pid).encode())


def _code(leaving: SystemExit) -> int:
    if isinstance(leaving.code, str):
        sys.stderr.write(f"{leaving.code}\n")
    return leaving.code if isinstance(leaving.code, int) else bool(leaving.code)


def _exit(code: int) -> NoReturn:
    """End as Python does, but for the modules, whose destruction takes 0.4 s of a core."""
    threading._shutdown()  # type: ignore[attr-defined] # waits for the threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _report(handle: int, pid: int, status: int) -> None:
    with open(status, "wb") as pipe:
        pipe.write(str(os.waitpid(pid, 0)[1]).encode())
    os.close(handle)


def _run(request: Mapping[str, Any], streams: Sequence[int], kept: Sequence[int] = ()) -> None:
    """Become the program, and run it at the end of this one's main module."""
    # Connections of the forking program would close descriptors of the same numbers in the
    # processes of a pool or a loader.
    util._afterfork_registry.clear()  # type: ignore[attr-defined] # the standard library's own
    if request["new_session"]:
        os.setsid()
    for target, source in enumerate(streams[:3]):
        if source != -1:
            os.dup2(source, target)
    # The former streams took the kind of their files, such as a terminal, from the other process.
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    _close_all_but(kept)
    for descriptor in kept:
        os.set_inheritable(descriptor, True)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    show_environment(request["environment"])
    _show_words([sys.executable, *request["words"]])
    how, *words = request["words"]
    if how == "-c":
        sys.argv = ["-c", *words[1:]]
        _search_first("")
        exec(words[0], sys.modules["__main__"].__dict__)
    elif how == "-m":
        sys.argv = words
        _search_first(request["folder"])
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif how in {"-P", "-u"}:
        if how == "-P":
            sys.path[:] = filter(None, sys.path)
        else:
            sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [how, *words]
        _search_first(str(Path(how).parent))
        runpy.run_path(how, run_name="__main__")


def _close_all_but(kept: Sequence[int]) -> None:
    below = 3
    for descriptor in (*sorted(kept), os.sysconf("SC_OPEN_MAX")):
        os.closerange(below, descriptor)
        below = descriptor + 1


def _search_first(folder: str) -> None:
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _show_words(words: Sequence[str]) -> None:
    """Set ``/proc/PID/cmdline``, as far as there is room for the words."""
    start, end = map(int, stat_fields(os.getpid())[_WORDS_SHOWN])
    shown = b"".join(os.fsencode(word) + b"\0" for word in words)[: end - start - 1]
    ctypes.memmove(start, shown.ljust(end - start, b"\0"), end - start)
