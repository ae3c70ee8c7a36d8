"""New points of a job's series since an earlier read, for clients that keep the earlier points.

A cursor holds the number of points read of each series, and the hidden points of earlier attempts.
If a later attempt has hidden more since, the answer is complete and replaces the earlier points. A
client therefore either appends or replaces, and no curve goes backwards.

Not here: reads of points (``storage.series.series_query``), and cursors of logs
(``storage.logs.log_pages``).
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Collection, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypedDict

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.db.dialects import run, table_of
from lockstep.storage.db.series_tables import SeriesLatestRow
from lockstep.storage.series import series_query

_LETTER: Final = "[A-Za-z0-9_-]"
CURSOR: Final = f"^({_LETTER}{{56}})*{_LETTER}{{11}}({_LETTER}{{19}}({_LETTER}{{18}})?)?$"
"""Base64 of eight bytes and any number of entries of fourteen bytes: three entries are 56
letters."""
JOB_CHARS: Final = 12
LIVE_CURSOR: Final = rf"^[0-9a-f]{{{JOB_CHARS}}}\.[0-9]{{1,18}}\.{CURSOR.removeprefix('^')}"
"""Cursor of one job: the end of its id, its newest event, and a cursor of its points."""
CURSOR_LENGTH_MAX: Final = 32_000
"""Enough for as many series as one job may have."""
_HIDDEN_BYTES: Final = 8
_ENTRY: Final = struct.Struct(">6sQ")
"""A digest of a series' name, which a thousand names do not share, and how many of its points were
read."""


class _Selection(TypedDict):
    """Selection of points, as :func:`storage.series.series_query.read_jobs` takes it."""

    names: Collection[str] | None
    from_step: int | None
    to_step: int | None
    max_points: int
    attempts: series_query.Attempts


class Tail(NamedTuple):
    """Answer to a client that follows a job."""

    curves: list[series_query.SeriesData]
    cursor: str
    """Cursor of the next read."""
    complete: bool
    """True if the answer replaces earlier ones; False if it holds only new points."""


def read(
    session: Session,
    job_id: str,
    *,
    since: str | None = None,
    names: Collection[str] | None = None,
    from_step: int | None = None,
    to_step: int | None = None,
    max_points: int = limits.SERIES_POINTS_MAX,
    attempts: series_query.Attempts = "current",
    place: str = "",
) -> Tail:
    """Return series of one job, or their new points after a cursor.

    Parameters
    ----------
    session : Session
        A read transaction with one snapshot.
    job_id : str
    since : str, optional
        ``cursor`` of the previous answer to the same query.
    names, from_step, to_step, max_points, attempts
        As for :func:`storage.series.series_query.read_jobs`. New points beyond ``max_points`` are
        reduced to buckets, too.
    place : str
        Place of the databases: a cursor of another one gets everything. After a restore its counts
        may be reached again by other points.

    Raises
    ------
    LockstepError
        ``INVALID`` for a cursor that is not from an answer.
    """
    return read_jobs(
        session,
        [job_id],
        since=() if since is None else (since,),
        names=names,
        from_step=from_step,
        to_step=to_step,
        max_points=max_points,
        attempts=attempts,
        place=place,
    )[job_id]


def read_jobs(
    session: Session,
    job_ids: Sequence[str],
    *,
    since: Sequence[str] = (),
    names: Collection[str] | None = None,
    from_step: int | None = None,
    to_step: int | None = None,
    max_points: int = limits.SERIES_POINTS_MAX,
    attempts: series_query.Attempts = "current",
    place: str = "",
) -> dict[str, Tail]:
    """Return series of some jobs, or with ``since``, a cursor for each, their new points.

    See :func:`read`.
    """
    # Those of all jobs at once, which takes a fraction of the time.
    hidden = _hidden(session, job_ids, attempts, place)
    counts = _counts(session, job_ids, names)
    selection: _Selection = {
        "names": names,
        "from_step": from_step,
        "to_step": to_step,
        "max_points": max_points,
        "attempts": attempts,
    }
    found: dict[str, Tail] = {}
    for job_id, cursor in zip(job_ids, since, strict=True) if since else ():
        hidden_then, counts_then = _decode(cursor)
        now = counts[job_id]
        read_then = {name: counts_then.get(_short(name), 0) for name in now}
        # Fewer than were read then: the database is not the one that was read.
        if hidden_then != hidden[job_id] or any(read_then[name] > now[name] for name in now):
            continue
        after = {name: read_then[name] for name in now if read_then[name] < now[name]}
        # Of hundreds of jobs, most have nothing new.
        more = series_query.read(session, job_id, **selection, after=after) if after else []
        found[job_id] = Tail(more, _encode(hidden[job_id], now), False)
    whole = [job_id for job_id in job_ids if job_id not in found]
    curves = series_query.read_jobs(session, whole, **selection) if whole else {}
    for job_id in whole:
        found[job_id] = Tail(curves[job_id], _encode(hidden[job_id], counts[job_id]), True)
    return found


def _hidden(
    session: Session, job_ids: Sequence[str], attempts: series_query.Attempts, place: str
) -> dict[str, bytes]:
    """Return for each job a digest of the place and of which points a later attempt hides."""
    ends = {} if attempts == "all" else series_query.visible_until(session, job_ids)
    return {
        job_id: _digest(place, {key: end for key, end in ends.items() if key[0] == job_id})
        for job_id in job_ids
    }


_LATEST: Final = table_of(SeriesLatestRow).c
_COUNTS: Final = (
    select(_LATEST.job_id, _LATEST.name, _LATEST.point_count)
    .where(_LATEST.job_id.in_(bindparam("job_ids", expanding=True)))
    .order_by(_LATEST.name)
)
_COUNTS_OF_NAMES: Final = _COUNTS.where(_LATEST.name.in_(bindparam("names", expanding=True)))


def _counts(
    session: Session, job_ids: Sequence[str], names: Collection[str] | None
) -> dict[str, dict[str, int]]:
    asked: dict[str, Any] = {"job_ids": job_ids}
    statement = _COUNTS
    if names is not None:
        statement, asked["names"] = _COUNTS_OF_NAMES, list(names)
    found: dict[str, dict[str, int]] = {job_id: {} for job_id in job_ids}
    for job_id, name, count in run(session, statement, asked):
        found[job_id][name] = count
    return found


def joined(earlier: str, later: str) -> str | None:
    """Return ``later`` with what ``earlier`` has read of other series.

    A reader who selects other series for a while then goes on where it was with the first ones.
    None if the cursor would be longer than a cursor may be.
    """
    hidden, counts = _decode(later)
    both = _packed(hidden, {**_decode(earlier)[1], **counts})
    return both if len(both) <= CURSOR_LENGTH_MAX else None


def _encode(hidden: bytes, counts: Mapping[str, int]) -> str:
    return _packed(hidden, {_short(name): count for name, count in counts.items()})


def _packed(hidden: bytes, counts: Mapping[bytes, int]) -> str:
    entries = b"".join(_ENTRY.pack(short, count) for short, count in counts.items())
    return base64.urlsafe_b64encode(hidden + entries).rstrip(b"=").decode()


def _decode(cursor: str) -> tuple[bytes, dict[bytes, int]]:
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        (hidden,) = struct.unpack_from(f"{_HIDDEN_BYTES}s", data)
        return hidden, dict(_ENTRY.iter_unpack(data[_HIDDEN_BYTES:]))
    except (ValueError, struct.error):
        raise LockstepError(
            ErrorCode.INVALID,
            f"since={cursor[:40]!r} is not a cursor of a job's series",
            next_step="Use cursor of the previous response, or omit since.",
        ) from None


def _digest(place: str, ends: Mapping[tuple[str, int], float]) -> bytes:
    return blake2b(repr((place, sorted(ends.items()))).encode(), digest_size=_HIDDEN_BYTES).digest()


def _short(name: str) -> bytes:
    return blake2b(name.encode(), digest_size=6).digest()
