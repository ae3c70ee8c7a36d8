"""Evidence of a rank's failure: its error file, or the end of its output.

Five sources, the best first: ``errors/rank<R>.json``, written by the engine or by the stub; the
error file of torch's ``record`` decorator, which a script may use; the report of a script's own
torchrun; the exception that ended a script's Python, as its ``sitecustomize`` writes it; the last
lines of the output.

Not here: the text of tracebacks (``engine.launcher.tracebacks``) and of torchrun's report
(``engine.launcher.torchrun``), the choice between the ranks' evidence
(``engine.launcher.outcome``).
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.outcomes import Reason
from lockstep.engine.launcher import torchrun, tracebacks
from lockstep.engine.launcher.files import read_model, read_object
from lockstep.engine.launcher.signals import signal_in, signal_name, signal_of_child
from lockstep.system.untrusted import Untrusted

_PEER_LOST = re.compile(
    r"gloo/transport|connectFullMesh|monitoredBarrier|TCPStore"
    r"|nccl(?:Remote|System)Error|NCCL communicator was aborted"
    r"|^(?:torch\.[\w.]+\.)?_?Dist(?:Network|Store)Error\b"
    r"|^RuntimeError: Connection (?:closed|reset) by peer"
)
"""Texts and classes of torch.distributed, Gloo and NCCL. The connections of a script's own requests
raise other classes than RuntimeError."""
_NCCL_ABORT = re.compile(
    r"nccl(?:Remote|System)Error|NCCL communicator was aborted|Watchdog caught collective operation timeout"
)
"""Output of torch's NCCL watchdog on stderr before it aborts the process, without a Python
traceback."""
_NO_SPACE = re.compile(r"\[Errno (?:28|122)\]")
"""Python's text for ENOSPC and EDQUOT. On a full disk a rank may be unable to write its own error
file."""
_PORT_TAKEN = re.compile(r"\[Errno 98\]|EADDRINUSE|address already in use", re.IGNORECASE)
_LAST_LINES = 5
"""Lines of a program without a traceback that may tell its end."""
THREAD_OUTLIVED = "terminate called without an active exception"
"""C++ prints this about a thread that still runs at exit; for a Python program, only during its
shutdown."""
_NOT_STARTED = re.compile(
    r"^(?:.*error while loading shared libraries: .*"
    r"|Fatal Python error: (?:init|config|preconfig)_.*)$",
    re.MULTILINE,
)
_OBSTACLE_LINES = 8
_SIDE = re.compile(
    r"Rank (\d+) is running collective: CollectiveFingerPrint\(SequenceNumber=(\d+), OpType=(\w+)([^)]*)"
)
_SHAPE = re.compile(r"TensorShape=((?:\[[\d, ]*\] ?)+)")


class RankErrorFile(BaseModel, frozen=True):
    """``errors/rank<R>.json``."""

    reason: Reason
    exception: str | None = None
    traceback: str | None = None
    step: int | None = None
    time: float | None = None


class UncaughtFile(BaseModel, frozen=True):
    """``errors/uncaught<R>.json``, which a script's Python writes at its end."""

    exception: str
    traceback: str
    pid: int
    time: float


class Evidence(NamedTuple):
    """Evidence of one rank's failure beside its exit code. All None without evidence."""

    reason: Reason | None = None
    exception: str | None = None
    traceback: str | None = None
    step: int | None = None
    time: float | None = None
    """Seconds since the epoch."""
    cause: str | None = None
    """The exception that has the reason, if the last one follows from it."""
    exit_code: int | None = None
    """Of the first rank that failed under a script's own torchrun, which exits with 1 itself."""

    @property
    def explains(self) -> bool:
        """True if the rank left any evidence."""
        return any(each is not None for each in (self.reason, self.exception, self.exit_code))

    def counted_code(self, code: int, on_exit: Sequence[int]) -> int:
        """Return the exit code of a rank, or of the one behind it in a script's own torchrun.

        ``retry.on_exit`` may name either.
        """
        return code if self.exit_code is None or code in on_exit else self.exit_code

    @property
    def blames_peer(self) -> bool:
        """True if the rank failed because another was gone."""
        if self.reason is not None:
            return self.reason is Reason.NETWORK
        if self.exception is None:
            return _NCCL_ABORT.search(self.traceback or "") is not None
        return _PEER_LOST.search(self.cause or self.exception) is not None

    @property
    def obstacle(self) -> str | None:
        """The last line about a program that could not start, of the loader or of Python."""
        last = (
            ""
            if self.explains
            else "\n".join((self.traceback or "").splitlines()[-_OBSTACLE_LINES:])
        )
        found = _NOT_STARTED.findall(last)
        return found[-1] if found else None

    @property
    def brief(self) -> str:
        """The first line of the exception that has the reason."""
        of_code = f"a rank of its torchrun exited with code {self.exit_code}"
        otherwise = "no reason was given" if self.exit_code is None else of_code
        lines = (self.cause or self.exception or otherwise).splitlines()
        return lines[0][:500]


def disagreement(exception: str | None) -> str | None:
    """Return both sides of a disagreement about a collective, or None.

    Torch's debug mode finds these.
    """
    sides = _SIDE.findall(exception or "")
    if len(sides) != 2:
        return None
    sides_in_words = []
    for rank, number, operation, rest in sorted(sides):
        shape = _SHAPE.search(rest)
        sides_in_words.append(
            f"rank {rank} entered {operation}{f' of {shape[1].strip()}' if shape else ''} as "
            f"collective {number}"
        )
    return "the ranks disagree: " + ", ".join(sides_in_words)


