"""Evidence of a rank's failure: its error file, or the end of its stderr.

Three sources, the best first: ``errors/rank<R>.json``, written by the engine or by the stub; the
error file of torch's ``record`` decorator, which a script may use; the traceback at the end of
stderr.

Not here: the choice between the ranks' evidence (``engine.launcher.outcome``).
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from pydantic import BaseModel

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.domain.life.outcomes import Reason
from lockstep.engine.launcher.files import read_model, read_object
from lockstep.engine.launcher.signals import signal_of_child
from lockstep.system.untrusted import Untrusted

_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = re.compile(
    r"^(?:\[rank\d+\]:\s)?([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|[A-Z]\w*)\b(?::.*)?)$"
)
_PEER_LOST = re.compile(
    r"gloo/transport|connectFullMesh|Connection (?:closed|reset) by peer|monitoredBarrier|TCPStore"
    r"|nccl(?:Remote|System)Error|NCCL communicator was aborted|Dist(?:Network|Store)Error"
)
_NCCL_ABORT = re.compile(
    r"nccl(?:Remote|System)Error|NCCL communicator was aborted|Watchdog caught collective operation timeout"
)
"""Output of torch's NCCL watchdog on stderr before it aborts the process, without a Python
traceback."""
_NO_SPACE = re.compile(r"\[Errno (?:28|122)\]")
"""Python's text for ENOSPC and EDQUOT. On a full disk a rank may be unable to write its own error
file."""
_PORT_TAKEN = re.compile(r"\[Errno 98\]|EADDRINUSE|address already in use", re.IGNORECASE)
_CHAINED = re.compile(
    r"(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):"
    r"\s*(?:\[rank\d+\]:\s*)*$"
)
_LAST_LINES = 5
"""Lines of a program without a traceback that may tell its end."""
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


class Evidence(NamedTuple):
    """Evidence of one rank's failure beside its exit code. All None without evidence."""

    reason: Reason | None = None
    exception: str | None = None
    traceback: str | None = None
    step: int | None = None
    time: float | None = None
    """Seconds since the epoch."""

    @property
    def explains(self) -> bool:
        """True if the rank left any evidence."""
        return self.reason is not None or self.exception is not None

    @property
    def blames_peer(self) -> bool:
        """True if the rank failed because another was gone."""
        if self.reason is not None:
            return self.reason is Reason.NETWORK
        if self.exception is None:
            return _NCCL_ABORT.search(self.traceback or "") is not None
        return _PEER_LOST.search(self.exception) is not None


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


def gather(files: Untrusted, rank: int, stderr_tail: str) -> Evidence:
    """Return the best available evidence of one rank's failure."""
    own = _own(files, error_file(rank))
    if own is not None:
        return own
    recorded = _recorded(files, elastic_error_file(rank))
    if recorded is not None:
        return recorded
    tail = stderr_tail.strip()
    exception = exception_in(tail)
    return Evidence(
        _reason_in(exception) or _port_taken(tail, exception),
        exception=exception,
        traceback=tail[-limits.TRACEBACK_CHARS_MAX :] or None,
    )


def exception_in(text: str) -> str | None:
    """Return type and message of the last exception whose traceback is in ``text``."""
    _, found, after = text.rpartition(_TRACEBACK)
    if not found:
        return None
    for line in after.splitlines():
        match = _EXCEPTION.match(line)
        if match:
            return match[1][:1_000]
    return None


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
    return Evidence(_reason_in(exception), exception=exception, traceback=_tail(stack))


def _reason_in(exception: str | None) -> Reason | None:
    """Return the reason that an exception implies by itself: another try may pass."""
    if exception is None:
        return None
    if _NO_SPACE.search(exception):
        return Reason.STORAGE
    if _PORT_TAKEN.search(exception):
        return Reason.PORT_IN_USE
    return Reason.KILLED if signal_of_child(exception) else None


def _port_taken(tail: str, exception: str | None) -> Reason | None:
    """Return the reason if the rank ended because of a port.

    Only its end counts: a program may log a port in use and choose another. The last exception may
    follow from the one about the port.
    """
    if exception is None:
        ends = tail.splitlines()[-_LAST_LINES:]
        return Reason.PORT_IN_USE if _PORT_TAKEN.search("\n".join(ends)) else None
    earlier = tail.split(_TRACEBACK)[:-1]
    while earlier and _CHAINED.search(earlier[-1].rstrip()):
        if _PORT_TAKEN.search(earlier.pop()):
            return Reason.PORT_IN_USE
    return None


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
