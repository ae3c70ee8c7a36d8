"""The training engine: what runs inside the ranks, and the launcher that starts them.

``from engine import Dropout, Task`` is the whole interface of a person's own task. Both are loaded on first use, because
the launcher and the stub of script jobs are in this package too and must start without importing torch's modules.

Not here: where a job runs and what becomes of its numbers. The engine knows one folder of files
(``domain.attempt``), no database, no broker and none of their credentials.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.dropout import Dropout
    from engine.task import Task

__all__ = ["Dropout", "Task"]


def __getattr__(name: str) -> object:
    if name == "Task":
        from engine.task import Task

        return Task
    if name == "Dropout":
        from engine.dropout import Dropout

        return Dropout
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
