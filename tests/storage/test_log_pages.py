"""Log pages in both directions and by time, compared with the list of all lines.

Each page opens few chunks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import event, update

from lockstep.domain.errors import LockstepError
from lockstep.domain.life.attempt import LogRecord
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.views import LogLine
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import LogChunkRow
from lockstep.storage.logs import log_pages, logs
from lockstep.storage.logs.log_pages import LogSelection, Slice
from tests.storage import scenes

ALL = LogSelection()


class Written:
    """A job of two attempts, and all its stored lines."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.claim = scenes.run(database)
        self.job_id = self.claim.job_id
        self.attempt, self.offset = 1, 0
        self.lines: list[tuple[int, int, LogRecord]] = []

    def upload(self, records: list[LogRecord]) -> None:
        with self.database.series() as session:
            assert logs.append(
                session,
                assignment_id=self.claim.assignment_id,
                token=self.claim.token,
                offset_before=(0, self.offset),
                offset_after=(0, self.offset + 1),
                records=records,
            )
        self.offset += 1
        first = sum(attempt == self.attempt for attempt, _number, _record in self.lines)
        self.lines += [
            (self.attempt, first + index, record) for index, record in enumerate(records)
        ]

    def next_attempt(self) -> None:
        old: Claim = self.claim
        scenes.end(self.database, old, Reason.KILLED)
        scenes.release(self.database, old)
        self.claim = scenes.start(self.database, old.job_id)
        self.attempt, self.offset = self.attempt + 1, 0

    def page(self, chosen: LogSelection = ALL, **options: object) -> Slice:
        with self.database.read_series() as session:
            return log_pages.page(session, self.job_id, chosen, **{"limit": 100, **options})  # type: ignore[arg-type]

    def chosen(self, chosen: LogSelection) -> list[tuple[int, int]]:
        """Return the requested lines, found without an index."""
        return [
            (attempt, number)
            for attempt, number, record in self.lines
            if chosen.attempt in (None, attempt)
            and chosen.rank in (None, record.rank)
            and chosen.stream in (None, record.stream)
            and (chosen.search or "").lower() in record.text.lower()
            and (chosen.since is None or record.time >= chosen.since)
            and (chosen.until is None or record.time < chosen.until)
        ]


