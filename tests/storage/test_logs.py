"""Log lines: stored exactly once, paged without gaps, searched and followed with bounded work."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.attempt import LogRecord
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.views import LogLine
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import LogChunkRow
from lockstep.storage.logs import log_pages, logs
from lockstep.storage.series import streams
from tests.storage import scenes


class Uploader:
    """Sender that appends lines one batch after the other, as a node does."""

    def __init__(self, database: Database, claimed: Claim) -> None:
        self.database, self.claimed, self.offset = database, claimed, 0

    def upload(self, records: list[LogRecord], **options: int) -> bool:
        with self.database.series() as session:
            stored = logs.append(
                session,
                assignment_id=self.claimed.assignment_id,
                token=self.claimed.token,
                offset_before=(0, self.offset),
                offset_after=(0, self.offset + 10),
                records=records,
                **options,
            )
        self.offset += 10 * stored
        return stored

    def say(self, *texts: str, rank: int = 0, stream: str = "stdout") -> None:
        assert self.upload(_lines(*texts, rank=rank, stream=stream))


def _lines(*texts: str, rank: int = 0, stream: str = "stdout") -> list[LogRecord]:
    return [LogRecord(time=1000.0, rank=rank, stream=stream, text=text) for text in texts]  # type: ignore[arg-type]


@pytest.fixture
def uploader(database: Database) -> Uploader:
    return Uploader(database, scenes.run(database))


def _page(uploader: Uploader, *, limit: int = 100, **options: object) -> tuple[list[LogLine], str]:
    positions = {name: options.pop(name) for name in ("cursor", "from_end") if name in options}
    chosen = log_pages.LogSelection(**options)  # type: ignore[arg-type]
    with uploader.database.read_series() as session:
        return log_pages.page(session, uploader.claimed.job_id, chosen, limit=limit, **positions)[
            :2
        ]  # type: ignore[arg-type]


def _texts(uploader: Uploader, **options: object) -> list[str]:
    return [line.text for line in _page(uploader, **options)[0]]  # type: ignore[arg-type]


def _all(uploader: Uploader, limit: int, **options: object) -> list[str]:
    """Return every line, page by page, up to the end."""
    texts: list[str] = []
    cursor = None
    for _page_number in range(1000):
        lines, cursor = _page(uploader, limit=limit, cursor=cursor, **options)
        assert len(lines) <= limit
        texts += [line.text for line in lines]
        with uploader.database.read_series() as session:
            if log_pages.at_end(session, uploader.claimed.job_id, cursor):
                return texts
    raise AssertionError("the pages do not end")


def test_lines_read_back_as_they_were_sent(uploader: Uploader) -> None:
    uploader.say("hello", "é \0 \ud800 \u2028 end", "")
    uploader.say("oops", rank=1, stream="stderr")
    lines, _cursor = _page(uploader)
    assert [(line.line, line.attempt, line.rank, line.stream, line.text) for line in lines] == [
        (0, 1, 0, "stdout", "hello"),
        (1, 1, 0, "stdout", "é \0 \ud800 \u2028 end"),
        (2, 1, 0, "stdout", ""),
        (3, 1, 1, "stderr", "oops"),
    ]
    assert lines[0].time.timestamp() == 1000.0


def test_lines_sent_again_are_stored_once(uploader: Uploader) -> None:
    uploader.say("one")
    uploader.offset = 0
    assert not uploader.upload(_lines("one"))
    uploader.offset = 30
    assert not uploader.upload(_lines("four"))
    uploader.offset = 10
    uploader.say("two")
    assert _texts(uploader) == ["one", "two"]


def test_a_sealed_stream_takes_no_line(uploader: Uploader) -> None:
    scenes.seal(uploader.database, uploader.claimed)
    assert not uploader.upload(_lines("late"))
    assert _texts(uploader) == []


@pytest.mark.parametrize("limit", [1, 7, 600, 5000])
def test_pages_neither_skip_nor_repeat(uploader: Uploader, limit: int) -> None:
    sent = [f"line {index}" for index in range(1500 if limit > 100 else 40 * limit)]
    uploader.say(*sent[:20])
    uploader.say(*sent[20:])
    assert _all(uploader, limit) == sent


def test_a_cursor_continues_with_new_lines(uploader: Uploader) -> None:
    lines, cursor = _page(uploader)
    assert lines == []
    uploader.say("one")
    lines, cursor = _page(uploader, cursor=cursor)
    assert [line.text for line in lines] == ["one"]
    assert _page(uploader, cursor=cursor) == ([], cursor)
    uploader.say("two")  # is added to the chunk that was read already
    assert [line.text for line in _page(uploader, cursor=cursor)[0]] == ["two"]


def test_attempts_follow_each_other_and_can_be_read_alone(uploader: Uploader) -> None:
    uploader.say("first attempt")
    _lines_read, cursor = _page(uploader)
    scenes.end(uploader.database, uploader.claimed, Reason.KILLED)
    scenes.release(uploader.database, uploader.claimed)
    new = Uploader(uploader.database, scenes.start(uploader.database, uploader.claimed.job_id))
    new.say("second attempt")
    [line], _cursor = _page(uploader, cursor=cursor)
    assert (line.attempt, line.line, line.text) == (2, 0, "second attempt")
    assert _texts(uploader) == ["first attempt", "second attempt"]
    assert _texts(uploader, attempt=1) == ["first attempt"]
    assert _texts(uploader, attempt=2) == ["second attempt"]
    assert _texts(uploader, attempt=3) == []


def test_lines_are_chosen_by_rank_stream_and_text(uploader: Uploader) -> None:
    uploader.say("Loss 1", rank=0)
    uploader.say("loss 2", rank=1)
    uploader.say("warning", rank=11, stream="stderr")
    uploader.say("starting", rank=-1, stream="launcher")
    assert _texts(uploader, rank=1) == ["loss 2"]
    assert _texts(uploader, rank=-1) == ["starting"]
    assert _texts(uploader, stream="stderr") == ["warning"]
    assert _texts(uploader, search="LOSS") == ["Loss 1", "loss 2"]
    assert _texts(uploader, search="loss", rank=0) == ["Loss 1"]
    assert _texts(uploader, search="%") == []


def test_a_chosen_rank_is_paged_through_like_the_whole(uploader: Uploader) -> None:
    for index in range(40):
        uploader.say(*[f"{index}.{line}" for line in range(30)], rank=index % 2)
    wanted = [f"{index}.{line}" for index in range(1, 40, 2) for line in range(30)]
    assert _all(uploader, 50, rank=1) == wanted


def test_the_tail_is_the_last_lines_and_continues_from_there(uploader: Uploader) -> None:
    uploader.say(*[f"line {index}" for index in range(1000)])
    lines, cursor = _page(uploader, limit=3, from_end=True)
    assert [line.text for line in lines] == ["line 997", "line 998", "line 999"]
    uploader.say("next")
    assert [line.text for line in _page(uploader, cursor=cursor)[0]] == ["next"]
    assert _texts(uploader, limit=2, from_end=True, search="line 5") == ["line 598", "line 599"]


def test_a_search_without_a_match_opens_few_chunks_and_can_continue(
    uploader: Uploader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pages, "CHUNKS_PER_PAGE", 2)
    uploader.say(*[f"line {index}" for index in range(logs.CHUNK_LINES * 5)], "needle")
    lines, cursor = _page(uploader, search="needle")
    assert lines == []
    assert cursor == f"1.{2 * logs.CHUNK_LINES}"
    assert _all(uploader, 10, search="needle") == ["needle"]


def test_long_lines_are_kept_whole_in_chunks_of_their_own(uploader: Uploader) -> None:
    sent = ["é" * (logs.CHUNK_BYTES // 2 + 1), "y", "ü" * (logs.CHUNK_BYTES // 2)]
    uploader.say(*sent)
    uploader.say("end")
    assert _all(uploader, 2) == [*sent, "end"]
    with uploader.database.read_series() as session:
        counts = select(LogChunkRow.line_count).order_by(LogChunkRow.first_line)
        assert list(session.scalars(counts)) == [1, 1, 1, 1]


def test_a_state_counts_the_lines_of_the_attempt(uploader: Uploader) -> None:
    uploader.say("one", "two")
    with uploader.database.read_series() as session:
        state = streams.state(session, uploader.claimed.assignment_id)
    assert state is not None
    assert (state.next_line, state.log_segment, state.log_offset) == (2, 0, 10)


@pytest.mark.parametrize("cursor", ["", "1", "-1.0", "1.2.3", "1.x", "9999999999.0"])
def test_a_foreign_cursor_is_refused(uploader: Uploader, cursor: str) -> None:
    with pytest.raises(LockstepError) as refusal:
        _page(uploader, cursor=cursor)
    assert refusal.value.code is ErrorCode.INVALID


KEPT = 80_000
"""Limit of the logs in the following tests: 800 lines of 100 bytes."""


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CHUNK_LINES", 20)


def _write(uploader: Uploader, lines: range) -> None:
    """Write lines that contain their own number, in batches as a node sends them."""
    for first in lines[::30]:
        texts = [f"{number:0100d}" for number in range(first, min(first + 30, lines.stop))]
        assert uploader.upload(_lines(*texts), bytes_max=KEPT)


@pytest.mark.parametrize(("lines", "left_out"), [(799, 0), (800, 0), (801, 1)])
@pytest.mark.usefixtures("small_chunks")
def test_a_log_keeps_everything_up_to_its_limit_and_not_beyond(
    uploader: Uploader, lines: int, left_out: int
) -> None:
    _write(uploader, range(750))
    _write(uploader, range(750, lines))
    assert sum("left out" in text for text in _texts(uploader, limit=5_000)) == left_out


@pytest.mark.usefixtures("small_chunks")
def test_a_long_log_keeps_head_and_end_with_a_count(
    uploader: Uploader,
) -> None:
    for start in range(0, 3_000, 300):
        end = start + 300
        _write(uploader, range(start, end))
        texts = _all(uploader, 500)
        markers = [index for index, text in enumerate(texts) if "left out" in text]
        assert len(markers) == (end > 800)
        if not markers:
            continue
        (at,) = markers
        head, tail = [int(text) for text in texts[:at]], [int(text) for text in texts[at + 1 :]]
        assert len(head) + len(tail) <= 800 + 30
        assert head == list(range(len(head)))
        assert 200 <= len(head) < 220
        assert tail == list(range(tail[0], end))
        assert len(tail) > 450
        assert len(head) + int(texts[at].split()[1].replace(",", "")) + len(tail) == end
    lines, cursor = _page(uploader, limit=10, from_end=True)
    assert [line.line for line in lines] == list(range(2_990, 3_000))
    uploader.say("goes on")
    assert _texts(uploader, cursor=cursor) == ["goes on"]
    (marker,) = [line for line in _page(uploader, limit=5_000)[0] if "left out" in line.text]
    assert (marker.rank, marker.stream) == (-1, "launcher")


@pytest.mark.usefixtures("small_chunks")
def test_a_cursor_into_dropped_lines_continues_after_them(uploader: Uploader) -> None:
    _write(uploader, range(600))
    _lines_there, cursor = _page(uploader, limit=250)
    _write(uploader, range(600, 1_500))
    after = _texts(uploader, cursor=cursor, limit=3)
    assert "left out" in after[0]
    assert int(after[2]) == int(after[1]) + 1 > 900
