"""Lockstep's public package: the API's client, the job spec, and the interface of own tasks.

``Client`` sends requests to a service. ``Job`` is the spec of a job. ``Task`` and ``Dropout`` are
what a training job's own code derives from and builds with; they need torch, which the extra
``node`` installs. Each name is imported on first use, so that the command line starts without any
of them.

The subpackages below (``lockstep.engine``, ``lockstep.api``, …) are not public.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.spec.job import JobSpec as Job
    from lockstep.engine.task.dropout import Dropout
    from lockstep.engine.task.interface import Task

__all__ = ["Client", "Dropout", "Job", "Task"]

_MODULES: Final = {
    "Client": ("lockstep.client.api", "Client"),
    "Dropout": ("lockstep.engine.task.dropout", "Dropout"),
    "Job": ("lockstep.domain.spec.job", "JobSpec"),
    "Task": ("lockstep.engine.task.interface", "Task"),
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'lockstep' has no attribute {name!r}")
    module, attribute = _MODULES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
