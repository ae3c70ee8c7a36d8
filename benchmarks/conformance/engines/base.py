"""Interface of an adapter, which trains one case on one rank as the engine's documentation shows.

Not here: the adapters (``benchmarks.conformance.engines``, one module each).
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from typing import ClassVar

from benchmarks.conformance.case import Case
from benchmarks.conformance.gang import RankIdentity
from benchmarks.conformance.observer import Observer


class Engine(ABC):
    """Engine under test. Ranks receive it by pickle, so it holds no state."""

    name: ClassVar[str]
    page: ClassVar[str]
    """Address of the documentation that the adapter follows."""
    needs: ClassVar[str | None] = None
    """Name of the module that must be installed."""
    reports_loss: ClassVar[bool] = False
    """True if the engine, or the loop that represents it, reports the loss of an update."""

    def missing(self) -> str | None:
        """Return the reason why this engine cannot run here, or None."""
        package = (self.needs or "lockstep").partition(".")[0]
        return None if importlib.util.find_spec(package) else f"{package} is not installed"

    def refusal(self, case: Case) -> str | None:
        """Return the reason why this engine does not support a case, or None if it does.

        The default is for an engine without checkpoints whose batch is the product of micro-batch
        size and number of micro-batches: cases with another batch or with a checkpoint are not
        supported.
        """
        if (
            case.batch is not None
            and case.batch != case.world_size * case.micro_size * case.micro_batches
        ):
            return "its batch is always ranks × micro-batch × K"
        if case.checkpoint_at is not None:
            return "it keeps no place in the data"
        return None

    @abstractmethod
    def train(self, case: Case, place: RankIdentity, observer: Observer) -> None:
        """Train ``case`` to its end, with the observer's model and loss. All ranks must call this.

        With several ranks, the process group is initialised before the call.
        """
