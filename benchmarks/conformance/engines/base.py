"""What an adapter must do.

Train one case on one rank, the way the engine's documentation tells its users to.

Not here: the adapters, one module each.
"""

from __future__ import annotations

import importlib.util
from abc import ABC, abstractmethod
from typing import ClassVar

from benchmarks.conformance.case import Case
from benchmarks.conformance.gang import RankIdentity
from benchmarks.conformance.observer import Observer


class Engine(ABC):
    """An engine under test. It is sent to the ranks by pickle, so it holds no state."""

    name: ClassVar[str]
    page: ClassVar[str]
    """The documentation that the adapter follows."""
    needs: ClassVar[str | None] = None
    """The module that must be installed."""
    reports_loss: ClassVar[bool] = False
    """Whether the engine, or the loop that stands for it, reports the loss of an update."""

    def missing(self) -> str | None:
        """Why this engine cannot run here, or None."""
        package = (self.needs or "lockstep").partition(".")[0]
        return None if importlib.util.find_spec(package) else f"{package} is not installed"

    def refusal(self, case: Case) -> str | None:
        """Why this engine cannot be asked for a case, or None if it can.

        By default: an engine whose user gives a micro-batch and a number of them cannot be asked
        for another batch than their product, and one without checkpoints cannot be asked for one.
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
        """Train ``case`` to its end, with the observer's model and loss. All ranks call this.

        The process group is up where there are several ranks.
        """
