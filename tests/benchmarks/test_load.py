"""Load of the service's benchmark: arrivals on time, and latency from the intended moment.

Not here: the content of the requests, which the benchmark's own rows define.
"""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.service.load import (
    BROKEN,
    Sent,
    arrivals,
    closed_loop,
    failed,
    keep_time,
    open_loop,
    per_second,
    percentile_ms,
)
from benchmarks.service.wire import Wire, sender


@dataclass
class Clock:
    """Clock that advances only with a wait or with work."""

    now: float = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def sent_on(
    clock: Clock, timetable: list[float], costs: dict[int, float], *, usual: float
) -> list[Sent]:
    """Return the record of one connection whose requests take these times."""
    numbers = iter(range(len(timetable)))

    def send(number: int) -> int:
        clock.now += costs.get(number, usual)
        return 200

    kept = keep_time(
        send, timetable, lambda: next(numbers, None), clock.now, clock=clock, sleep=clock.sleep
    )
    return [sent for _, sent in kept]


def test_arrivals_come_at_a_constant_rate_from_their_offset_to_the_end() -> None:
    assert arrivals(4, 1.0) == [0.0, 0.25, 0.5, 0.75]
    assert arrivals(0.5, 6.0, offset=1.0) == [1.0, 3.0]
    assert arrivals(10, 0.3) == pytest.approx([0.0, 0.1, 0.2])
    assert arrivals(1, 0.5, offset=0.5) == []


def test_a_request_in_time_leaves_at_its_moment_and_not_before() -> None:
    sent = sent_on(Clock(), [0.0, 1.0, 2.0], {}, usual=0.25)
    assert [one.began for one in sent] == [one.intended for one in sent] == [100.0, 101.0, 102.0]
    assert [one.latency for one in sent] == [0.25, 0.25, 0.25]


def test_a_stall_counts_in_the_latency_of_all_requests_during_it() -> None:
    """Number 1 stalls for 3 s.

    Numbers 2 and 3 leave late because of it, and are fast. A closed loop would call that a good
    latency.
    """
    sent = sent_on(Clock(), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0], {1: 3.0}, usual=0.25)
    assert [one.intended for one in sent] == [100.0, 101.0, 102.0, 103.0, 104.0, 105.0]
    assert [one.began for one in sent] == [100.0, 101.0, 104.0, 104.25, 104.5, 105.0]
    assert [one.latency for one in sent] == [0.25, 3.0, 2.25, 1.5, 0.75, 0.25]


def test_percentiles_are_the_nearest_rank_of_latencies_from_the_intended_moment() -> None:
    sent = [
        Sent(intended=0.0, began=50.0, ended=float(number), status=200) for number in range(1, 101)
    ]
    assert percentile_ms(sent[::-1], 50) == 50_000
    assert percentile_ms(sent, 99) == 99_000
    assert percentile_ms(sent[:1], 99) == 1_000


def test_only_answers_of_the_wanted_status_count_for_a_rate() -> None:
    sent = [Sent(0, 0, 1, 201), Sent(0, 0, 2, 201), Sent(0, 0, 4, 503), Sent(0, 0, 3, BROKEN)]
    assert per_second(sent, 201) == 0.5
    assert failed(sent, 201) == 2
    with pytest.raises(RuntimeError, match=r"none of 1 requests was answered with 201: \[503\]"):
        per_second(sent[2:3], 201)


@pytest.fixture
def server() -> Iterator[str]:
    """Server that answers 200, and breaks the connection at ``/break``."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            if self.path == "/break":
                self.close_connection = True
                return
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as serving:
        thread = threading.Thread(target=serving.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{serving.server_address[1]}"
        serving.shutdown()
        thread.join()


def test_each_moment_of_the_timetable_has_one_request_in_order(
    server: str,
) -> None:
    numbers: list[int] = []

    def get(wire: Wire, number: int):
        numbers.append(number)
        return wire.ask("GET", "/")

    timetable = arrivals(200, 0.2)
    sent = open_loop(sender(lambda: Wire(server), get), timetable, connections=4)
    assert sorted(numbers) == list(range(40))
    assert [one.intended - sent[0].intended for one in sent] == pytest.approx(timetable)
    assert all(one.status == 200 and one.began >= one.intended for one in sent)


def test_a_broken_connection_is_a_failed_request_and_ends_nothing(server: str) -> None:
    def get(wire: Wire, number: int):
        return wire.ask("GET", "/break" if number == 1 else "/")

    sent = open_loop(sender(lambda: Wire(server), get), arrivals(100, 0.04), connections=1)
    assert [one.status for one in sent] == [200, BROKEN, 200, 200]
    assert (
        failed(closed_loop(sender(lambda: Wire(server), get), seconds=0.05, connections=2), 200)
        == 1
    )
