"""Retries of the client, and the translation of errors."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from lockstep.client import transport
from lockstep.client.api import Client
from lockstep.client.archive import CodeArchive
from lockstep.client.errors import (
    ExitCode,
    NotAllowedError,
    NotFoundError,
    RefusedError,
    UnavailableError,
    UnreachableError,
)
from lockstep.client.transport import Transport
from lockstep.domain.people_views import TOKEN_EXPIRES
from lockstep.domain.views import JobView, UploadView
from tests.client import examples
from tests.client.server import RESET, Answer, ReplayServer, problem, view


class Waits:
    """Clock that advances only by sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)

    def clock(self) -> float:
        return sum(self.slept)


@pytest.fixture
def waits() -> Waits:
    return Waits()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def client(server: ReplayServer, waits: Waits, said: list[str]) -> Iterator[Client]:
    carrier = Transport(
        server.url,
        "secret",
        patience_seconds=60,
        say=said.append,
        sleep=waits.sleep,
        clock=waits.clock,
        draw=lambda: 1.0,
    )
    with Client(server.url, transport=carrier) as connected:
        yield connected


def test_the_token_travels_as_a_bearer(client: Client, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/last", examples.job())
    client.job("last")
    assert server.asked[0].headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("left", "words"),
    [(timedelta(days=15), None), (timedelta(days=3, hours=1), "in 3 days"), (None, None)],
)
def test_a_token_that_ends_soon_is_reported_once(
    server: ReplayServer, left: timedelta | None, words: str | None
) -> None:
    end = {} if left is None else {TOKEN_EXPIRES: (datetime.now(UTC) + left).isoformat()}
    server.on("GET", "/v1/jobs", replace(view(examples.listed(items=[])), headers=end))
    said: list[str] = []
    with Client(server.url, "secret", say=said.append) as client:
        for each in (client, client, client.twin()):
            each.jobs()
    assert [words in line for line in said if words] == ([True] if words else [])
    assert bool(said) is (words is not None)


def test_a_read_survives_a_reset_connection_with_a_message(
    client: Client, server: ReplayServer, said: list[str]
) -> None:
    server.on("GET", "/v1/jobs/last", RESET, RESET, examples.job())
    assert client.job("last").id == examples.ID
    assert len(server.asked) == 3
    assert len(said) == 1
    assert server.url in said[0]


def test_a_refused_connection_is_tried_until_the_server_is_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    late: list[ReplayServer] = []

    def start_on_second_wait(seconds: float) -> None:
        started.append(seconds)
        if len(started) == 2:
            late.append(ReplayServer(port).__enter__())
            late[0].on("GET", "/v1/jobs/last", examples.job())

    started: list[float] = []
    url = f"http://127.0.0.1:{port}"
    transport = Transport(
        url, None, patience_seconds=60, say=lambda _: None, sleep=start_on_second_wait
    )
    try:
        with Client(url, transport=transport) as client:
            assert client.job("last").id == examples.ID
    finally:
        for server in late:
            server.__exit__()


def test_a_server_that_never_answers_is_given_up_in_bounded_time() -> None:
    waits = Waits()
    transport = Transport(
        "http://127.0.0.1:9",
        None,
        patience_seconds=5,
        say=lambda _: None,
        sleep=waits.sleep,
        clock=waits.clock,
    )
    with (
        Client("", transport=transport) as client,
        pytest.raises(UnreachableError, match="connection refused") as caught,
    ):
        client.job("last")
    assert caught.value.exit_code is ExitCode.UNREACHABLE
    assert "lockstep up" in caught.value.next_step
    assert 1 < sum(waits.slept) <= 5


def test_waits_grow_and_are_spread_by_jitter(server: ReplayServer) -> None:
    slept = {}
    for draw in (0.0, 1.0):
        waits = Waits()
        transport = Transport(
            server.url,
            None,
            patience_seconds=20,
            say=lambda _: None,
            sleep=waits.sleep,
            clock=waits.clock,
            draw=lambda d=draw: d,
        )
        server.on("GET", "/v1/jobs/last", *[RESET] * 6, examples.job())
        with Client("", transport=transport) as client:
            client.job("last")
        slept[draw] = waits.slept
    assert slept[1.0] == sorted(slept[1.0])
    assert slept[1.0][-1] > 8 * slept[1.0][0]
    assert all(low < high for low, high in zip(slept[0.0], slept[1.0], strict=True))


