"""Text that a failing rank writes to its stderr: short, with the reason last.

A failure that the engine names is one sentence, without frames of the engine. An exception of the
job's code keeps its traceback from the first frame of that code. A rank that ends because another
one is gone prints one line.

The whole traceback is in the rank's error file (``engine.runtime.errors.write_error``).
"""

from __future__ import annotations

import contextlib
import os
import traceback
from pathlib import Path
from typing import Final

import torch

from lockstep.domain.errors import LockstepError
from lockstep.domain.life.attempt import ERRORS
from lockstep.domain.life.outcomes import Reason
from lockstep.engine.runtime.errors import EngineError, describe, reason_of

_FIRST: Final = "first"
_LINE_CHARS_MAX: Final = 300
_OURS: Final = (
    f"{Path(__file__).parents[1]}{os.sep}",
    f"{Path(torch.__file__).parent}{os.sep}",
    "<frozen ",
)
"""Beginnings of the files that call the job's code: the engine's, torch's and the interpreter's
own."""


def text_of(error: BaseException, rank: int) -> str:
    """Return the text that ``rank`` prints about its failure; lines, the reason last."""
    if isinstance(error, LockstepError):
        return refusal(error)
    if isinstance(error, EngineError):
        # A loader worker's traceback is a note of it.
        return "".join(f"{part}\n" for part in (*getattr(error, "__notes__", ()), str(error)))
    if reason_of(error) is Reason.NETWORK:
        first_line = describe(error).partition("\n")[0][:_LINE_CHARS_MAX]
        return f"rank {rank} lost the other ranks: {first_line}\n"
    return without_our_frames(error)


def refusal(error: LockstepError) -> str:
    """Return a refusal with its other wrong fields and its next step."""
    lines = [error.message]
    lines += [f"  {field.pointer}: {field.message}" for field in error.fields[1:]]
    if error.next_step:
        lines.append(f"  {error.next_step}")
    return "\n".join(lines) + "\n"


def without_our_frames(error: BaseException) -> str:
    """Return a traceback that begins with the first frame of the job's code.

    All of it where there is none.
    """
    formatted = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = formatted
    while part is not None:
        theirs = [not frame.filename.startswith(_OURS) for frame in part.stack]
        if any(theirs):
            del part.stack[: theirs.index(True)]
        part = part.__cause__ or part.__context__
    return "".join(formatted.format())


def forget(folder: Path) -> None:
    """Remove the error files and texts of an earlier run in the same folder."""
    for path in (*(folder / ERRORS).glob("rank*.json"), folder / ERRORS / _FIRST):
        path.unlink(missing_ok=True)


def is_first(folder: Path, rank: int) -> bool:
    """Return whether this rank is the first of the run to fail, and mark it.

    The ranks that fail because it is gone come later: they see its connections close.
    """
    path = folder / ERRORS / _FIRST
    with contextlib.suppress(OSError):  # On a full disk, each rank prints its own text.
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        os.write(descriptor, f"{rank}\n".encode())
        os.close(descriptor)
    return True
