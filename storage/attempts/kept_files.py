"""Files that a job keeps: rows that one agent per node rank writes in rounds, under a valid token.

A round is one transaction: a reader sees the files of this round or of the one before. Its contents
are in the store before it, and a location is never used again, so nothing that a row names changes.
Contents that no row names any more are deleted after the commit.

A round names the revision that it started from. If the database has another one, because files were
deleted or a backup was restored, nothing is written, and the agent reads the rows again.

Not here: contents (``storage.objects.blobs``), the files on a node (``worker.upload.kept``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from sqlalchemy import delete, func, select, update
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.lifecycle import JobState
from lockstep.storage.attempts import events
from lockstep.storage.attempts.checkpoints import fenced
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import for_each, run, upsert, write
from lockstep.storage.db.file_tables import KeptFileRow, KeptRoundRow
from lockstep.storage.db.tables import AttemptRow, JobRow

_BATCH: Final = 500
_LIVE: Final = frozenset({JobState.STARTING, JobState.RUNNING})
_NAMED_MAX: Final = 20
_OF_A_NODE: Final = re.compile(r"node(0|[1-9]\d{0,8})/(.+)", re.DOTALL)
_COLUMNS: Final = (
    KeptFileRow.path,
    KeptFileRow.sha256,
    KeptFileRow.bytes,
    KeptFileRow.modified_at,
    KeptFileRow.executable,
    KeptFileRow.attempt,
    KeptFileRow.location,
)
_PUT: Final = for_each(
    KeptFileRow,
    lambda statement: statement.on_conflict_do_update(
        index_elements=["job_id", "node_rank", "path"],
        set_={
            name: statement.excluded[name]
            for name in ("sha256", "bytes", "modified_at", "executable", "attempt", "location")
        },
    ),
)


class KeptFile(NamedTuple):
    """A stored file."""

    path: str
    """Below the working folder of its node."""
    sha256: str
    bytes: int
    modified_at: float
    executable: bool
    attempt: int
    location: str


class ListedFile(NamedTuple):
    """A stored file of any node rank."""

    node_rank: int
    file: KeptFile
    name: str
    """Its path in the list of the job's files."""


class LastRound(NamedTuple):
    """The newest round of a node rank."""

    attempt: int
    complete: bool
    """True if it came after the end of that attempt's processes."""
    as_of: float
    """On the database's clock."""
    ended_at: float | None
    """End of that attempt."""


class KeptSet(NamedTuple):
    """The files of one node rank."""

    revision: int
    """0 before the first round."""
    files: dict[str, KeptFile]
    """By path."""
    other_files: int
    """Of the job's other node ranks."""
    other_bytes: int
    last: LastRound | None


class Mark(NamedTuple):
    """State of a job's files."""

    revisions: list[int]
    as_of: float | None
    """Time of the last round, on the database's clock."""


class RoundResult(Enum):
    """Result of a round."""

    YES = auto()
    REFUSED = auto()
    """The token is no longer valid."""
    OTHER_REVISION = auto()
    """The rows have changed since they were read."""


class Round(NamedTuple):
    """Changes of one node rank's files."""

    revision: int
    put: Sequence[KeptFile]
    gone: Sequence[str]
    """Paths."""
    complete: bool
    """True if all processes of the attempt have ended."""
    age_seconds: float
    """Time since its beginning."""
    above: int = 0
    """A revision that was there before a restore of the database; the new one is larger."""

    @property
    def next_revision(self) -> int:
        """The revision after it. The first round makes one in any case."""
        changes = bool(self.put or self.gone or not self.revision)
        return max(self.revision, self.above) + changes


def read(session: Session, job_id: str, node_rank: int) -> KeptSet:
    """Return the files of one node rank, and how many others there are."""
    of_job = KeptFileRow.job_id == job_id
    others = select(func.count(), func.coalesce(func.sum(KeptFileRow.bytes), 0))
    count, total = session.execute(others.where(of_job, KeptFileRow.node_rank != node_rank)).one()
    mine = select(*_COLUMNS).where(of_job, KeptFileRow.node_rank == node_rank)
    files = {row.path: KeptFile(*row) for row in session.execute(mine)}
    rounds = (
        select(KeptRoundRow, AttemptRow.ended_at)
        .outerjoin(
            AttemptRow,
            (AttemptRow.job_id == KeptRoundRow.job_id)
            & (AttemptRow.number == KeptRoundRow.attempt),
        )
        .where(KeptRoundRow.job_id == job_id, KeptRoundRow.node_rank == node_rank)
    )
    found = session.execute(rounds).one_or_none()
    if found is None:
        return KeptSet(0, files, count, int(total), None)
    row, ended_at = found
    last = LastRound(row.attempt, row.complete, row.as_of, ended_at)
    return KeptSet(row.revision, files, count, int(total), last)


