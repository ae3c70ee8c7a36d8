"""Log lines: appended in batches, kept compressed.

Lines of one attempt are numbered from 0 in the order in which they were stored, over all its ranks.

A log over its limit keeps head and end. The appending transaction deletes the middle, oldest chunk
first, and puts a line of the launcher in its place, under the number of the last deleted line.

After a job's log retention such a line remains for each attempt.

Not here: reads (``storage.logs.log_pages``), the way of lines to the agent (``engine.launcher``),
and the fence (``storage.series.streams``).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from sqlalchemy import bindparam, delete, insert, select
from sqlalchemy.orm import Session

from lockstep.domain import limits
from lockstep.domain.life.attempt import LogRecord
from lockstep.domain.training.memory import in_words
from lockstep.storage.db.dialects import for_each, run, table_of, write
from lockstep.storage.db.series_tables import LogChunkRow, LogTotalRow
from lockstep.storage.series import streams
from lockstep.storage.series.series import bump

CHUNK_LINES: Final = 512
CHUNK_BYTES: Final = 256 * 1024
"""A chunk is closed at either, before compression; one line alone may be longer."""
SOURCES_CHARS_MAX: Final = 2000
DROPS: Final = 16
"""A log over its limit loses 1/DROPS of the limit at once."""


class LogOffset(NamedTuple):
    """An offset in an attempt's log segments."""

    segment: int
    offset: int
    """Bytes into that segment."""


