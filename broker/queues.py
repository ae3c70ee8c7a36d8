"""The queues' names: one for the control plane, one per node.

Not here: how a queue becomes Celery's (``broker.app``).
"""

from __future__ import annotations

from typing import Final

CONTROL: Final = "control"
"""Schedulers listen here; any of them may answer."""


def node_queue(node_name: str) -> str:
    """The queue that one node's agent listens to."""
    return f"node.{node_name}"
