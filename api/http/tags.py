"""Entity tags of lists, built from values that are cheap to read and change with the list.

Not here: comparing tags (``api.http.conditional``), the tag of one job
(``api.jobs.views.job_tag``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lockstep.api.http import conditional
from lockstep.domain.rights import Within
from lockstep.storage.attempts import nodes
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import change_feed, listing


def batches_of(database: Database, marks: Sequence[listing.PageMark]) -> dict[str, int]:
    """Return the number of stored batches of each job that has any."""
    placed = [mark.id for mark in marks if mark.was_placed]
    if not placed:
        return {}
    with database.look_series() as look:
        return change_feed.counts(look, placed)


def of_jobs(
    marks: Sequence[listing.PageMark],
    batches: Mapping[str, int],
    *facts: object,
    starts: Mapping[str, float],
    among: Within,
) -> str:
    """Return the tag of a page of jobs.

    Parameters
    ----------
    marks : sequence of PageMark
        Marks of the page's jobs.
    batches : mapping of job id to int
        Stored batches of these jobs.
    facts : object
        What the response has beside the jobs.
    starts : mapping of job id to seconds since the epoch
        Predicted starts of queued jobs.
    among : Within
        Projects that the reader may read.
    """
    lines = [
        (mark.id, mark.version, batches.get(mark.id, 0), starts.get(mark.id)) for mark in marks
    ]
    return conditional.tag_of(conditional.digest([*lines, *facts, *seen_by(among)]))


def seen_by(among: Within) -> tuple[str, ...]:
    """Return the parts of a tag that differ between readers of different projects."""
    return () if among.projects is None else (conditional.digest(sorted(among.projects)),)


def of_nodes(marks: nodes.Marks, *, now: float, lease_seconds: float, among: Within) -> str:
    """Return the tag of the list of nodes.

    It includes the lost nodes: a node is lost by the passage of time, without a change of its row.
    """
    lost = [
        nodes.is_lost(mark.seen_at, now=now, lease_seconds=lease_seconds) for mark in marks.nodes
    ]
    return conditional.tag_of(
        conditional.digest([*marks.nodes, *marks.devices, lost, *seen_by(among)])
    )