def test_a_busy_server_sets_the_wait(client: Client, server: ReplayServer, waits: Waits) -> None:
    busy = Answer(503, b"", {"Retry-After": "7"})
    server.on("GET", "/v1/jobs/last", busy, examples.job())
    client.job("last")
    assert waits.slept == [7.0]


def test_a_caller_over_its_quota_waits_for_retry_after(
    client: Client, server: ReplayServer, waits: Waits, said: list[str]
) -> None:
    server.on("POST", "/v1/jobs", Answer(429, b"", {"Retry-After": "3"}), examples.job())
    client.submit(examples.SPEC)
    assert waits.slept == [3.0]
    assert "asks to wait (too many requests)" in said[0]


def test_a_wait_beyond_the_patience_ends_with_the_servers_own_words(
    client: Client, server: ReplayServer
) -> None:
    client.transport.patience_seconds = 30
    refused = problem(429, "too_many_requests", "more than 5 requests in 86400 s")
    server.on(
        "GET",
        "/v1/jobs/last",
        Answer(429, refused.body, {**refused.headers, "Retry-After": "86400"}),
    )
    with pytest.raises(UnavailableError, match="more than 5 requests"):
        client.job("last")
    assert len(server.asked) == 1


def test_the_memory_of_cached_answers_is_bounded(
    client: Client, server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "REMEMBERED_BYTES_MAX", 3 * len(view(examples.job()).body))
    names = [f"job-{number}" for number in range(6)]
    for name in (*names, names[-1], names[0]):
        server.on("GET", f"/v1/jobs/{name}", examples.job())
        client.transport.get(f"/v1/jobs/{name}", JobView)
    held = ["if-none-match" in asked.headers for asked in server.asked]
    assert held == [*[False] * 6, True, False], (
        "of the last three the last is known, and the first is not"
    )


