"""From what the entity tags of lists are made: marks that are cheap to read and change whenever the list does.

Not here: how tags are compared (``api.http.conditional``), and that of one job (``api.jobs.views.job_tag``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep.api.http import conditional
from lockstep.api.jobs.views import node_is_lost
from lockstep.storage.attempts import nodes
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import change_feed, listing


def of_jobs(
    database: Database,
    marks: Sequence[listing.Mark],
    *,
    limit: int,
    knows_nodes: bool | None,
    starts: Mapping[str, float],
) -> str:
    """The tag of a page of jobs.

    Parameters
    ----------
    database : Database
    marks : sequence of Mark
        Of the page's jobs, and of the one behind it, if there is one.
    limit : int
        Jobs on the page, at most.
    knows_nodes : bool or None
        Whether a node was ever registered, where a job shows it: one that is queued and was not looked at yet.
    starts : mapping of job id to seconds since the epoch
        What queued jobs show of when they start.
    """
    shown = marks[:limit]
    placed = [mark.id for mark in shown if mark.was_placed]
    batches = {}
    if placed:
        with database.look_series() as look:
            batches = change_feed.counts(look, placed)
    lines = [(mark.id, mark.version, batches.get(mark.id, 0), starts.get(mark.id)) for mark in shown]
    return conditional.tag_of(conditional.digest([*lines, len(marks) > limit, knows_nodes]))


def of_nodes(marks: nodes.Marks, *, now: float, lease_seconds: float) -> str:
    """The tag of the list of nodes. A node is lost by time alone, so that whether it is belongs to the tag."""
    lost = [node_is_lost(mark.seen_at, now=now, lease_seconds=lease_seconds) for mark in marks.nodes]
    return conditional.tag_of(conditional.digest([*marks.nodes, *marks.devices, lost]))