def append(
    session: Session,
    *,
    assignment_id: str,
    token: str,
    offset_before: tuple[int, int],
    offset_after: tuple[int, int],
    records: Sequence[LogRecord],
    bytes_max: int = limits.LOG_BYTES_PER_ATTEMPT_MAX,
) -> bool:
    """Store a piece of an assignment's logs.

    Parameters
    ----------
    session : Session
    assignment_id, token : str
    offset_before, offset_after : (segment, offset)
        Offsets before and after the piece. It is stored only if it begins at the stored offset.
    records : sequence of LogRecord
    bytes_max : int
        Limit of one attempt's stored text, up to the size of one append.

    Returns
    -------
    bool
        False, and nothing stored, if the token is stale, the stream is sealed, or the piece was
        stored before.
    """
    before, after = (
        {"log_segment": segment, "log_offset": offset}
        for segment, offset in (offset_before, offset_after)
    )
    stream = streams.advance(session, assignment_id, token, before, after)
    if stream is None:
        return False
    bump(session, stream.job_id)
    if records:
        lines = [[record.time, record.rank, record.stream, record.text] for record in records]
        total = _store(session, stream.job_id, stream.attempt, lines)
        # Not at every append, because it reads every chunk of the attempt.
        piece = max(1, bytes_max // DROPS)
        if (
            total > bytes_max
            and total // piece > (total - sum(_bytes(line) for line in lines)) // piece
        ):
            _drop_middle(session, stream.job_id, stream.attempt, bytes_max, now=records[-1].time)
    return True


def _store(session: Session, job_id: str, attempt: int, lines: list[list[Any]]) -> int:
    """Write lines behind those that are there.

    The bytes of text that the attempt has written so far.
    """
    size = sum(_bytes(line) for line in lines)
    counted = {"job_id": job_id, "attempt": attempt, "lines": len(lines), "text_bytes": size}
    # The row is locked now, so another node of the same gang cannot take the same numbers.
    end, total_bytes = run(session, _COUNTED, counted).one()
    first = end - len(lines)
    tail = run(session, _TAIL, {"of_job": job_id, "of_attempt": attempt}).one_or_none()
    if (
        tail is not None
        and tail.line_count + len(lines) <= CHUNK_LINES
        and tail.text_bytes + size <= CHUNK_BYTES
    ):
        first, lines = tail.first_line, unpack(tail.lines) + lines
        write(session, delete(LogChunkRow).where(LogChunkRow.id == tail.id))
    rows = []
    for part in _parts(lines):
        rows.append(_chunk_row(job_id, attempt, first, part))
        first += len(part)
    run(session, _ADDED, rows)
    return int(total_bytes)


_TOTAL: Final = table_of(LogTotalRow)
_COUNTED: Final = for_each(
    LogTotalRow,
    lambda insert: insert.on_conflict_do_update(
        index_elements=["job_id", "attempt"],
        set_={name: _TOTAL.c[name] + insert.excluded[name] for name in ("lines", "text_bytes")},
    ).returning(_TOTAL.c.lines, _TOTAL.c.text_bytes),
)
_CHUNK: Final = table_of(LogChunkRow)
_TAIL: Final = (
    select(
        _CHUNK.c.id, _CHUNK.c.first_line, _CHUNK.c.line_count, _CHUNK.c.text_bytes, _CHUNK.c.lines
    )
    .where(_CHUNK.c.job_id == bindparam("of_job"), _CHUNK.c.attempt == bindparam("of_attempt"))
    .order_by(_CHUNK.c.first_line.desc())
    .limit(1)
)
_ADDED: Final = insert(_CHUNK)
_NOTED: Final = for_each(LogChunkRow, lambda insert: insert.on_conflict_do_nothing())
"""Return a chunk that another transaction may have inserted at the same time."""


class _Extent(NamedTuple):
    first_line: int
    line_count: int
    text_bytes: int


def _drop_middle(session: Session, job_id: str, attempt: int, bytes_max: int, now: float) -> None:
    """Delete chunks after the head until the rest fits, and insert a line in their place."""
    ours = LogChunkRow.job_id == job_id, LogChunkRow.attempt == attempt
    extents = select(LogChunkRow.first_line, LogChunkRow.line_count, LogChunkRow.text_bytes).where(
        *ours
    )
    chunks = [_Extent(*row) for row in session.execute(extents.order_by(LogChunkRow.first_line))]
    excess = sum(chunk.text_bytes for chunk in chunks) - (bytes_max - bytes_max // DROPS)
    start = end = _head(chunks, bytes_max // 4)
    while end < len(chunks) - 1 and excess > 0:
        excess -= chunks[end].text_bytes
        end += 1
    if end == start:
        return
    first, last = (
        chunks[start].first_line,
        chunks[end - 1].first_line + chunks[end - 1].line_count - 1,
    )
    write(session, delete(LogChunkRow).where(*ours, LogChunkRow.first_line.between(first, last)))
    count = last + 1 - (chunks[start - 1].first_line + chunks[start - 1].line_count)
    text = (
        f"… {count:,} lines left out: the log of an attempt is limited to {in_words(bytes_max)}, "
        "its beginning and its end …"
    )
    run(session, _ADDED, [_chunk_row(job_id, attempt, last, [[now, -1, "launcher", text]])])


def leave_notes(session: Session, job_id: str, why: str, *, now: float) -> None:
    """Insert a line of the launcher in each attempt after all lines of a job were deleted."""
    totals = select(LogTotalRow.attempt, LogTotalRow.lines).where(
        LogTotalRow.job_id == job_id, LogTotalRow.lines > 0
    )
    notes = [
        _chunk_row(
            job_id,
            attempt,
            lines - 1,
            [[now, -1, "launcher", f"… {_counted(lines)} deleted: {why} …"]],
        )
        for attempt, lines in session.execute(totals)
    ]
    if notes:
        run(session, _NOTED, notes)


def _counted(lines: int) -> str:
    return f"{lines:,} line{'s' if lines != 1 else ''}"


def _head(chunks: Sequence[_Extent], bytes_: int) -> int:
    """Return the number of chunks in the head: up to a size, or up to an earlier gap."""
    size = 0
    for count, (chunk, following) in enumerate(pairwise(chunks), start=1):
        size += chunk.text_bytes
        if size >= bytes_ or chunk.first_line + chunk.line_count < following.first_line:
            return count
    return len(chunks)


def _parts(lines: list[list[Any]]) -> Iterator[list[list[Any]]]:
    part: list[list[Any]] = []
    size = 0
    for line in lines:
        if part and (len(part) == CHUNK_LINES or size + _bytes(line) > CHUNK_BYTES):
            yield part
            part, size = [], 0
        part.append(line)
        size += _bytes(line)
    yield part


def _chunk_row(
    job_id: str, attempt: int, first_line: int, lines: list[list[Any]]
) -> dict[str, Any]:
    times = [line[0] for line in lines]
    sources = " ".join(sorted({f"{rank}:{stream}" for _time, rank, stream, _text in lines}))
    return {
        "job_id": job_id,
        "attempt": attempt,
        "first_line": first_line,
        "line_count": len(lines),
        "text_bytes": sum(_bytes(line) for line in lines),
        "sources": f" {sources} " if len(sources) + 2 <= SOURCES_CHARS_MAX else "",
        "time_min": min(times),
        "time_max": max(times),
        "lines": zlib.compress(json.dumps(lines, separators=(",", ":")).encode("ascii"), level=3),
    }


def _bytes(line: list[Any]) -> int:
    return len(line[3].encode("utf-8", "surrogatepass"))


def unpack(packed: bytes) -> list[list[Any]]:
    """The lines of a chunk, each ``[time, rank, stream, text]``."""
    lines: list[list[Any]] = json.loads(zlib.decompress(packed))
    return lines
