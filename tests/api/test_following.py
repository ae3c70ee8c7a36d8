"""Followed logs: every line once after any interruption, and the cost of a hundred readers."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import Request
from httpx2 import EventSource
from sqlalchemy import event, update

from lockstep.api import access
from lockstep.api.http.following import ChangeStreams, StreamSubscription
from lockstep.client.api import Client
from lockstep.domain import limits
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.rights import UserState
from lockstep.storage.attempts.attempts import Claim
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import UserRow
from lockstep.storage.logs.log_pages import LogSelection
from tests.api.conftest import TOKEN, Api, problem
from tests.api.test_reading import upload_logs
from tests.harness.processes import Program
from tests.storage import scenes


def _events(text: str) -> list[dict[str, str]]:
    """Return the events of a stream that has ended, field by field."""
    blocks = [block for block in text.split("\n\n") if block]
    return [
        dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        for block in blocks
    ]


def _lines(events: list[dict[str, str]]) -> list[str]:
    return [
        line["text"]
        for each in events
        if each.get("event") == "lines"
        for line in json.loads(each["data"])["lines"]
    ]


def _ended(api: Api, *lines: tuple[int, str, str]) -> Claim:
    claim = scenes.run(api.database)
    upload_logs(api, claim, *lines)
    scenes.end(api.database, claim, Reason.SUCCEEDED)
    return claim


def test_the_stream_of_an_ended_job_gives_its_lines_and_ends(api: Api) -> None:
    claim = _ended(api, *((n % 2, "stdout", f"line {n}\u2028\r") for n in range(1200)))
    address = f"/v1/jobs/{claim.job_id}/logs/stream"
    answer = api.http.get(address)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert answer.headers["cache-control"] == "no-store"
    events = _events(answer.text)
    assert _lines(events) == [f"line {n}\u2028\r" for n in range(1200)]
    assert [each.get("event") for each in events] == [None, "lines", "lines", "lines", "end"]
    assert json.loads(events[-1]["data"]) == {"state": "succeeded", "next_cursor": "1.1200"}

    chosen = _events(api.http.get(address, params={"rank": 1, "tail": 3}).text)
    assert _lines(chosen) == [f"line {n}\u2028\r" for n in (1195, 1197, 1199)]
    assert (
        _lines(_events(api.http.get(address, params={"search": "line 7", "cursor": "1.700"}).text))[
            0
        ][:8]
        == "line 700"
    )
    assert _lines(_events(api.http.get(address, params={"since": 2e9}).text)) == []


def test_a_stream_is_resumed_behind_any_of_its_events(api: Api) -> None:
    claim = _ended(api, *((0, "stdout", f"line {n}") for n in range(1200)))
    address = f"/v1/jobs/{claim.job_id}/logs/stream"
    events = _events(api.http.get(address).text)
    for number, each in enumerate(events[:-2]):
        resumed = _events(api.http.get(address, headers={"Last-Event-ID": each["id"]}).text)
        assert _lines(events[: number + 1]) + _lines(resumed) == [f"line {n}" for n in range(1200)]
    over = api.http.get(address, headers={"Last-Event-ID": events[-1]["id"]})
    assert (over.status_code, over.content) == (204, b"")
    problem(api.http.get(address, headers={"Last-Event-ID": "x"}), 422, "invalid")
    problem(api.http.get(address, params={"tail": 3, "cursor": "1.0"}), 422, "invalid")
    problem(api.http.get("/v1/jobs/nobody/logs/stream"), 404, "not_found")


def test_too_many_streams_are_refused_until_one_ends(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_STREAMS_MAX", 2)
    claim = _ended(api, (0, "stdout", "hello"))
    following: ChangeStreams = api.http.app.state.parts.following  # type: ignore[attr-defined]
    taken = following.enter(claim.job_id, LogSelection(), JobState.RUNNING)
    for _ in range(3):
        assert api.http.get(f"/v1/jobs/{claim.job_id}/logs/stream").status_code == 200
    following.enter(claim.job_id, LogSelection(), JobState.RUNNING)
    refused = api.http.get(f"/v1/jobs/{claim.job_id}/logs/stream")
    assert "2 log streams are open" in problem(refused, 503, "unavailable")["detail"]
    assert int(refused.headers["retry-after"]) > 0
    following.leave(taken)
    assert api.http.get(f"/v1/jobs/{claim.job_id}/logs/stream").status_code == 200


class Watched:
    """Counter of the statements on both databases while it is open."""

    def __init__(self, database: Database) -> None:
        self.statements: list[str] = []
        for engine in {database._jobs, database._series}:
            event.listen(
                engine,
                "before_cursor_execute",
                lambda *call: self.statements.append(call[2]) if "FROM" in call[2] else None,
            )


async def _take(stream: AsyncIterator[bytes], count: int) -> list[dict[str, str]]:
    """Return this many events with data; comments and offsets are skipped."""
    found: list[dict[str, str]] = []
    while len(found) < count:
        found += [each for each in _events((await anext(stream)).decode()) if "data" in each]
    return found


async def always() -> bool:
    return True


def test_the_cost_of_a_hundred_followers_is_that_of_one(
    api: Api,
) -> None:
    claim = scenes.run(api.database)
    upload_logs(api, claim, (0, "stdout", "first"))
    watched = Watched(api.database)

    async def follow() -> None:
        following = ChangeStreams(api.database, period_seconds=0.01, heartbeat_seconds=60)
        followers = [
            following.enter(claim.job_id, LogSelection(), JobState.RUNNING) for _ in range(100)
        ]
        streams = [following.events(each, "0.0", always) for each in followers]
        assert {
            line
            for each in await asyncio.gather(*(_take(s, 1) for s in streams))
            for line in _lines(each)
        } == {"first"}
        waiting = [asyncio.create_task(_take(stream, 1)) for stream in streams]
        # After the first round of news, only the poller reads.
        while following._reads or len([s for s in watched.statements if "progress" in s]) < 3:
            await asyncio.sleep(0.005)
        watched.statements.clear()
        while len([s for s in watched.statements if "progress" in s]) < 5:
            await asyncio.sleep(0.005)
        assert {s.split("FROM ")[1].split()[0] for s in watched.statements} == {"progress", "jobs"}
        watched.statements.clear()
        await asyncio.to_thread(upload_logs, api, claim, (0, "stdout", "second"))
        came = await asyncio.gather(*waiting)
        assert {line for each in came for line in _lines(each)} == {"second"}
        assert len([s for s in watched.statements if "FROM log_totals" in s]) <= 2 * 2 + 1
        await asyncio.to_thread(scenes.end, api.database, claim, Reason.SUCCEEDED)
        ends = await asyncio.gather(*(_take(stream, 1) for stream in streams))
        assert {each["event"] for end in ends for each in end} == {"end"}
        for stream in streams:
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
        following.close()
        following.join()

    asyncio.run(follow())


def test_a_silent_stream_shows_a_sign_of_life_and_close_ends_it(api: Api) -> None:
    claim = scenes.run(api.database)

    async def follow() -> None:
        following = ChangeStreams(api.database, period_seconds=60, heartbeat_seconds=0.01)
        entered = following.enter(claim.job_id, LogSelection(), JobState.RUNNING)
        stream = following.events(entered, "0.0", always)
        assert b"id: 0.0\n" in await anext(stream)
        while (sign := await anext(stream)).startswith(b"id"):
            pass
        assert sign == b": nothing new\n\n"
        following.close()
        following.join()
        assert [each async for each in stream] in ([], [sign])
        with pytest.raises(Exception, match="the service is stopping"):
            following.enter(claim.job_id, LogSelection(), JobState.RUNNING)

    asyncio.run(follow())


@pytest.mark.parametrize("lines", [0, 3], ids=["quiet", "busy"])
def test_a_stream_ends_once_its_reader_has_lost_the_right(api: Api, lines: int) -> None:
    claim = scenes.run(api.database)
    asked = []

    async def refused() -> bool:
        asked.append(1)
        return len(asked) < 3

    async def follow() -> None:
        following = ChangeStreams(api.database, period_seconds=0.01, heartbeat_seconds=0.02)
        entered = following.enter(claim.job_id, LogSelection(), JobState.RUNNING)
        stream = following.events(entered, "0.0", refused)
        for number in range(lines):
            await asyncio.to_thread(upload_logs, api, claim, (0, "stdout", str(number)))
        assert [each async for each in stream]
        following.close()
        following.join()

    asyncio.run(asyncio.wait_for(follow(), 60))
    assert len(asked) == 3


def test_the_reader_of_an_open_stream_is_looked_up_again(api: Api) -> None:
    request = Request(
        {
            "type": "http",
            "app": api.http.app,
            "headers": [(b"authorization", f"Bearer {TOKEN}".encode())],
        }
    )
    assert asyncio.run(access.still_reads(request, "default"))
    with api.database.jobs() as session:
        session.execute(update(UserRow).values(state=UserState.OFF))
    # As on another api: this one remembers the caller for other requests.
    assert not asyncio.run(access.still_reads(request, "default"))


def test_a_disconnect_does_not_cancel_the_read_of_another_reader(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = scenes.run(api.database)
    upload_logs(api, claim, (0, "stdout", "shared"))
    go_on = threading.Event()
    read = ChangeStreams._read_portion

    def slowly(self: ChangeStreams, *asked: Any) -> Any:
        assert go_on.wait(60)
        return read(self, *asked)

    monkeypatch.setattr(ChangeStreams, "_read_portion", slowly)

    async def follow() -> None:
        following = ChangeStreams(api.database)

        def entered() -> StreamSubscription:
            return following.enter(claim.job_id, LogSelection(), JobState.RUNNING)

        leaves, stays = (
            asyncio.create_task(_take(following.events(entered(), "0.0", always), 1))
            for _ in range(2)
        )
        while not following._reads:
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        leaves.cancel()
        await asyncio.sleep(0)
        go_on.set()
        assert _lines(await stays) == ["shared"]
        following.close()
        following.join()

    asyncio.run(follow())


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    made.end(signal.SIGKILL)


def test_a_real_connection_gets_lines_at_once_and_ends_with_the_service(
    program: Program,
) -> None:
    program.start()
    database = Database(f"sqlite:///{program.home}/jobs.db", f"sqlite:///{program.home}/series.db")
    claim = scenes.run(database)
    writer = Api(None, database, ("", ""), None, None, program.home)  # type: ignore[arg-type]  # only its database is used
    address = f"/v1/jobs/{claim.job_id}/logs/stream"
    with program.client() as http:
        with http.stream("GET", address) as response:
            events = iter(EventSource(response))
            assert next(events).id == "0.0"
            for text in ("one", "two"):
                upload_logs(writer, claim, (0, "stdout", text))
                while (came := next(events)).event != "lines":
                    pass
                assert [line["text"] for line in json.loads(came.data)["lines"]] == [text]
            last = came.id
        with http.stream("GET", address, headers={"Last-Event-ID": last}) as response:
            events = iter(EventSource(response))
            assert next(events).id == last
            # A stream does not delay the end of the service, and is closed as a complete answer.
            assert program.end() < 60
            assert [each.event for each in events if each.data] == []
    # The client reads a page, then follows the stream to its end event.
    program.environment["LOCKSTEP_PORT"] = program.url.rpartition(":")[2]
    program.start()
    came_by: list[str] = []
    with Client(program.url, program.token, say=lambda _line: None) as client:
        lines = client.logs(claim.job_id, follow=True, poll_seconds=0.05)
        came_by += [next(lines).text, next(lines).text]
        upload_logs(writer, claim, (0, "stdout", "three"))
        came_by.append(next(lines).text)
        scenes.end(database, claim, Reason.SUCCEEDED)
        came_by += [line.text for line in lines]
    assert came_by == ["one", "two", "three"]
    database.close()
    assert not [
        line for line in program.lines if "exceeded" in str(line) or line.get("level") == "error"
    ]
