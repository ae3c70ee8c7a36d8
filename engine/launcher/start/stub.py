"""First instructions of every rank: become a child of the launcher, then exec the command.

A rank that was forked from a launcher (``engine.launcher.start.forking``) does the same without the
exec.

``python -I -S engine/launcher/start/stub.py LAUNCH_FOLDER``, with the rank's final environment. It
is run by path, isolated, and imports the standard library alone, so nothing of Lockstep is on the
import path of a user's script and the start costs 30 ms. In this order:

1. request SIGKILL from the kernel for the death of the launcher's thread that started this process,
and check that it has not died before: otherwise a SIGKILLed launcher would leave ranks that hold
their GPUs;
2. reset signals to their defaults (an exec'd program inherits ignored signals);
3. open the rank's pipes, which the launcher reads, as its stdout and stderr;
4. enter the working directory and exec. On failure, write the rank's error file.

Not here: command and environment (``engine.launcher.environment``).
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
import time

TYPE_CHECKING = False  # Same as typing's, whose import takes 20 ms.
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1
EXIT_CANNOT_RUN = 127
"""Exit code of a shell for a command that was not found."""
LATE_VARIABLES = "LOCKSTEP_LATE_VARIABLES"
"""Variables of the rank alone, as JSON. They could keep this program from starting, which has no
log yet."""


def main(folder: str) -> NoReturn:
    """Become the rank whose number is in the environment. Does not return."""
    command = become_rank(folder)
    os.environ.update(json.loads(os.environ.pop(LATE_VARIABLES, "{}")))
    try:
        os.execvp(command["argv"][0], command["argv"])  # noqa: S606 - no shell is wanted
    except OSError as error:
        _refuse(command, command["argv"][0], error)


def held_back(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` with the dynamic loader's variables for the program of the rank alone."""
    late = {name: value for name, value in environ.items() if name.startswith(("LD_", "GLIBC_"))}
    kept = {name: value for name, value in environ.items() if name not in late}
    return {**kept, LATE_VARIABLES: json.dumps(late)} if late else kept


