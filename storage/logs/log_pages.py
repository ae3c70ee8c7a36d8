"""Log pages in both directions, filtered by rank, stream, text and time.

A cursor is a position between two lines: an attempt, and the line that follows. A page begins
exactly where the previous one ended, also after appends, and the same cursor works in both
directions.

One page reads a limited number of chunk headers and opens a limited number of chunks. A page that
is not full reports where the search stopped; the caller continues from there.

Not here: the storage of lines (``storage.logs.logs``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, func, or_, select, tuple_
from sqlalchemy.orm import Session, undefer

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.views import LogLine
from lockstep.storage.db.series_tables import LogChunkRow, LogTotalRow
from lockstep.storage.logs.logs import unpack

CHUNKS_PER_PAGE: Final = 64
"""A page opens at most so many chunks (16 MiB of text)."""
HEADERS_PER_PAGE: Final = 4096
"""A page passes over at most so many chunks by their headers: a log of 1 GiB in chunks that are
full."""
CHUNKS_AT_ONCE: Final = 8
"""Rows that one statement brings at most; a page that is full after two does not pay for 64."""


CURSOR: Final = r"^([0-9]{1,9})\.([0-9]{1,18})$"


class Position(NamedTuple):
    """A position between two lines: before this one."""

    attempt: int
    line: int

    def encode(self) -> str:
        return f"{self.attempt}.{self.line}"


class LogSelection(NamedTuple):
    """Filter for lines; None matches all."""

    attempt: int | None = None
    rank: int | None = None
    stream: str | None = None
    search: str | None = None
    """Part of the line, upper or lower case."""
    since: float | None = None
    """Written then or later, in seconds since the epoch."""
    until: float | None = None
    """Written before that."""


class Slice(NamedTuple):
    """Some lines that follow each other, oldest first, and the positions before and after them."""

    lines: list[LogLine]
    next_cursor: str
    """Cursor of the next page, also if there are no lines yet."""
    prev_cursor: str | None
    """Cursor of the previous page; None if there is none."""


def page(
    session: Session,
    job_id: str,
    chosen: LogSelection = LogSelection(),  # noqa: B008 -- immutable
    *,
    limit: int,
    cursor: str | None = None,
    before: str | None = None,
    from_end: bool = False,
) -> Slice:
    """Return one page of a job's log, oldest line first.

    Parameters
    ----------
    session : Session
        A read transaction: its statements read one snapshot.
    job_id : str
    chosen : LogSelection
    limit : int
        Most lines. A page may have fewer before the end of the log (:func:`at_end`).
    cursor : str, optional
        Lines after this position; None begins at the first.
    before : str, optional
        The last lines before this position.
    from_end : bool
        The last lines of the log. At most one of ``cursor``, ``before`` and ``from_end``.

    Returns
    -------
    Slice

    Raises
    ------
    LockstepError
        ``INVALID`` for a cursor that is not from a page.
    """
    last = end(session, job_id, attempt=chosen.attempt)
    if before is not None or from_end:
        after = last if before is None else decode(before)
        lines, start = _backward(session, job_id, _Sieve(chosen), limit, after)
    else:
        start = decode(cursor) if cursor is not None else Position(0, 0)
        lines, after = _forward(session, job_id, _Sieve(chosen), limit, (start, last))
    earlier = (
        _of(job_id, chosen.attempt, select(LogChunkRow.id)).where(_position() < _at(start)).limit(1)
    )
    has_earlier = session.execute(earlier).first() is not None
    return Slice(lines, after.encode(), start.encode() if has_earlier else None)


def at_end(session: Session, job_id: str, cursor: str, *, attempt: int | None = None) -> bool:
    """Return whether all stored lines are before the cursor."""
    return decode(cursor) >= end(session, job_id, attempt=attempt)


def end(session: Session, job_id: str, *, attempt: int | None = None) -> Position:
    """The position behind everything stored so far."""
    statement = select(LogTotalRow.attempt, LogTotalRow.lines).where(LogTotalRow.job_id == job_id)
    if attempt is not None:
        statement = statement.where(LogTotalRow.attempt == attempt)
    row = session.execute(statement.order_by(LogTotalRow.attempt.desc()).limit(1)).one_or_none()
    return Position(attempt or 0, 0) if row is None else Position(row.attempt, row.lines)


def decode(cursor: str) -> Position:
    """The position that a cursor means.

    Raises
    ------
    LockstepError
        ``INVALID`` for a cursor that is not from a page.
    """
    match = re.fullmatch(CURSOR, cursor)
    if match is None:
        raise LockstepError(
            ErrorCode.INVALID,
            f"{cursor!r} is not a cursor of this log",
            next_step="Use next_cursor or prev_cursor of a page.",
        )
    return Position(int(match[1]), int(match[2]))


class _Sieve:
    """Filter of chunks and of their lines."""

    def __init__(self, chosen: LogSelection):
        self.chosen = chosen
        self._search = chosen.search.casefold() if chosen.search is not None else None

    def headers(self) -> list[ColumnElement[bool]]:
        """By the headers; the compressed text itself cannot be searched in SQL."""
        chosen = self.chosen
        conditions: list[ColumnElement[bool]] = []
        # Times first: they are in the index and avoid row reads.
        if chosen.since is not None:
            conditions.append(
                or_(LogChunkRow.time_max.is_(None), LogChunkRow.time_max >= chosen.since)
            )
        if chosen.until is not None:
            conditions.append(
                or_(LogChunkRow.time_min.is_(None), LogChunkRow.time_min < chosen.until)
            )
        if chosen.rank is not None:
            conditions.append(
                or_(LogChunkRow.sources == "", LogChunkRow.sources.like(f"% {chosen.rank}:%"))
            )
        if chosen.stream is not None:
            conditions.append(
                or_(LogChunkRow.sources == "", LogChunkRow.sources.like(f"%:{chosen.stream} %"))
            )
        return conditions

    def wants(self, line: list[Any]) -> bool:
        time, rank, stream, text = line
        chosen = self.chosen
        return (
            (chosen.rank is None or rank == chosen.rank)
            and (chosen.stream is None or stream == chosen.stream)
            and (chosen.since is None or time >= chosen.since)
            and (chosen.until is None or time < chosen.until)
            and (self._search is None or self._search in text.casefold())
        )


def _of(
    job_id: str, attempt: int | None, statement: Select[*tuple[Any, ...]]
) -> Select[*tuple[Any, ...]]:
    statement = statement.where(LogChunkRow.job_id == job_id)
    return statement if attempt is None else statement.where(LogChunkRow.attempt == attempt)


def _position() -> Any:
    # Compared as a pair both databases find a position by the index, however long the log is.
    return tuple_(LogChunkRow.attempt, LogChunkRow.first_line)


def _at(position: Position) -> Any:
    return tuple_(position.attempt, position.line)


def _forward(
    session: Session, job_id: str, sieve: _Sieve, limit: int, bounds: tuple[Position, Position]
) -> tuple[list[LogLine], Position]:
    """The lines from ``bounds[0]`` on, and where the next page begins.

    ``bounds[1]`` is the end of the log.
    """
    start, last = bounds
    # The chunk that holds the first line begins at it, or before.
    holds = select(func.max(LogChunkRow.first_line)).where(
        LogChunkRow.job_id == job_id,
        LogChunkRow.attempt == start.attempt,
        LogChunkRow.first_line <= start.line,
    )
    first = Position(start.attempt, session.execute(holds).scalar_one() or 0)
    walk = _Walk(session, job_id, sieve, first, forward=True)
    found: list[LogLine] = []
    position = start
    for chunk in walk.chunks():
        for number, line in enumerate(unpack(chunk.lines), start=chunk.first_line):
            here = Position(chunk.attempt, number)
            if here < position:
                continue
            if len(found) == limit:
                return found, position
            position = Position(chunk.attempt, number + 1)
            if sieve.wants(line):
                found.append(_line(here, line))
    if walk.stopped_at is None:
        return found, max(position, last)
    return found, max(position, walk.stopped_at)


def _backward(
    session: Session, job_id: str, sieve: _Sieve, limit: int, after: Position
) -> tuple[list[LogLine], Position]:
    """The last lines before ``after``, oldest first, and the position before the first of them."""
    walk = _Walk(session, job_id, sieve, after, forward=False)
    found: list[LogLine] = []
    for chunk in walk.chunks():
        lines = unpack(chunk.lines)
        for number in range(chunk.first_line + len(lines) - 1, chunk.first_line - 1, -1):
            here = Position(chunk.attempt, number)
            line = lines[number - chunk.first_line]
            if here >= after or not sieve.wants(line):
                continue
            found.append(_line(here, line))
            if len(found) == limit:
                return found[::-1], here
    return found[::-1], walk.stopped_at or Position(0, 0)


class _Walk:
    """Chunks in order from a position, within the bounds of one page."""

    def __init__(
        self, session: Session, job_id: str, sieve: _Sieve, start: Position, *, forward: bool
    ):
        self._session = session
        self._forward = forward
        self._start = start
        headers = sieve.headers()
        self._passes_over = bool(headers)
        self._ordered = _of(job_id, sieve.chosen.attempt, select(LogChunkRow)).where(*headers)
        self._ordered = self._ordered.options(undefer(LogChunkRow.lines)).order_by(*self._order())
        self._ordered_positions = _of(
            job_id, sieve.chosen.attempt, select(LogChunkRow.attempt, LogChunkRow.first_line)
        )
        self.stopped_at: Position | None = None
        """Position where the search reached its limit; None at the end of the log."""

    def chunks(self) -> Iterator[LogChunkRow]:
        horizon = self._horizon()
        opened, at_once = 0, 1
        position, inclusive = self._start, self._forward
        while opened < CHUNKS_PER_PAGE:
            at_once = min(2 * at_once, CHUNKS_AT_ONCE, CHUNKS_PER_PAGE - opened)
            statement = self._ordered.where(self._beyond(position, inclusive)).limit(at_once)
            if horizon is not None:
                statement = statement.where(
                    _position() < _at(horizon) if self._forward else _position() >= _at(horizon)
                )
            rows = self._session.scalars(statement).all()
            for chunk in rows:
                # Before the yield: the consumer may not resume.
                position, inclusive = Position(chunk.attempt, chunk.first_line), False
                yield chunk
            opened += len(rows)
            if len(rows) < at_once:
                self.stopped_at = horizon
                return
        self.stopped_at = (
            Position(chunk.attempt, chunk.first_line + chunk.line_count)
            if self._forward
            else position
        )

    def _horizon(self) -> Position | None:
        """Offset of the first chunk that this page may not read, or of the last it may."""
        if not self._passes_over:
            return None
        ahead = self._ordered_positions.where(self._beyond(self._start, self._forward)).order_by(
            *self._order()
        )
        ahead = ahead.offset(HEADERS_PER_PAGE if self._forward else HEADERS_PER_PAGE - 1).limit(1)
        row = self._session.execute(ahead).one_or_none()
        return Position(*row) if row is not None else None

    def _order(self) -> tuple[Any, Any]:
        if self._forward:
            return LogChunkRow.attempt, LogChunkRow.first_line
        return LogChunkRow.attempt.desc(), LogChunkRow.first_line.desc()

    def _beyond(self, position: Position, inclusive: bool) -> ColumnElement[bool]:
        found: ColumnElement[bool]
        if self._forward:
            found = _position() >= _at(position) if inclusive else _position() > _at(position)
        else:
            found = _position() < _at(position)
        return found


def _line(position: Position, line: list[Any]) -> LogLine:
    time, rank, stream, text = line
    return LogLine(
        line=position.line,
        attempt=position.attempt,
        time=datetime.fromtimestamp(time, UTC),
        rank=rank,
        stream=stream,
        text=text,
    )
