"""Check that the file which a job starts with is in its code.

Only what is certain is an error. The ranks run in the folder of the code, so a relative path such
as ``train.py`` in ``[python, train.py]`` needs that file there. Nothing is said about absolute
paths, programs of the node (``[my-program]``), commands of a shell (``[bash, -c, …]``), and
modules that may be installed on the node.

Not here: launchers that a job must not start (``domain.spec.launchers``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from pathlib import PurePosixPath
from typing import Final

from lockstep.domain.errors import FieldError, pointer_of
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.tasks import is_own_task

_OPTIONS: Final = r"(?:-[{letters}]+\0)*"
_PYTHON: Final = r"(?:[^\0]*/)?python[\d.]*\0" + _OPTIONS.format(letters="uOBEsSqvb")
_SHELL: Final = r"(?:[^\0]*/)?(?:ba|da|k|z)?sh\0" + _OPTIONS.format(letters="euxvl")
"""With options that have no value and leave the file the next word. Others are not judged."""
_TORCHRUN: Final = (
    rf"(?:(?:[^\0]*/)?torchrun|{_PYTHON}-m\0torch\.distributed\.(?:run|launch))\0"
    r"(?:--standalone\0|--(?!standalone|module|no[-_]python|run[-_]path)[\w-]+"
    # The value of an option is never a file of Python: that would be an unknown option without one.
    r"(?:=[^\0]*|\0(?!-)(?![^\0]*\.py\0)[^\0]*)\0)*"
)
_START: Final = r"(?:(?:[^\0]*/)?env\0(?:\w+=[^\0]*\0)*)?(?:uv\0run\0)?"
_FILE: Final = r"((?!-)[^\0]*\.(?:py|sh))\0"


def missing_entry(spec: JobSpec, files: Collection[str] | None) -> Iterator[FieldError]:
    """Yield an error if the file that the job starts with is certainly not in its code.

    Parameters
    ----------
    spec : JobSpec
    files : collection of str or None
        Paths of the code's Python files, shell files and links; None where they are unknown.
    """
    if files is None:
        return
    if spec.train is not None and is_own_task(spec.train.task):
        named = spec.train.task.rpartition(":")[0]
        if not _is_there(named, files):
            yield _missing(("train", "task"), spec.train.task, named, files)
    if spec.script is not None:
        entry = _entry(spec.script.command)
        if entry is None:
            return
        place, is_there = entry
        word = spec.script.command[place]
        if not is_there(word, files):
            yield _missing(("script", "command", place), word, word, files)


def _missing(
    location: tuple[str | int, ...], value: str, named: str, files: Collection[str]
) -> FieldError:
    end = f"/{PurePosixPath(named).name}"
    like = sorted(path for path in files if path.endswith(end))
    step = (
        f"write {like[0]}"
        if like
        else "send the folder with it (lockstep submit FILE --code DIR), or give an absolute path "
        "on the nodes"
    )
    what = f"the job's code has no {named}" if files else f"the job has no code with {named}"
    return FieldError(pointer_of(location), what, value, step)


def _entry(command: list[str]) -> tuple[int, Check] | None:
    """Return the word that names the first file or module, and its check; None if uncertain."""
    text = "".join(f"{word}\0" for word in command)  # words contain no NUL
    for pattern, check in _PATTERNS:
        found = pattern.match(text)
        if found is not None:
            return text.count("\0", 0, found.start(1)), check
    return None


def _is_there(path: str, files: Collection[str]) -> bool:
    """Return False only for a relative path below the code's folder that is not in the code.

    A link on the way counts as the file: what it leads to is not known here.
    """
    parts = PurePosixPath(path).parts
    if path.startswith("/") or ".." in parts:
        return True
    return any("/".join(parts[:end]) in files for end in range(1, len(parts) + 1))


def _has_module(name: str, files: Collection[str]) -> bool:
    """Return False only for a missing module of a package that is in the code.

    Such a package hides an installed one of the same name. One without ``__init__.py`` does not.
    """
    parts = name.split(".")
    packages = ["/".join(parts[:end]) for end in range(1, len(parts))]
    if not packages or not all(f"{package}/__init__.py" in files for package in packages):
        return True
    path = "/".join(parts)
    return path in files or any(file.startswith((f"{path}/", f"{path}.")) for file in files)


Check = Callable[[str, Collection[str]], bool]
_PATTERNS: Final[tuple[tuple[re.Pattern[str], Check], ...]] = (
    (re.compile(rf"{_START}(?:{_TORCHRUN}|{_PYTHON}|{_SHELL}){_FILE}"), _is_there),
    (re.compile(rf"(?:{_START}{_PYTHON}-m|-m|--module)\0([^\0]+)\0"), _has_module),
    # The node's Python runs a first word that ends in .py. PATH has the programs without a slash.
    (re.compile(r"([^\0]*\.py|[^\0]*/[^\0]*\.sh)\0"), _is_there),
)
"""Commands as words that each end in a NUL. The group is the file or the module."""