@pytest.fixture
def written(database: Database, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Store 700 lines of several ranks with different clocks, in chunks of 16.

    A page opens 4 of them and reads the headers of 10.
    """
    monkeypatch.setattr(logs, "CHUNK_LINES", 16)
    monkeypatch.setattr(log_pages, "CHUNKS_PER_PAGE", 4)
    monkeypatch.setattr(log_pages, "HEADERS_PER_PAGE", 10)
    made, draw = Written(database), random.Random(7)
    at = 0
    for piece in range(18):
        if piece == 9:
            made.next_attempt()
        records = []
        for _ in range(draw.randrange(1, 80)):
            at += 1
            # For a while only one rank writes, so whole chunks have no lines of the others.
            rank = draw.randrange(3) if piece % 4 else 1
            stream = draw.choice(("stdout", "stderr"))
            words = draw.choice(("Loss", "loss", "epoch")) + f" {at}"
            records.append(
                LogRecord(
                    time=1000.0 + at + draw.uniform(-5, 5), rank=rank, stream=stream, text=words
                )
            )  # type: ignore[arg-type]
        made.upload(records)
    return made


CHOICES = [
    ALL,
    LogSelection(attempt=2),
    LogSelection(rank=2),
    LogSelection(rank=0, stream="stderr", search="LOSS"),
    LogSelection(search="loss 29"),
    LogSelection(search="nothing of the kind"),
    LogSelection(since=1200.0, until=1300.0),
    LogSelection(since=1290.5, rank=1),
    LogSelection(until=1050.0),
    LogSelection(since=1e9),
]


def _numbers(lines: list[LogLine]) -> list[tuple[int, int]]:
    return [(line.attempt, line.line) for line in lines]


def _downwards(written: Written, chosen: LogSelection, limit: int) -> Iterator[Slice]:
    cursor: str | None = None
    while True:
        page = written.page(chosen, cursor=cursor, limit=limit)
        yield page
        cursor = page.next_cursor
        with written.database.read_series() as session:
            if log_pages.at_end(session, written.job_id, cursor, attempt=chosen.attempt):
                return


def _upwards(written: Written, chosen: LogSelection, limit: int) -> Iterator[Slice]:
    page = written.page(chosen, from_end=True, limit=limit)
    yield page
    while page.prev_cursor is not None:
        page = written.page(chosen, before=page.prev_cursor, limit=limit)
        yield page


def test_pages_in_both_directions_give_each_line_once_in_order(
    written: Written,
) -> None:
    for chosen, limit in [
        *((chosen, 1000) for chosen in CHOICES),
        (ALL, 50),
        (CHOICES[2], 7),
        (CHOICES[6], 16),
    ]:
        expected = written.chosen(chosen)
        down = [_numbers(page.lines) for page in _downwards(written, chosen, limit)]
        up = [_numbers(page.lines) for page in _upwards(written, chosen, limit)]
        assert [line for page in down for line in page] == expected, (chosen, limit)
        assert [line for page in reversed(up) for line in page] == expected, (chosen, limit)
        assert max(map(len, down + up)) <= limit


def test_a_line_is_returned_as_written(written: Written) -> None:
    (line,) = written.page(limit=1, from_end=True).lines
    attempt, number, record = written.lines[-1]
    assert (line.attempt, line.line, line.rank, line.stream, line.text) == (
        *(attempt, number),
        *(record.rank, record.stream, record.text),
    )
    assert line.time.timestamp() == pytest.approx(record.time, abs=1e-5)


def test_a_page_turned_back_is_the_one_before_it(written: Written) -> None:
    first = written.page(limit=40)
    second = written.page(limit=40, cursor=first.next_cursor)
    assert first.prev_cursor is None
    assert second.prev_cursor == first.next_cursor
    back = written.page(limit=40, before=second.prev_cursor)
    assert (back.lines, back.prev_cursor, back.next_cursor) == (
        first.lines,
        None,
        first.next_cursor,
    )
    with pytest.raises(LockstepError, match="is not a cursor of this log"):
        written.page(before="٣.0")


def test_from_the_tail_one_scrolls_up_while_lines_are_added(written: Written) -> None:
    bottom = written.page(limit=20, from_end=True)
    written.upload([LogRecord(time=2000.0, rank=0, stream="stdout", text="new")])
    above = written.page(limit=20, before=bottom.prev_cursor)
    assert (
        _numbers(above.lines + bottom.lines)
        == _numbers(written.page(limit=41, from_end=True).lines)[:-1]
    )
    assert [line.text for line in written.page(cursor=bottom.next_cursor).lines] == ["new"]


def test_chunks_of_the_version_before_are_opened_for_their_times(written: Written) -> None:
    with written.database.series() as session:
        session.execute(update(LogChunkRow).values(time_min=None, time_max=None))
    chosen = LogSelection(since=1200.0, until=1300.0)
    found = [line for page in _downwards(written, chosen, 50) for line in _numbers(page.lines)]
    assert found == written.chosen(chosen)


def _opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Counter of the chunks that were decompressed since the last call."""
    opened: list[bytes] = []

    def unpack(packed: bytes) -> list[list[object]]:
        opened.append(packed)
        return logs.unpack(packed)

    monkeypatch.setattr(log_pages, "unpack", unpack)

    def count() -> int:
        found = len(opened)
        opened.clear()
        return found

    return count


def test_a_page_opens_no_more_chunks_than_necessary(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = _opened(monkeypatch)
    for chosen in (ALL, CHOICES[3], CHOICES[6]):
        for pages in (_downwards(written, chosen, 1000), _upwards(written, chosen, 1000)):
            for _page in pages:
                assert opened() <= 4, chosen
    for options in ({}, {"from_end": True}, {"cursor": "1.100"}, {"before": "2.100"}):
        written.page(limit=10, **options)
        assert opened() <= 2


def test_a_page_reads_a_limited_number_of_headers(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pages, "HEADERS_PER_PAGE", 2)
    down = list(_downwards(written, LogSelection(since=1e9), 1000))
    up = list(_upwards(written, LogSelection(until=0.0), 1000))
    with written.database.read_series() as session:
        chunks = session.query(LogChunkRow).count()
    assert chunks > 35
    assert len(down) == len(up) == -(-chunks // 2)


def test_an_offset_deep_in_a_log_is_found_by_the_index(written: Written) -> None:
    """Otherwise each page would read the headers of all earlier chunks."""
    engine = written.database._series
    asked: list[tuple[str, object]] = []
    event.listen(engine, "before_cursor_execute", lambda *call: asked.append((call[2], call[3])))
    written.page(limit=10, cursor="2.100")
    written.page(limit=10, before="2.100")
    written.page(LogSelection(since=1250.0, rank=1), limit=10)
    statements = [(statement, values) for statement, values in asked if "log_chunks" in statement]
    assert len(statements) >= 9
    is_sqlite = engine.dialect.name == "sqlite"
    with written.database.read_series() as session:
        connection = session.connection()
        if not is_sqlite:
            # With this few rows, PostgreSQL reads all of them by default. With the setting, the
            # plan shows if an index is possible.
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        for statement, values in statements:
            explain = "EXPLAIN QUERY PLAN" if is_sqlite else "EXPLAIN"
            plan = " ".join(
                str(row[-1])
                for row in connection.exec_driver_sql(f"{explain} {statement}", values)  # type: ignore[arg-type]
            )
            bounds = (
                ("(attempt,first_line)", "first_line<?")
                if is_sqlite
                else ("ROW(attempt, first_line)", "first_line <=")
            )
            conditions = (
                plan if is_sqlite else plan.partition("Index Cond: ")[2].partition("Filter:")[0]
            )
            assert any(bound in conditions for bound in bounds), plan
            assert "TEMP B-TREE" not in plan
