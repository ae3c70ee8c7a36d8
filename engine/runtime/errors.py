"""Classification of failures of a rank: known failures carry a reason, others are sorted into one.

A rank that fails writes ``errors/rank<R>.json`` into the attempt's folder. The launcher reads these
files to name the first failing rank and its reason. The death of one rank makes the collectives of
all others fail within milliseconds, so a failed collective is classed as ``network``; the launcher
treats it as an echo if another rank has a reason of its own.

Not here: the consequence of a reason for the job (``domain.life.retrying``).
"""

from __future__ import annotations

import contextlib
import errno
import gc
import json
import re
import time
import traceback
from pathlib import Path
from typing import Any, Final

import torch

from lockstep.domain import limits
from lockstep.domain.life.attempt import ERRORS
from lockstep.domain.life.outcomes import Reason
from lockstep.system.files import BROKEN, FULL, write_atomically

_STORAGE_ERRNOS: Final = FULL | BROKEN
_COLLECTIVE: Final = re.compile(
    r"gloo[/\\]|\bgloo\b|ncclRemoteError|NCCL error|ncclUnhandled|ncclSystemError|TCPStore|ProcessGroup(Gloo|NCCL)|"
    r"^Connection (closed|reset) by peer|monitoredBarrier",
)
_NO_HOST_MEMORY: Final = re.compile(
    r"DefaultCPUAllocator: (can't|not enough) allocate|not enough memory: you tried"
)
_WORKER_KILLED: Final = re.compile(r"DataLoader worker \(pid \d+\) is killed by signal")
"""torch's handler of SIGCHLD raises it in the midst of whatever the rank does; see
``engine.data.fetching``."""
_NAMED_MAX: Final = 5
"""Names in an error; the rest is counted."""
_OF_THE_TASK: Final = frozenset({Reason.BAD_SPEC, Reason.NON_FINITE})


class EngineError(Exception):
    """Failure with a known reason. Its message appears in the job's outcome."""

    def __init__(self, reason: Reason, message: str):
        super().__init__(message)
        self.reason = reason

    def about(self, task: str) -> None:
        """Put the task's name before the message, if it is the task's affair and not named yet."""
        if self.reason in _OF_THE_TASK and task not in str(self):
            self.args = (f"{task}: {self}",)

    def __reduce__(self) -> tuple[type[EngineError], tuple[Any, ...]]:
        return type(self), (
            self.reason,
            str(self),
        )  # Pickle would call the constructor with the message alone.


class BadSpecError(EngineError):
    """Failure that the job's owner can correct: the spec, the task or the data do not fit."""

    def __init__(self, message: str):
        super().__init__(Reason.BAD_SPEC, message)

    def __reduce__(self) -> tuple[type[EngineError], tuple[Any, ...]]:
        return type(self), (str(self),)


def reason_of(error: BaseException) -> Reason:
    """The reason of any exception that ends a rank."""
    if isinstance(error, EngineError):
        return error.reason
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return Reason.OUT_OF_MEMORY
    if isinstance(error, RuntimeError) and _NO_HOST_MEMORY.search(str(error)):
        return Reason.OUT_OF_MEMORY
    if _is_port_taken(error):
        return Reason.PORT_IN_USE
    if isinstance(error, torch.distributed.DistError):
        return Reason.NETWORK
    # Gloo reports a lost peer as a bare RuntimeError whose text names its own source file.
    if type(error) is RuntimeError and _COLLECTIVE.search(str(error)):
        return Reason.NETWORK
    if type(error) is RuntimeError and _WORKER_KILLED.match(str(error)):
        return Reason.KILLED
    if isinstance(error, OSError) and error.errno in _STORAGE_ERRNOS:
        return Reason.STORAGE
    return Reason.USER_ERROR


def _is_port_taken(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno == errno.EADDRINUSE
    return isinstance(error, RuntimeError) and "EADDRINUSE" in str(error)


_PLACE: Final = "_lockstep_place"


def put_at(error: BaseException, place: str) -> None:
    """Note where in the data ``error`` was raised, such as ``item 3 of dataset('train')``."""
    if getattr(error, _PLACE, None) is None:
        with contextlib.suppress(AttributeError):  # A type with slots has the note only.
            setattr(error, _PLACE, place)
        error.add_note(f"raised by {place}")


def describe(error: BaseException) -> str:
    """Type and message of an exception, with its place in the data.

    Of the engine's own, the message alone.
    """
    place = getattr(error, _PLACE, None)
    at = "" if place is None else f"{place}: "
    if isinstance(error, EngineError):
        return f"{at}{error}"
    if isinstance(error, SyntaxError):  # Python prints the file and line first and the error last.
        return f"{at}{type(error).__name__}: {error}"
    text = "".join(traceback.format_exception_only(error)).strip()
    return at + text.replace(f"\nraised by {place}", "", 1) if at else text


def release(error: BaseException) -> None:
    """Let go of the tensors that a failed pass left in the frames of its traceback."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error.__traceback__ = None
        cause = error.__cause__ or error.__context__
        error.__cause__ = error.__context__ = None
        if cause is None:
            break
        error = cause
    gc.collect()


def write_error(folder: Path, rank: int, error: BaseException, *, step: int) -> None:
    """Write the rank's error file atomically, for the launcher.

    Parameters
    ----------
    folder : Path
        The attempt's folder.
    rank : int
    error : BaseException
    step : int
        Last optimizer step that this rank completed, 0 if none.
    """
    text = "".join(traceback.format_exception(error))
    document = {
        "reason": reason_of(error),
        "exception": _storable(describe(error)[: limits.TRACEBACK_CHARS_MAX]),
        "traceback": _storable(text[-limits.TRACEBACK_CHARS_MAX :]),
        "step": step,
        "time": time.time(),
    }
    target = folder / ERRORS / f"rank{rank}.json"
    # On a full disk the launcher still has the exit code and the log.
    with contextlib.suppress(OSError):
        target.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(target, json.dumps(document))


def _storable(text: str) -> str:
    """``text`` without lone surrogates, which a file name that is not UTF-8 may contain."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def listed(names: list[str]) -> str:
    """Return the first few names as text, and the number of the others."""
    rest = len(names) - _NAMED_MAX
    return ", ".join(names[:_NAMED_MAX]) + (f" and {rest} more" if rest > 0 else "")
