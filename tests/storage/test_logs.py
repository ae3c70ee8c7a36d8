"""Log lines: stored exactly once, paged without gaps, searched and followed with bounded work."""

from __future__ import annotations

import pytest

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.attempt import LogRecord
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.views import LogLine
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.logs import log_pages, logs
from lockstep.storage.series import streams
from tests.storage import scenes


class Shipper:
    """Sender that appends lines one batch after the other, as a node does."""

    def __init__(self, database: Database, claimed: Claim) -> None:
        self.database, self.claimed, self.offset = database, claimed, 0

    def ship(self, records: list[LogRecord], **options: int) -> bool:
        with self.database.series() as session:
            stored = logs.append(
                session,
                assignment_id=self.claimed.assignment_id,
                token=self.claimed.token,
                place_before=(0, self.offset),
                place_after=(0, self.offset + 10),
                records=records,
                **options,
            )
        self.offset += 10 * stored
        return stored

    def say(self, *texts: str, rank: int = 0, stream: str = "stdout") -> None:
        assert self.ship(_lines(*texts, rank=rank, stream=stream))


def _lines(*texts: str, rank: int = 0, stream: str = "stdout") -> list[LogRecord]:
    return [LogRecord(time=1000.0, rank=rank, stream=stream, text=text) for text in texts]  # type: ignore[arg-type]


@pytest.fixture
def shipper(database: Database) -> Shipper:
    return Shipper(database, scenes.run(database))


def _page(shipper: Shipper, *, limit: int = 100, **options: object) -> tuple[list[LogLine], str]:
    places = {name: options.pop(name) for name in ("cursor", "from_end") if name in options}
    chosen = log_pages.LogSelection(**options)  # type: ignore[arg-type]
    with shipper.database.read_series() as session:
        return log_pages.page(session, shipper.claimed.job_id, chosen, limit=limit, **places)[:2]  # type: ignore[arg-type]


def _texts(shipper: Shipper, **options: object) -> list[str]:
    return [line.text for line in _page(shipper, **options)[0]]  # type: ignore[arg-type]


def _all(shipper: Shipper, limit: int, **options: object) -> list[str]:
    """Return every line, page by page, up to the end."""
    texts: list[str] = []
    cursor = None
    for _page_number in range(1000):
        lines, cursor = _page(shipper, limit=limit, cursor=cursor, **options)
        assert len(lines) <= limit
        texts += [line.text for line in lines]
        with shipper.database.read_series() as session:
            if log_pages.at_end(session, shipper.claimed.job_id, cursor):
                return texts
    raise AssertionError("the pages do not end")


def test_lines_read_back_as_they_were_sent(shipper: Shipper) -> None:
    shipper.say("hello", "é \0 \ud800 \u2028 end", "")
    shipper.say("oops", rank=1, stream="stderr")
    lines, _cursor = _page(shipper)
    assert [(line.line, line.attempt, line.rank, line.stream, line.text) for line in lines] == [
        (0, 1, 0, "stdout", "hello"),
        (1, 1, 0, "stdout", "é \0 \ud800 \u2028 end"),
        (2, 1, 0, "stdout", ""),
        (3, 1, 1, "stderr", "oops"),
    ]
    assert lines[0].time.timestamp() == 1000.0


def test_lines_sent_again_are_stored_once(shipper: Shipper) -> None:
    shipper.say("one")
    shipper.offset = 0
    assert not shipper.ship(_lines("one"))
    shipper.offset = 30
    assert not shipper.ship(_lines("four"))
    shipper.offset = 10
    shipper.say("two")
    assert _texts(shipper) == ["one", "two"]


def test_a_sealed_stream_takes_no_line(shipper: Shipper) -> None:
    scenes.seal(shipper.database, shipper.claimed)
    assert not shipper.ship(_lines("late"))
    assert _texts(shipper) == []


@pytest.mark.parametrize("limit", [1, 7, 600, 5000])
def test_pages_neither_skip_nor_repeat(shipper: Shipper, limit: int) -> None:
    sent = [f"line {index}" for index in range(1500 if limit > 100 else 40 * limit)]
    shipper.say(*sent[:20])
    shipper.say(*sent[20:])
    assert _all(shipper, limit) == sent


def test_a_cursor_continues_with_new_lines(shipper: Shipper) -> None:
    lines, cursor = _page(shipper)
    assert lines == []
    shipper.say("one")
    lines, cursor = _page(shipper, cursor=cursor)
    assert [line.text for line in lines] == ["one"]
    assert _page(shipper, cursor=cursor) == ([], cursor)
    shipper.say("two")  # is added to the chunk that was read already
    assert [line.text for line in _page(shipper, cursor=cursor)[0]] == ["two"]


def test_attempts_follow_each_other_and_can_be_read_alone(shipper: Shipper) -> None:
    shipper.say("first attempt")
    _lines_read, cursor = _page(shipper)
    scenes.end(shipper.database, shipper.claimed, Reason.KILLED)
    scenes.release(shipper.database, shipper.claimed)
    new = Shipper(shipper.database, scenes.start(shipper.database, shipper.claimed.job_id))
    new.say("second attempt")
    [line], _cursor = _page(shipper, cursor=cursor)
    assert (line.attempt, line.line, line.text) == (2, 0, "second attempt")
    assert _texts(shipper) == ["first attempt", "second attempt"]
    assert _texts(shipper, attempt=1) == ["first attempt"]
    assert _texts(shipper, attempt=2) == ["second attempt"]
    assert _texts(shipper, attempt=3) == []