def become_rank(folder: str) -> Any:
    """Run steps 1 to 4, without the exec. Return the launcher's data for its ranks."""
    with open(os.path.join(folder, "command.json"), encoding="utf-8") as file:  # noqa: PTH118, PTH123 - pathlib is slow to import
        command = json.load(file)
    die_with(command["launcher_pid"])
    for number in (
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGPIPE,
        signal.SIGTERM,
        signal.SIGCHLD,
    ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    rank = os.environ["RANK"]
    _redirect(os.open(os.devnull, os.O_RDONLY), 0)
    _redirect(os.open(f"{folder}/{rank}.stdout", os.O_WRONLY), 1)
    _redirect(os.open(f"{folder}/{rank}.stderr", os.O_WRONLY), 2)
    os.umask(command["umask"])
    try:
        os.chdir(command["cwd"])
        script = command["script"]
        if script is not None and not os.path.isfile(script):  # noqa: PTH113 - as above
            raise FileNotFoundError(2, "No such file or directory", script)
    except OSError as error:
        _refuse(command, command["script"] or command["cwd"], error)
    return command


def _refuse(command: Any, what: str, error: OSError) -> NoReturn:
    """Report the obstacle to running the rank, and exit."""
    message = f"{what!r} {_cannot_run(what, command['cwd'], error)}"
    _report(f"{command['errors']}/rank{os.environ['RANK']}.json", message)
    print(message, file=sys.stderr, flush=True)  # noqa: T201 - the rank's own stderr
    os._exit(EXIT_CANNOT_RUN)


def die_with(launcher_pid: int) -> None:
    """Make the kernel kill this process when the launcher dies, or exit if it has died already."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != launcher_pid:
        os._exit(EXIT_CANNOT_RUN)


def _redirect(source: int, target: int) -> None:
    if source != target:
        os.dup2(source, target)
        os.close(source)


def _cannot_run(what: str, cwd: str, error: OSError) -> str:
    """Return the obstacle to running a program, as the predicate of a sentence about it."""
    here = os.path.join(cwd, what)  # noqa: PTH118 - pathlib is slow to import
    is_searched = "/" not in what and not what.endswith(".py")
    path = (_on_path(what) or here) if is_searched else here
    if error.errno == errno.E2BIG:
        return (
            "cannot be run: its arguments and its environment are longer than the system allows "
            "(128 KiB for each one); write long values into a file of the code"
        )
    if os.path.isdir(path):  # noqa: PTH112 - as above
        return (
            f"is a folder; name the file in it that is to be run, such as {what.rstrip('/')}/run.sh"
        )
    if is_searched and path == here and os.path.isfile(path):  # noqa: PTH113 - as above
        return (
            f"was not found on PATH, where a name without a slash is searched; write ./{what} for "
            f"the file in {cwd}, or put its interpreter first: [bash, {what}]"
        )
    if not os.path.exists(path):  # noqa: PTH110 - as above
        words = what.split()
        if len(words) > 1:
            return f"was not found; script.command has one item per word: [{', '.join(words)}]"
        where = "on PATH; install it on the node" if is_searched else f"in {cwd}"
        more = "," if is_searched else ";"
        return f"was not found {where}{more} send the file with --code, or correct script.command"
    return _cannot_run_file(path, error)


def _on_path(name: str) -> str | None:
    """Return the first file of this name on PATH, which may lack the right to be run."""
    for folder in os.get_exec_path():
        path = os.path.join(folder, name)  # noqa: PTH118 - pathlib is slow to import
        if os.path.isfile(path):  # noqa: PTH113 - as above
            return path
    return None


def _cannot_run_file(path: str, error: OSError) -> str:
    """Return the obstacle to running a file that exists, as a predicate."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            head = file.read(256)
    except OSError:
        head = b""
    if head.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return (
            "begins with a byte order mark, which hides its first line from the system; save it "
            "as UTF-8 without a BOM"
        )
    line = head.partition(b"\n")[0]
    interpreter = line[2:].strip(b" \t\r").decode("utf-8", "replace") if line[:2] == b"#!" else ""
    if interpreter and line.endswith(b"\r"):
        return (
            f"has Windows line ends: its first line ends in a carriage return, so the system "
            f"searches for {interpreter + chr(13)!r}; convert it with dos2unix, and write "
            f"`*.sh text eol=lf` into .gitattributes"
        )
    program = interpreter.split()[0] if interpreter else ""
    if isinstance(error, FileNotFoundError):
        if not program:
            return (
                "exists, but its loader or a library of it is not on this node; build it for this "
                "system"
            )
        return (
            f"is run by {program!r}, which is not on this node; correct its first line, such as "
            f"#!/usr/bin/env bash, or put the interpreter first in script.command"
        )
    if isinstance(error, PermissionError):
        return _may_not_be_run(path, program)
    if head[:4] == b"\x7fELF":
        return f"is a program for another processor; build it for {os.uname().machine}"
    return f"cannot be run: {error.strerror}; a script needs a first line such as #!/bin/sh"


def _may_not_be_run(path: str, program: str) -> str:
    """Return the reason for which a file that exists may not be run, as a predicate."""
    if program and os.access(path, os.X_OK):
        return f"is run by {program!r}, which may not be executed; correct its first line"
    if os.stat(path).st_mode & 0o111:  # noqa: PTH116 - pathlib is slow to import
        return (
            "may not be executed, although it has the x bit: its file system is mounted noexec, or "
            "the x bit is another user's; put its interpreter first in script.command"
        )
    return "is not executable; run chmod +x, or put its interpreter first in script.command"


def _report(path: str, message: str) -> None:
    document = {
        "reason": "bad_spec",
        "exception": message,
        "traceback": None,
        "step": None,
        "time": time.time(),
    }
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib is slow to import
        json.dump(document, file)
    os.rename(f"{path}.tmp", path)  # noqa: PTH104 - pathlib is slow to import


if __name__ == "__main__":
    main(sys.argv[1])
