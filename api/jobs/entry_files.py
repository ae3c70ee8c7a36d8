"""Check that the file which a job starts with is in its code.

Only what is certain is an error. The ranks run in the folder of the code, so a relative path such
as ``train.py`` in ``[python, train.py]`` needs that file there. Nothing is said about absolute
paths, programs of the node (``[my-program]``), commands of a shell (``[bash, -c, …]``), and modules
that may be installed on the node.

Not here: launchers that a job must not start (``domain.spec.launchers``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from lockstep.domain.errors import FieldError, pointer_of
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.launchers import MODULE_OPTIONS
from lockstep.domain.spec.tasks import is_own_task

SUFFIXES: Final = (".py", ".sh")
_PLAIN_OPTIONS: Final[Mapping[str, re.Pattern[str]]] = {
    "python": re.compile(r"-[uOBEsSqvb]+"),
    **dict.fromkeys(("bash", "sh", "dash", "ksh", "zsh"), re.compile(r"-[euxvl]+")),
}
"""Options without a value that leave the file the next word. Others are not judged."""
_TORCHRUN_MODULES: Final = ("torch.distributed.run", "torch.distributed.launch")
_TORCHRUN_FLAGS: Final = ("--standalone", "--no-python", "--no_python", "--run-path", "--run_path")
"""Options of torchrun without a value. All others have one, after ``=`` or as the next word."""


class _Entry(NamedTuple):
    """Word of a command that names a file or a module."""

    place: int
    is_module: bool = False


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
        word = spec.script.command[entry.place]
        has = _has_module if entry.is_module else _is_there
        if not has(word, files):
            yield _missing(("script", "command", entry.place), word, word, files)


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


def _entry(command: list[str]) -> _Entry | None:
    """Return the word that names the first file or module; None where that is uncertain."""
    start = _start(command)
    words = command[start:]
    if not words:
        return None
    program = PurePosixPath(words[0]).name
    if words[0] in MODULE_OPTIONS:
        return _Entry(start + 1, is_module=True)
    if program == "torchrun":
        return _of_torchrun(words, start, 1)
    plain = _PLAIN_OPTIONS.get("python" if program.startswith("python") else program)
    if plain is not None:
        return _of_interpreter(words, start, plain)
    # The node's Python runs a first word that ends in .py. Others are looked up on PATH without a /.
    is_file = start == 0 and (program.endswith(".py") or ("/" in words[0] and _is_file(program)))
    return _Entry(0) if is_file else None


def _start(command: list[str]) -> int:
    """Return the index behind ``env NAME=VALUE …`` and ``uv run``."""
    start = 0
    if PurePosixPath(command[0]).name == "env":
        start = 1
        while start < len(command) and re.match(r"\w+=", command[start]):
            start += 1
    return start + 2 if command[start : start + 2] == ["uv", "run"] else start


def _of_interpreter(words: list[str], start: int, plain: re.Pattern[str]) -> _Entry | None:
    index = 1
    while index < len(words) and plain.fullmatch(words[index]):
        index += 1
    word, after = [*words[index : index + 2], "", ""][:2]
    if word == "-m":
        if after in _TORCHRUN_MODULES:
            return _of_torchrun(words, start, index + 2)
        return _Entry(start + index + 1, is_module=True) if after else None
    return _Entry(start + index) if _is_file(word) else None


def _of_torchrun(words: list[str], start: int, first: int) -> _Entry | None:
    """Return the script: the first word that is neither an option nor its value."""
    for index in range(first, len(words)):
        word, before = words[index], words[index - 1]
        if word in (*MODULE_OPTIONS, "--no-python", "--no_python"):
            return None
        if word.endswith(".py"):
            return _Entry(start + index)
        is_value = index > first and before.startswith("--") and "=" not in before
        if not word.startswith("-") and (not is_value or before in _TORCHRUN_FLAGS):
            return None
    return None


def _is_file(word: str) -> bool:
    return word.endswith(SUFFIXES) and not word.startswith("-")


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