def test_lines_are_chosen_by_rank_stream_and_text(shipper: Shipper) -> None:
    shipper.say("Loss 1", rank=0)
    shipper.say("loss 2", rank=1)
    shipper.say("warning", rank=11, stream="stderr")
    shipper.say("starting", rank=-1, stream="launcher")
    assert _texts(shipper, rank=1) == ["loss 2"]
    assert _texts(shipper, rank=-1) == ["starting"]
    assert _texts(shipper, stream="stderr") == ["warning"]
    assert _texts(shipper, search="LOSS") == ["Loss 1", "loss 2"]
    assert _texts(shipper, search="loss", rank=0) == ["Loss 1"]
    assert _texts(shipper, search="%") == []


def test_a_chosen_rank_is_paged_through_like_the_whole(shipper: Shipper) -> None:
    for index in range(40):
        shipper.say(*[f"{index}.{line}" for line in range(30)], rank=index % 2)
    wanted = [f"{index}.{line}" for index in range(1, 40, 2) for line in range(30)]
    assert _all(shipper, 50, rank=1) == wanted


def test_the_tail_is_the_last_lines_and_continues_from_there(shipper: Shipper) -> None:
    shipper.say(*[f"line {index}" for index in range(1000)])
    lines, cursor = _page(shipper, limit=3, from_end=True)
    assert [line.text for line in lines] == ["line 997", "line 998", "line 999"]
    shipper.say("next")
    assert [line.text for line in _page(shipper, cursor=cursor)[0]] == ["next"]
    assert _texts(shipper, limit=2, from_end=True, search="line 5") == ["line 598", "line 599"]


def test_a_search_without_a_match_opens_few_chunks_and_can_continue(
    shipper: Shipper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_pages, "CHUNKS_PER_PAGE", 2)
    shipper.say(*[f"line {index}" for index in range(logs.CHUNK_LINES * 5)], "needle")
    lines, cursor = _page(shipper, search="needle")
    assert lines == []
    assert cursor == f"1.{2 * logs.CHUNK_LINES}"
    assert _all(shipper, 10, search="needle") == ["needle"]


def test_long_lines_are_kept_whole_in_chunks_of_their_own(shipper: Shipper) -> None:
    sent = ["x" * (logs.CHUNK_BYTES + 1), "y", "z" * logs.CHUNK_BYTES]
    shipper.say(*sent)
    shipper.say("end")
    assert _all(shipper, 2) == [*sent, "end"]


def test_a_state_counts_the_lines_of_the_attempt(shipper: Shipper) -> None:
    shipper.say("one", "two")
    with shipper.database.read_series() as session:
        state = streams.state(session, shipper.claimed.assignment_id)
    assert state is not None
    assert (state.next_line, state.log_segment, state.log_offset) == (2, 0, 10)


@pytest.mark.parametrize("cursor", ["", "1", "-1.0", "1.2.3", "1.x", "9999999999.0"])
def test_a_foreign_cursor_is_refused(shipper: Shipper, cursor: str) -> None:
    with pytest.raises(LockstepError) as refusal:
        _page(shipper, cursor=cursor)
    assert refusal.value.code is ErrorCode.INVALID


KEPT = 80_000
"""Limit of the logs in the following tests: 800 lines of 100 bytes."""


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "CHUNK_LINES", 20)


def _write(shipper: Shipper, lines: range) -> None:
    """Write lines that contain their own number, in batches as a node sends them."""
    for first in lines[::30]:
        texts = [f"{number:0100d}" for number in range(first, min(first + 30, lines.stop))]
        assert shipper.ship(_lines(*texts), bytes_max=KEPT)


@pytest.mark.parametrize(("lines", "left_out"), [(799, 0), (800, 0), (801, 1)])
@pytest.mark.usefixtures("small_chunks")
def test_a_log_keeps_everything_up_to_its_limit_and_not_beyond(
    shipper: Shipper, lines: int, left_out: int
) -> None:
    _write(shipper, range(750))
    _write(shipper, range(750, lines))
    assert sum("left out" in text for text in _texts(shipper, limit=5_000)) == left_out


@pytest.mark.usefixtures("small_chunks")
def test_a_long_log_keeps_head_and_end_with_a_count(
    shipper: Shipper,
) -> None:
    for start in range(0, 3_000, 300):
        end = start + 300
        _write(shipper, range(start, end))
        texts = _all(shipper, 500)
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
    lines, cursor = _page(shipper, limit=10, from_end=True)
    assert [line.line for line in lines] == list(range(2_990, 3_000))
    shipper.say("goes on")
    assert _texts(shipper, cursor=cursor) == ["goes on"]
    (marker,) = [line for line in _page(shipper, limit=5_000)[0] if "left out" in line.text]
    assert (marker.rank, marker.stream) == (-1, "launcher")


@pytest.mark.usefixtures("small_chunks")
def test_a_cursor_into_dropped_lines_continues_after_them(shipper: Shipper) -> None:
    _write(shipper, range(600))
    _lines_there, cursor = _page(shipper, limit=250)
    _write(shipper, range(600, 1_500))
    after = _texts(shipper, cursor=cursor, limit=3)
    assert "left out" in after[0]
    assert int(after[2]) == int(after[1]) + 1 > 900
