"""Types of the three notifications: their arguments and queues.

A consumer registers a task under the type's ``task`` name and gets ``arguments()``::

    @app.task(name=StartAssignment.task)
    def start(assignment_id: str) -> None: ...

Handling one takes milliseconds, and may find nothing to do.

Not here: the publisher (``broker.publisher``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from lockstep.broker.queues import CONTROL, node_queue


@dataclass(frozen=True)
class WakeScheduler:
    """Look at the queue now: a job was submitted, or devices came free."""

    task: ClassVar[str] = "lockstep.ring_scheduler"

    @property
    def queue(self) -> str:
        return CONTROL

    def arguments(self) -> tuple[str, ...]:
        return ()


@dataclass(frozen=True)
class _ToNode:
    assignment_id: str
    node_name: str
    """Target queue; not part of the message."""

    @property
    def queue(self) -> str:
        return node_queue(self.node_name)

    def arguments(self) -> tuple[str, ...]:
        return (self.assignment_id,)


@dataclass(frozen=True)
class StartAssignment(_ToNode):
    """An assignment waits for this node: claim it and launch."""

    task: ClassVar[str] = "lockstep.start_assignment"


@dataclass(frozen=True)
class StopAssignment(_ToNode):
    """Request to stop this assignment: its intent is read now instead of at the next heartbeat."""

    task: ClassVar[str] = "lockstep.stop_assignment"


Message = WakeScheduler | StartAssignment | StopAssignment


class Notifier(Protocol):
    """Sender of notifications. It never blocks and never raises: every message may be lost."""

    def publish(self, message: Message) -> None: ...