def test_a_server_that_stays_busy_is_reported_with_its_own_words(
    client: Client, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/last", problem(503, "unavailable", "the database does not answer"))
    with pytest.raises(UnavailableError, match="the database does not answer") as caught:
        client.job("last")
    assert caught.value.exit_code is ExitCode.UNREACHABLE


@pytest.mark.parametrize(
    ("status", "code", "error", "exit_code"),
    [
        (400, "invalid", RefusedError, 1),
        (409, "conflict", RefusedError, 1),
        (413, "too_large", RefusedError, 1),
        (507, "storage_full", RefusedError, 1),
        (404, "not_found", NotFoundError, 3),
        (401, "unauthenticated", NotAllowedError, 4),
        (403, "forbidden", NotAllowedError, 4),
    ],
)
def test_a_refusal_is_not_tried_again_and_has_its_exit_code(
    client: Client,
    server: ReplayServer,
    status: int,
    code: str,
    error: type[RefusedError],
    exit_code: int,
) -> None:
    server.on("POST", "/v1/jobs", problem(status, code, "no", next_step="do this"))
    with pytest.raises(error) as caught:
        client.submit(examples.SPEC)
    assert len(server.asked) == 1
    assert type(caught.value) is error
    assert caught.value.exit_code == exit_code
    assert caught.value.next_step == "do this"


def test_a_proxys_page_is_reported_by_its_status(client: Client, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/last", Answer(403, b"<html>go away</html>"))
    with pytest.raises(NotAllowedError, match="403"):
        client.job("last")


def test_an_answer_of_another_service_is_not_taken_for_a_job(
    client: Client, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/last", Answer(200, b'{"hello": 1}'))
    with pytest.raises(UnreachableError, match="sent an unexpected response to /v1/jobs/last"):
        client.job("last")


def test_every_submit_has_a_key_and_its_repeats_have_the_same(
    client: Client, server: ReplayServer
) -> None:
    server.on("POST", "/v1/jobs", RESET, view(examples.job(), 201))
    client.submit(examples.SPEC)
    client.submit(examples.SPEC)
    first, repeat, other = (
        asked.headers["idempotency-key"] for asked in server.requests("POST", "/v1/jobs")
    )
    assert first == repeat
    assert other != first
    assert server.asked[1].json() == examples.SPEC


def test_an_upload_is_sent_whole_again_after_a_reset(
    client: Client, server: ReplayServer, tmp_path: Path
) -> None:
    file = tmp_path / "a.tar.gz"
    file.write_bytes(b"x" * 3_000_000)
    archive = CodeArchive(file, "d" * 64, 3_000_000, 1)
    path = f"/v1/uploads/{archive.sha256}"
    server.on(
        "PUT",
        path,
        RESET,
        view(UploadView(sha256="d" * 64, bytes=3_000_000, files=1, created=True), 201),
    )
    assert client.upload_archive(archive).created
    first, second = server.requests("PUT", path)
    assert first.body == second.body == file.read_bytes()
    assert second.headers["content-length"] == "3000000"


def test_an_archive_that_the_server_has_is_not_sent(
    client: Client, server: ReplayServer, tmp_path: Path
) -> None:
    server.on(
        "GET",
        f"/v1/uploads/{'d' * 64}",
        UploadView(sha256="d" * 64, bytes=5, files=1, created=False),
    )
    assert not client.upload_archive(CodeArchive(tmp_path / "unread", "d" * 64, 5, 1)).created
    assert [asked.method for asked in server.asked] == ["GET"]


def test_polling_sends_the_tag_and_takes_304_for_the_answer_it_has(
    client: Client, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/last", examples.job())
    first, second = client.job("last"), client.job("last")
    assert second is first
    assert "if-none-match" not in server.asked[0].headers
    assert server.asked[1].headers["if-none-match"]
    server.on("GET", "/v1/jobs/last", examples.succeeded())
    assert client.job("last").state == "succeeded"


def test_cancelling_twice_is_one_cancel(client: Client, server: ReplayServer) -> None:
    """The answer to the first request may be lost. The second must not appear as a failure."""
    from lockstep.domain.life.lifecycle import JobState

    path = f"/v1/jobs/{examples.ID}"
    server.on("POST", f"{path}/cancel", RESET, problem(409, "conflict", "it is cancelled"))
    server.on("GET", path, examples.job(JobState.CANCELLED))
    assert client.cancel(examples.ID).state is JobState.CANCELLED


def test_cancelling_a_job_that_succeeded_is_refused(client: Client, server: ReplayServer) -> None:
    path = f"/v1/jobs/{examples.ID}"
    server.on("POST", f"{path}/cancel", problem(409, "conflict", "it has ended"))
    server.on("GET", path, examples.succeeded())
    with pytest.raises(RefusedError, match="it has ended"):
        client.cancel(examples.ID)


def test_a_reference_cannot_change_other_parts_of_the_address(
    client: Client, server: ReplayServer
) -> None:
    with pytest.raises(NotFoundError):
        client.job("..%2Fnodes?x=1#y")
    assert server.asked[0].path == "/v1/jobs/..%252Fnodes%3Fx%3D1%23y"


def test_followed_logs_continue_from_the_cursor_until_the_job_is_complete(
    client: Client, server: ReplayServer
) -> None:
    path = f"/v1/jobs/{examples.ID}/logs"
    server.on("GET", "/v1/jobs/last", examples.job())
    server.on(
        "GET",
        path,
        examples.log_page("a", "b", complete=False),
        examples.log_page(start=2, complete=False),
        examples.log_page("c", start=2, complete=True),
    )
    lines = list(client.logs("last", follow=True, tail=2, poll_seconds=0.001))
    assert [line.text for line in lines] == ["a", "b", "c"]
    assert [asked.query.get("cursor") for asked in server.requests("GET", path)] == [
        None,
        ["c2"],
        ["c2"],
    ]
    assert [asked.query.get("tail") for asked in server.requests("GET", path)] == [
        ["2"],
        None,
        None,
    ]


def _stream(*events: tuple[str, str, str]) -> Answer:
    body = "".join(f"event: {kind}\ndata: {data}\nid: {place}\n\n" for kind, data, place in events)
    return Answer(
        200, b": hello\nid: c2\n\n" + body.encode(), {"Content-Type": "text/event-stream"}
    )


def test_a_broken_stream_of_followed_logs_is_resumed(client: Client, server: ReplayServer) -> None:
    path = f"/v1/jobs/{examples.ID}/logs"
    server.on("GET", "/v1/jobs/last", examples.job())
    pages = examples.log_page("a", "b", complete=False), examples.log_page(start=2, complete=False)
    server.on(
        "GET",
        path,
        *pages,
        examples.log_page("d", start=3, complete=False),
        examples.log_page(start=4, complete=False),
    )
    server.on(
        "GET",
        f"{path}/stream",
        _stream(("lines", examples.log_page("c", start=2).model_dump_json(), "c3")),
        _stream(
            ("lines", examples.log_page("e", start=4).model_dump_json(), "c5"), ("end", "{}", "c5")
        ),
    )
    lines = list(client.logs("last", follow=True, rank=1, poll_seconds=0.001))
    assert [line.text for line in lines] == ["a", "b", "c", "d", "e"]
    assert [asked.query["cursor"] for asked in server.requests("GET", f"{path}/stream")] == [
        ["c2"],
        ["c4"],
    ]
    assert [asked.query.get("cursor") for asked in server.requests("GET", path)] == [
        None,
        ["c2"],
        ["c3"],
        ["c4"],
    ]
    assert {tuple(asked.query["rank"]) for asked in server.asked if "logs" in asked.path} == {
        ("1",)
    }


def test_pages_that_found_nothing_are_not_the_end_of_a_log(
    client: Client, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/last", examples.job())
    pages = [examples.log_page(start=start, complete=False) for start in (5, 9)]
    found = (
        examples.log_page("needle", start=9, complete=False),
        examples.log_page(start=10, complete=False),
    )
    server.on("GET", f"/v1/jobs/{examples.ID}/logs", *pages, *found)
    assert [line.text for line in client.logs("last", search="needle")] == ["needle"]


def test_waiting_keeps_to_one_job_and_follows_it_to_its_end(
    client: Client, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.job())
    server.on("GET", f"/v1/jobs/{examples.ID}", examples.job(), examples.succeeded())
    seen: list[str] = []
    ended = client.wait("tiny", each=lambda job: seen.append(job.state), poll_seconds=0.001)
    assert ended.state == "succeeded"
    assert seen == ["queued", "queued", "succeeded"]
    assert len(server.requests("GET", "/v1/jobs/tiny")) == 1


def test_waiting_ends_in_time(client: Client, server: ReplayServer) -> None:
    from lockstep.client.errors import TimedOutError

    server.on("GET", "/v1/jobs/tiny", examples.job())
    server.on("GET", f"/v1/jobs/{examples.ID}", examples.job())
    before = time.monotonic()
    with pytest.raises(TimedOutError, match="still queued"):
        client.wait("tiny", 0.05, poll_seconds=0.01)
    assert time.monotonic() - before < 60


def test_pages_are_read_to_the_last(client: Client, server: ReplayServer) -> None:
    first, second = examples.events().items
    page = type(examples.events())
    server.on(
        "GET", "/v1/jobs/x/events", page(items=[first], next_cursor="n"), page(items=[second])
    )
    assert [event.id for event in client.events("x")] == [1, 2]
    assert server.asked[1].query == {"cursor": ["n"]}


def test_the_last_events_are_read_backwards_and_returned_in_order(
    client: Client, server: ReplayServer
) -> None:
    first, second = examples.events().items
    third = second.model_copy(update={"id": 3})
    page = type(examples.events())
    server.on(
        "GET",
        "/v1/jobs/x/events",
        page(items=[third], next_cursor="3"),
        page(items=[second], next_cursor="2"),
    )
    assert [event.id for event in client.events("x", tail=2)] == [2, 3]
    assert [asked.query.get("cursor") for asked in server.asked] == [None, ["3"]]
    assert {tuple(asked.query["order"]) for asked in server.asked} == {("newest",)}
    server.on("GET", "/v1/jobs/x/events", page(items=[third, second, first]))
    assert [event.id for event in client.events("x", tail=9)] == [1, 2, 3]
    assert [event.id for event in client.events("x", tail=1)] == [3]