def publish(session: Session, assignment_id: str, token: str, changes: Round) -> RoundResult:
    """Store a round of the assignment's node rank."""
    attempt = fenced(session, assignment_id, token)
    if attempt is None:
        return RoundResult.REFUSED
    if _revision(session, attempt.job_id, attempt.node_rank) != changes.revision:
        return RoundResult.OTHER_REVISION
    key = {"job_id": attempt.job_id, "node_rank": attempt.node_rank}
    moved = {
        "revision": changes.next_revision,
        "attempt": attempt.number,
        "complete": changes.complete,
        "as_of": db_now() - changes.age_seconds,
    }
    row = upsert(session, KeptRoundRow).values(**key, **moved)
    write(session, row.on_conflict_do_update(index_elements=list(key), set_=moved))
    _delete(session, attempt.job_id, attempt.node_rank, changes.gone)
    for first in range(0, len(changes.put), _BATCH):
        files = changes.put[first : first + _BATCH]
        run(session, _PUT, [{**key, **file._asdict()} for file in files])
    return RoundResult.YES


def of_job(session: Session, job_id: str) -> list[ListedFile]:
    """Return a job's files by name, with those of further nodes below ``node<N>/``.

    A file of the first node with such a name is below ``node0/``, if the names are equal.
    """
    rows = session.execute(
        select(KeptFileRow.node_rank, *_COLUMNS).where(KeptFileRow.job_id == job_id)
    )
    found = [(row[0], KeptFile(*row[1:])) for row in rows]
    further = {f"node{rank}/{file.path}" for rank, file in found if rank}
    listed = [
        ListedFile(rank, file, f"node{rank}/{file.path}")
        if rank or file.path in further
        else ListedFile(rank, file, file.path)
        for rank, file in found
    ]
    return sorted(listed, key=_by_name)


def named(session: Session, job_id: str, name: str) -> KeptFile | None:
    """Return the file with a name of :func:`of_job`."""
    places = [(0, name)]
    if (further := _OF_A_NODE.fullmatch(name)) is not None:
        place = int(further[1]), further[2]
        places = [place, *places] if place[0] else [*places, place]
    for rank, path in places:
        key = (
            KeptFileRow.job_id == job_id,
            KeptFileRow.node_rank == rank,
            KeptFileRow.path == path,
        )
        row = session.execute(select(*_COLUMNS).where(*key)).one_or_none()
        if row is not None:
            return KeptFile(*row)
    return None


def mark(session: Session, job_id: str) -> Mark:
    """Return what changes whenever a file of the job does, and the time of the last round."""
    rounds = select(KeptRoundRow.revision, KeptRoundRow.as_of).where(KeptRoundRow.job_id == job_id)
    found = session.execute(rounds.order_by(KeptRoundRow.node_rank)).all()
    times = [row.as_of for row in found]
    return Mark([row.revision for row in found], max(times, default=None))


def remove(session: Session, job_id: str, files: Iterable[ListedFile], *, actor: str) -> list[str]:
    """Delete rows of a job, with one event.

    Returns
    -------
    list of str
        Locations whose contents may be deleted once this is committed.

    Raises
    ------
    LockstepError
        ``CONFLICT`` while the job is live: its node would store them again.
    """
    state = session.scalars(select(JobRow.state).where(JobRow.id == job_id)).one()
    if state in _LIVE:
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"job {job_id} is {state.value}, and its node stores its files",
            next_step="delete them once it has ended or is paused",
        )
    by_rank: dict[int, list[KeptFile]] = {}
    for listed in files:
        by_rank.setdefault(listed.node_rank, []).append(listed.file)
    removed = [file for each in by_rank.values() for file in each]
    for rank, each in by_rank.items():
        _delete(session, job_id, rank, [file.path for file in each])
        mine = KeptRoundRow.job_id == job_id, KeptRoundRow.node_rank == rank
        grown = update(KeptRoundRow).where(*mine).values(revision=KeptRoundRow.revision + 1)
        write(session, grown)
    if removed:
        noun = "1 file" if len(removed) == 1 else f"{len(removed):,} files"
        events.add(
            session,
            job_id=job_id,
            attempt=None,
            kind="files_removed",
            message=f"{noun} deleted by {actor}",
            actor=actor,
            data={"paths": sorted(file.path for file in removed)[:_NAMED_MAX]},
        )
    named = set(session.scalars(select(KeptFileRow.location).where(KeptFileRow.job_id == job_id)))
    return sorted({file.location for file in removed} - named)


def remove_all(session: Session, job_id: str) -> None:
    """Delete the rows of all files of an ended job. Its rounds stay, as for :func:`remove`."""
    write(session, delete(KeptFileRow).where(KeptFileRow.job_id == job_id))
    grown = update(KeptRoundRow).where(KeptRoundRow.job_id == job_id)
    write(session, grown.values(revision=KeptRoundRow.revision + 1))


def _revision(session: Session, job_id: str, node_rank: int) -> int:
    mine = KeptRoundRow.job_id == job_id, KeptRoundRow.node_rank == node_rank
    found = select(KeptRoundRow.revision).where(*mine).with_for_update()
    return session.scalars(found).one_or_none() or 0


def _delete(session: Session, job_id: str, node_rank: int, paths: Sequence[str]) -> None:
    mine = KeptFileRow.job_id == job_id, KeptFileRow.node_rank == node_rank
    for first in range(0, len(paths), _BATCH):
        some = KeptFileRow.path.in_(paths[first : first + _BATCH])
        write(session, delete(KeptFileRow).where(*mine, some))


def _by_name(listed: ListedFile) -> str:
    return listed.name
