"""Observations of a drill."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class DrillObservations:
    """Observations while waiting, in seconds from the kill."""

    gone: float | None = None
    noticed: float | None = None
    recovered: float | None = None


@dataclass(frozen=True)
class Steps:
    """The steps of a job, as its series show them."""

    shown: list[int] = field(default_factory=list)
    stored: int = 0
    """Of all attempts, also those that are hidden because a later attempt trained them again."""
    pause_seconds: float = 0.0
