"""Responses of the HTTP API about the queue: places, reasons for waiting, and shares.

Not here: the decision behind them (``domain.scheduling``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel

from lockstep.domain.scheduling.state import WaitCode
from lockstep.domain.schema_docs import Described


class _QueueView(Described, BaseModel, frozen=True, defer_build=True):
    """A response or a part of one."""


class TimeLimit(_QueueView):
    """Time after which a running job is stopped."""

    seconds: float
    source: Literal["job", "project", "service"] | None
    """Origin: the spec, or a default of its project or of the service; null if it is not known."""


class QueuePlace(_QueueView):
    position: int
    """1 is next."""
    reason: str
    """Reason for waiting, in one sentence."""
    code: WaitCode | None = None
    """Kind of that reason; null from a scheduler of the version before."""
    facts: dict[str, Any] = {}
    """What the sentence says, by code: numbers, names, and times in seconds since the epoch."""
    estimated_start: datetime | None = None
