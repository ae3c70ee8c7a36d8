"""Stream of an attempt in the series database: opened, and opened again after a restore.

Not here: the upload of one file (``worker.upload.file_uploader``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from lockstep.storage.attempts import attempts
from lockstep.storage.db.database import Database
from lockstep.storage.series import streams


class Stream(NamedTuple):
    """Assignment of the metrics and logs, with its token."""

    assignment_id: str
    job_id: str
    attempt_number: int
    token: str


class NotOpenError(Exception):
    """The database has no stream of the attempt, and the attempt may not open one.

    The lease was lost, which the next heartbeat finds out; or a backup of the database is being
    restored.
    """


def opened(database: Database, stream: Stream) -> streams.StreamState | None:
    """Open an attempt's stream if the attempt holds its job; return its state."""
    # Write transactions, here and in ``is_open``: their end proves that the database was whole, so
    # an absent row is not one that a restore has yet to load.
    with database.jobs() as session:
        writer = attempts.writer(session, stream.assignment_id, stream.token)
    with database.series() as session:
        if writer is not None:
            streams.open_stream(session, writer)
        return streams.state(session, stream.assignment_id)


def state_of(
    database: Database, stream: Stream, on_opened: Callable[[], None]
) -> streams.StreamState:
    """Return how far an attempt's stream is.

    A database that has no stream of it was set back, and gets it again. Then ``on_opened`` is
    called: data that other uploaders have stored are missing, too.

    Raises
    ------
    NotOpenError
    """
    with database.read_series() as session:
        state = streams.state(session, stream.assignment_id)
    if state is not None:
        return state
    state = opened(database, stream)
    if state is None:
        raise NotOpenError(
            "the series database has no stream for this attempt, and the jobs database does not "
            "allow a new one"
        )
    on_opened()
    return state


def is_open(database: Database, stream: Stream) -> bool:
    """Return whether an attempt may add to its stream."""
    with database.series() as session:
        return streams.is_open(session, stream.assignment_id, stream.token)
