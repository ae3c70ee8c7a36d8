"""From what the entity tags of lists are made: marks that are cheap to read and change whenever the list does.

Not here: how tags are compared (``api.conditional``), and that of one job (``api.views.job_tag``).
"""

from __future__ import annotations

from collections.abc import Sequence

from api import conditional
from api.views import node_is_lost
from storage import follows, jobs, nodes
from storage.clock import now
from storage.database import Database, Session


def of_jobs(database: Database, marks: Sequence[jobs.Mark], *, limit: int, knows_nodes: bool | None) -> str:
    """The tag of a page of jobs.

    Parameters
    ----------
    database : Database
    marks : sequence of Mark
        Of the page's jobs, and of the one behind it, if there is one.
    limit : int
        Jobs on the page, at most.
    knows_nodes : bool or None
        As :func:`knows_nodes` says it.
    """
    shown = marks[:limit]
    placed = [mark.id for mark in shown if mark.was_placed]
    batches = {}
    if placed:
        with database.read_series() as session:
            batches = follows.counts(session, placed)
    lines = [(mark.id, mark.version, batches.get(mark.id, 0)) for mark in shown]
    return conditional.tag_of(conditional.digest([*lines, len(marks) > limit, knows_nodes]))


def knows_nodes(session: Session, *, is_unseen: bool) -> bool | None:
    """Whether a node was ever registered, where a job shows it: one that is queued and was not looked at yet."""
    return bool(nodes.largest_ever(session)) if is_unseen else None


def of_nodes(session: Session, *, lease_seconds: float) -> str:
    """The tag of the list of nodes. A node is lost by time alone, so that whether it is belongs to the tag."""
    marks = nodes.marks(session)
    at = now(session)
    lost = [node_is_lost(mark.seen_at, now=at, lease_seconds=lease_seconds) for mark in marks.nodes]
    return conditional.tag_of(conditional.digest([*marks.nodes, *marks.devices, lost]))