def error_file(rank: int) -> str:
    """Return the name of the error file of the engine and the stub."""
    return f"{attempt.ERRORS}/rank{rank}.json"


def elastic_error_file(rank: int) -> str:
    """Return the name of the error file of torch's ``record`` decorator."""
    return f"{attempt.ERRORS}/elastic{rank}.json"


def uncaught_file(rank: int) -> str:
    """Return the name of the file for the exception that ends a script's Python."""
    return f"{attempt.ERRORS}/uncaught{rank}.json"


def gather(
    files: Untrusted, rank: int, tail: str, *, raised: bool = True, pid: int | None = None
) -> Evidence:
    """Return the best available evidence of one rank's failure.

    ``tail`` is the end of its stderr, or of the stdout to which a wrapper has sent that. Without
    ``raised`` an exception cannot have ended the rank (:func:`may_have_raised`). ``pid`` is that of
    its first process; another may have a parent that handles its failure.
    """
    own = _own(files, error_file(rank))
    if own is not None:
        return own
    tail = tail.strip()
    found = Evidence()
    if raised:
        found = (
            _recorded(files, elastic_error_file(rank))
            or _reported(tail)
            or _uncaught(files, uncaught_file(rank), tail, pid)
            or _printed(tail)
        )
    return found._replace(traceback=found.traceback or tail[-limits.TRACEBACK_CHARS_MAX :] or None)


def may_have_raised(code: int, stderr_tail: str, *, torn_down: bool) -> bool:
    """Return whether an exception that Python did not handle can have ended a rank.

    Python then exits with 1, unless the launcher ends it first or a thread of C++ outlives it.
    """
    number = signal_in(code, wrapped=True)
    if number == signal.SIGABRT and THREAD_OUTLIVED in stderr_tail:
        return True
    return code == 1 or (torn_down and number is not None)


def may_follow(code: int, found: Evidence) -> bool:
    """Return whether a rank may have failed because another was gone.

    The exit codes are those of an exception and of NCCL's watchdog, whose words may still be in the
    pipe.
    """
    is_silent = code == 1 or signal_in(code, wrapped=True) == signal.SIGABRT
    return found.blames_peer or (is_silent and not found.explains)


def _own(files: Untrusted, name: str) -> Evidence | None:
    file = read_model(files, name, RankErrorFile)
    if file is None:
        return None
    return Evidence(file.reason, _head(file.exception), _tail(file.traceback), file.step, file.time)


def _recorded(files: Untrusted, name: str) -> Evidence | None:
    document = read_object(files, name)
    message = None if document is None else document.get("message")
    if not isinstance(message, dict):
        return None
    extra = message.get("extraInfo")
    stack = extra.get("py_callstack") if isinstance(extra, dict) else None
    exception = _head(message.get("message"))
    return None if exception is None else _raised(exception, _tail(stack))


def _reported(tail: str) -> Evidence | None:
    """Return the evidence of the rank that failed first under a script's own torchrun."""
    root = torchrun.root_cause(tail)
    if root is None:
        return None
    number = signal_in(root.code, wrapped=True)
    if number is not None:
        message = f"rank {root.rank} of its torchrun terminated with signal {signal_name(number)}"
        return Evidence(Reason.KILLED, message)
    if root.code > 1:
        return Evidence(exit_code=root.code)
    printed = tracebacks.last_printed(root.output)
    if printed is None or not printed.is_last:
        return None
    return _raised(printed.exception[:1_000], _tail(root.output))


def _uncaught(files: Untrusted, name: str, tail: str, pid: int | None) -> Evidence | None:
    file = read_model(files, name, UncaughtFile)
    exception = None if file is None else _head(file.exception)
    if file is None or exception is None:
        return None
    if file.pid != pid and not tracebacks.is_last(tail, exception):
        return None
    return _raised(exception, _tail(file.traceback))._replace(time=file.time)


def _printed(tail: str) -> Evidence:
    """Return the evidence at the end of stderr: an exception, or the words of a program."""
    printed = tracebacks.last_printed(tail)
    if printed is not None and printed.is_last:
        return _raised(printed.exception[:1_000], tail[-limits.TRACEBACK_CHARS_MAX :])
    last = "\n".join((tail if printed is None else printed.after).splitlines()[-_LAST_LINES:])
    return Evidence(Reason.PORT_IN_USE if _PORT_TAKEN.search(last) else None)


def _raised(exception: str, traceback: str | None) -> Evidence:
    """Return the evidence of an exception, with the reason of the first one in its chain."""
    found = Evidence(exception=exception, traceback=traceback)
    for earlier in (None, *tracebacks.chained(traceback or "")):
        said = found._replace(reason=_reason_in(earlier or exception), cause=earlier)
        if said.reason is not None or said.blames_peer:
            return said
    return found


def _reason_in(exception: str) -> Reason | None:
    """Return the reason that an exception implies by itself: another try may pass."""
    if _NO_SPACE.search(exception):
        return Reason.STORAGE
    if _PORT_TAKEN.search(exception):
        return Reason.PORT_IN_USE
    return Reason.KILLED if signal_of_child(exception) else None


def _head(exception: Any) -> str | None:
    """Return the beginning of an exception, which has its type."""
    return _storable(exception)[: limits.TRACEBACK_CHARS_MAX] or None


def _tail(stack: Any) -> str | None:
    """Return the end of a traceback, which has the location."""
    return _storable(stack)[-limits.TRACEBACK_CHARS_MAX :] or None


def _storable(value: Any) -> str:
    # An outcome cannot store half a surrogate pair, from a file name that is not UTF-8.
    return (
        value.strip().encode("utf-8", "backslashreplace").decode("utf-8")
        if isinstance(value, str)
        else ""
    )
