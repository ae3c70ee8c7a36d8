"""Load on an open loop.

Requests leave at the times of a timetable, independent of earlier answers.

A client that waits for an answer before its next request does not measure during a stall of the
service, and so omits the requests that would have waited ("coordinated omission"). Here the
timetable is fixed in advance, and a latency is counted from the time at which the request *should*
have left: a stall of one second is in the latency of every request of that second, also of those
that left late because every connection was in use.

Not here: the content of the requests (``wire``, the rows).
"""

from __future__ import annotations

import itertools
import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Final, NamedTuple

Send = Callable[[int], int]
"""Sends the request with this number, waits for its answer, and returns its status.

A broken connection raises OSError.
"""
Connect = Callable[[], AbstractContextManager[Send]]
"""Opens one connection."""
BROKEN: Final = 0
"""The status of a request whose connection broke."""
_READY_SECONDS: Final = 0.2
"""From the last opened connection to the first request."""


class Sent(NamedTuple):
    """One request. Times are the clock's, in seconds."""

    intended: float
    began: float
    ended: float
    status: int

    @property
    def latency(self) -> float:
        """Seconds from the time at which it should have left to its answer."""
        return self.ended - self.intended


def arrivals(rate: float, seconds: float, *, offset: float = 0.0) -> list[float]:
    """Return the times of a constant rate, in seconds after the start, within ``seconds``.

    Parameters
    ----------
    rate : float
        Per second.
    seconds : float
    offset : float
        Time of the first.
    """
    return [
        offset + number / rate for number in range(math.floor((seconds - offset) * rate + 1e-9))
    ]


def open_loop(connect: Connect, timetable: Sequence[float], *, connections: int) -> list[Sent]:
    """Send one request at each time of ``timetable``; return them in its order.

    Parameters
    ----------
    connect : callable
        Called once for each connection, before the first request.
    timetable : sequence of float
        Ascending, in seconds after the start.
    connections : int
        Maximum of concurrent requests. The next one then leaves late, which is in its latency.
    """
    take = _counter(len(timetable))
    found: list[Sent | None] = [None] * len(timetable)
    with ExitStack() as stack:
        sends = [stack.enter_context(connect()) for _ in range(min(connections, len(timetable)))]
        begin = time.perf_counter() + _READY_SECONDS

        def work(send: Send) -> None:
            for number, sent in keep_time(send, timetable, take, begin):
                found[number] = sent

        _in_threads(work, sends)
    return [sent for sent in found if sent is not None]


def keep_time(
    send: Send,
    timetable: Sequence[float],
    take: Callable[[], int | None],
    begin: float,
    *,
    clock: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> list[tuple[int, Sent]]:
    """Run one connection.

    Take the next number, wait for its time if that is in the future, send, record the times.

    Parameters
    ----------
    send : callable
    timetable : sequence of float
    take : callable
        The next number that no connection has taken, None after the last.
    begin : float
        The start, by ``clock``.
    clock, sleep : callable
        Return the time, and wait this number of seconds.
    """
    found = []
    while (number := take()) is not None:
        intended = begin + timetable[number]
        if (early := intended - clock()) > 0:
            sleep(early)
        began = clock()
        status = _status(send, number)
        found.append((number, Sent(intended, began, clock(), status)))
    return found


def closed_loop(connect: Connect, *, seconds: float, connections: int) -> list[Sent]:
    """Send with ``connections`` in sequence for ``seconds``: for a throughput, never a latency."""
    numbers = itertools.count()
    found: list[Sent] = []
    with ExitStack() as stack:
        sends = [stack.enter_context(connect()) for _ in range(connections)]
        deadline = time.perf_counter() + seconds

        def work(send: Send) -> None:
            while (began := time.perf_counter()) < deadline:
                status = _status(send, next(numbers))
                found.append(Sent(began, began, time.perf_counter(), status))

        _in_threads(work, sends)
    return found


def per_second(sent: Sequence[Sent], status: int) -> float:
    """Return the answers of that status, per second from the first request to the last answer."""
    good = sum(one.status == status for one in sent)
    if not good:
        raise RuntimeError(
            f"none of {len(sent)} requests was answered with {status}: "
            f"{sorted({s.status for s in sent})}"
        )
    return good / (max(one.ended for one in sent) - min(one.began for one in sent))


def percentile_ms(sent: Sequence[Sent], percent: float) -> float:
    """Return the nearest-rank percentile of the latencies, in milliseconds."""
    ordered = sorted(one.latency for one in sent)
    return 1e3 * ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def failed(sent: Sequence[Sent], *statuses: int) -> int:
    """Return the number of requests with another answer or none."""
    return sum(one.status not in statuses for one in sent)


def _status(send: Send, number: int) -> int:
    try:
        return send(number)
    except OSError:
        return BROKEN


def _counter(end: int) -> Callable[[], int | None]:
    numbers, lock = iter(range(end)), threading.Lock()

    def take() -> int | None:
        with lock:
            return next(numbers, None)

    return take


def _in_threads(work: Callable[[Send], None], sends: Sequence[Send]) -> None:
    threads = [threading.Thread(target=work, args=(send,)) for send in sends]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
