"""Signals that end a rank, and what each of them means to its user.

A shell that a script job runs (``bash run.sh``) exits with 128+n when signal n ended its last
command. So do env managers and other wrappers. The signal then decides, as it does without the
wrapper.

Several signals have no sender: the kernel ends a process for its own fault. Their outcome names the
fault, and the place in the Python code if ``faulthandler`` printed it.

Not here: the choice of the outcome (``engine.launcher.outcome``).
"""

from __future__ import annotations

import re
import signal
from typing import Final, NamedTuple

_FATAL: Final = frozenset(map(int, signal.Signals)) - {
    signal.SIGCHLD,
    signal.SIGCONT,
    signal.SIGSTOP,
    signal.SIGTSTP,
    signal.SIGTTIN,
    signal.SIGTTOU,
    signal.SIGURG,
    signal.SIGWINCH,
    # An exit code such as 192 is rather a program's own than a real-time signal.
    signal.SIGRTMIN,
    signal.SIGRTMAX,
}
"""Signals that end a process which does not handle them."""
_WRAPPED: Final = 128
"""A shell adds it to the number of the signal."""

_STACK: Final = 'Set PYTHONFAULTHANDLER: "1" in env, which prints the Python stack of a crash.'
_CAUSES: Final = {
    "SIGSEGV": ("crashed in native code with an invalid memory access", _STACK),
    "SIGABRT": (
        "crashed in native code, which called abort()",
        f"Read the last lines of its log: the library prints the cause there. {_STACK}",
    ),
    "SIGBUS": (
        "crashed in native code with a bus error, as from a full /dev/shm or a shortened file",
        "Enlarge /dev/shm (shm_size of a container), use fewer loader workers, and free the "
        "node's disk.",
    ),
    "SIGILL": (
        "crashed in native code at an instruction that this processor does not have",
        "Install builds of the libraries for this node's processor.",
    ),
    "SIGFPE": ("crashed in native code with a division by zero", _STACK),
    "SIGTRAP": ("crashed in native code at a failed check", _STACK),
    "SIGSYS": (
        "called a system call that the node forbids",
        "Check the seccomp profile of the node's container.",
    ),
    "SIGPIPE": (
        "wrote to a pipe or socket whose reader had ended",
        "Find the program that reads from it, such as `head` in a pipeline of the script.",
    ),
    "SIGALRM": (
        "was ended by its own alarm clock",
        "Find the call of signal.alarm or setitimer, or the `timeout` in the script.",
    ),
    "SIGXCPU": (
        "used more processor time than its limit",
        "Raise `ulimit -t` of the node's agent.",
    ),
    "SIGXFSZ": ("wrote a larger file than its limit", "Raise `ulimit -f` of the node's agent."),
}
"""Fault of a rank that a signal without a sender ended, and the next step."""
_CHILD: Final = re.compile(
    r"(?:died with <Signals\.|terminated with signal )(SIG[A-Z0-9]+)"
    r"|DataLoader worker \(pid \d+\) is killed by signal: "
    r"(Killed|Segmentation fault|Bus error|Aborted)"
    r"|(?:BrokenProcessPool: A process in the process pool|TerminatedWorkerError: A worker process "
    r"managed by the executor) was (terminated abruptly|unexpectedly terminated)"
)
"""Exceptions of subprocess, torch.multiprocessing, torch's loader, joblib and concurrent.futures
about a child that a signal ended."""
_SPOKEN: Final = {
    "Killed": "SIGKILL",
    "Segmentation fault": "SIGSEGV",
    "Bus error": "SIGBUS",
    "Aborted": "SIGABRT",
    "terminated abruptly": "SIGKILL",
    "unexpectedly terminated": "SIGKILL",
}
"""Names as the C library describes them. A pool does not know the signal: memory is the most
frequent cause."""
_DUMP: Final = re.compile(
    r"^(?:Current thread|Thread) 0x\w+.*\(most recent call first\):\n\s+File (.+)$", re.MULTILINE
)
_CRASH: Final = re.compile(r"^(?:Fatal Python error|Windows fatal exception): (.+)$", re.MULTILINE)


class Fault(NamedTuple):
    """Fault behind a signal that the kernel sent to a process for its own behaviour."""

    message: str
    """Predicate of the sentence about the rank."""
    advice: str


def signal_in(code: int, *, wrapped: bool) -> int | None:
    """Return the number of the signal that ended a rank, or None.

    Parameters
    ----------
    code : int
        Exit code, or the negative number of the signal.
    wrapped : bool
        Count 128+n as signal n. An exit code that is no such number, such as 255, counts as none.
    """
    if code < 0:
        return -code
    return code - _WRAPPED if wrapped and code - _WRAPPED in _FATAL else None


def signal_name(number: int) -> str:
    """Return the name of a signal; real-time signals have numbers only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


def end_of(code: int) -> str:
    """Return the end of a rank as the predicate of a sentence."""
    return f"exited with code {code}" if code >= 0 else f"was ended by {signal_name(-code)}"


def signal_of_child(exception: str) -> str | None:
    """Return the name of the signal that ended a child, if the exception is about that."""
    found = _CHILD.search(exception)
    return (found[1] or _SPOKEN[found[2] or found[3]]) if found else None


def fault_of(name: str, output: str) -> Fault | None:
    """Return the fault behind the signal ``name``, or None if another program sent it.

    Parameters
    ----------
    name : str
    output : str
        The end of the rank's stderr.
    """
    if name not in _CAUSES:
        return None
    message, advice = _CAUSES[name]
    dumped = _CRASH.search(output)
    place = _DUMP.search(output, dumped.end()) if dumped else None
    if place is not None:
        return Fault(
            f"{message} (at {place[1]})",
            advice.replace(_STACK, "").strip()
            or "Read its Python stack in the log, and test or replace the library that it names.",
        )
    return Fault(message, advice)
