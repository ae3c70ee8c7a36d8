"""Import of the task that the spec names: a built-in one, or ``file.py:Class`` of the job's code.

Every failure is the user's to fix and ends as ``bad_spec``, with the name, the searched place and
the names found there.

Not here: validation of the name (``domain.spec.job``).
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from lockstep.domain.spec import tasks as names
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.task.interface import Task

_MODULE: Final = "lockstep_task"
"""Module name of a user's file; the file's own name could be that of an installed module."""


def load_task(name: str, args: dict[str, Any], code: Path) -> Task:
    """Return the task that a spec names, constructed with its arguments.

    Parameters
    ----------
    name : str
        ``train.task`` of the spec.
    args : dict
        ``train.task_args`` of the spec.
    code : Path
        Folder of the job's code. For a user's own task it goes first in the import path.

    Raises
    ------
    EngineError
        ``bad_spec``: the file or the class is missing, is no task, or its constructor refuses the
        arguments. Exceptions of the user's own code are not changed.
    """
    if names.is_own_task(name):
        file, _, class_name = name.rpartition(":")
        return _construct(_own_class(code, file, class_name), name, args)
    from lockstep.engine.task.builtin import BUILT_IN

    if name not in BUILT_IN:
        raise BadSpecError(f"unknown task {name!r}; expected one of {', '.join(sorted(BUILT_IN))}")
    return BUILT_IN[name](**args)


def _own_class(code: Path, file: str, class_name: str) -> type[Task]:
    path = code / file
    if not path.is_file():
        there = (
            ", ".join(sorted(entry.name for entry in code.iterdir())[:10])
            if code.is_dir()
            else "no such folder"
        )
        raise BadSpecError(f"train.task: the job's code has no file {file} ({there})")
    module = _import(path, code)
    found = getattr(module, class_name, None)
    if found is None:
        classes = [name for name, value in vars(module).items() if _is_task(value)]
        there = f"its tasks: {', '.join(classes)}" if classes else "the file has no task"
        raise BadSpecError(f"train.task: {file} has no class {class_name!r}; {there}")
    if not _is_task(found):
        raise BadSpecError(
            f"train.task: {class_name} in {file} is not a Task: write class "
            f"{class_name}(lockstep.Task)",
        )
    task_class: type[Task] = found
    return task_class


def _import(path: Path, code: Path) -> ModuleType:
    # The code's own folder first, so that the task's file can import its neighbours.
    sys.path.insert(0, str(code))
    specification = importlib.util.spec_from_file_location(_MODULE, path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules[_MODULE] = module  # Worker processes and pickles find its classes by this name.
    specification.loader.exec_module(module)
    return module


def _is_task(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Task) and value is not Task


def _construct(task_class: type[Task], name: str, args: dict[str, Any]) -> Task:
    try:
        inspect.signature(task_class).bind(**args)
    except TypeError as error:
        signature = str(inspect.signature(task_class))
        raise BadSpecError(
            f"train.task_args: {name} expects {signature}, got {sorted(args)}: {error}",
        ) from None
    return task_class(**args)
