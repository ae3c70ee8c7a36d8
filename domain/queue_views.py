"""Responses of the HTTP API about the queue: places, reasons for waiting, and shares.

Not here: the decision behind them (``domain.scheduling``).
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel

from lockstep.domain.scheduling.state import WaitCode
from lockstep.domain.schema_docs import Described


class _QueueView(Described, BaseModel, frozen=True, defer_build=True):
    """A response or a part of one."""


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
