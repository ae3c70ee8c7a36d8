"""Open tabs that poll one api while jobs report.

Not here: single reads (``rows_api``), the pages in a browser (``benchmarks.dashboard``).
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.service.compare import Sample
from benchmarks.service.context import Context
from benchmarks.service.load import arrivals, failed, open_loop, percentile_ms
from benchmarks.service.ours import cpu_seconds, wire_to
from benchmarks.service.planting import SERIES, Planter
from benchmarks.service.wire import Answer, Wire, sender
from tests.harness.processes import Program

OPEN_CONNECTIONS: Final = 64
LIVE_SECONDS: Final = 2.0
"""Interval between reports of a live job, so that some polls find new data."""
LIST_SECONDS, JOB_SECONDS, SERIES_SECONDS = 5.0, 2.0, 2.0
SUMMARIES_EVERY: Final = 5
"""Polls of a live job of which one asks for the figures of its series, as a page does."""


class Tabs:
    """One round of many tabs, each with the list and the page of one job.

    Parameters
    ----------
    api : Program
    ids : list of str
        Jobs; each tab shows one.
    planters : list of Planter
        Writers of these jobs, which report meanwhile.
    context : Context
    live : bool
        False polls a job and its series by two requests, as an api without ``getJobLive`` needs.
    """

    def __init__(
        self,
        api: Program,
        ids: list[str],
        planters: list[Planter],
        context: Context,
        *,
        live: bool = True,
    ):
        self._api = api
        self._ids = ids
        self._planters = planters
        self._sizes = context.sizes
        self._live = live
        self._tags: dict[tuple[int, str], str] = {}
        self._cursors: dict[int, str] = {}
        self._asked: dict[int, int] = {}

    def __call__(self) -> Sample:
        """Poll with the tags and cursors of the answers before."""
        timetable, polls = self._polls()
        self._tags, self._cursors, self._asked = {}, {}, {}

        def poll(wire: Wire, number: int) -> Answer:
            return self._poll(wire, *polls[number])

        assert self._api.process is not None
        pid = self._api.process.pid
        with self._reporting():
            used, began = cpu_seconds(pid), time.perf_counter()
            sent = open_loop(
                sender(lambda: wire_to(self._api), poll), timetable, connections=OPEN_CONNECTIONS
            )
            share = (cpu_seconds(pid) - used) / (time.perf_counter() - began)
        if bad := failed(sent, 200, 304):
            raise RuntimeError(
                f"{bad} of {len(sent)} polls were answered neither with 200 nor with 304"
            )
        same = sum(one.status == 304 for one in sent) / len(sent)
        return {"share": 100 * share, "dashboard_p99": percentile_ms(sent, 99), "same": 100 * same}

    def _poll(self, wire: Wire, tab: int, path: str) -> Answer:
        is_live = "/live?" in path
        if is_live and tab in self._cursors:
            count = self._asked[tab] = self._asked.get(tab, 0) + 1
            summaries = json.dumps(count % SUMMARIES_EVERY == 0)
            path += f"&summaries={summaries}&since={self._cursors[tab]}"
        tag = self._tags.get((tab, path))
        answer = wire.ask("GET", path, **({} if tag is None else {"If_None_Match": tag}))
        if "ETag" in answer.headers:
            self._tags[tab, path] = answer.headers["ETag"]
        if is_live and answer.status == 200:
            found: dict[str, Any] = answer.document()
            self._cursors[tab] = found["cursor"]
        return answer

    def _polls(self) -> tuple[list[float], list[tuple[int, str]]]:
        """Return the time of each poll, its tab and its request.

        The tabs begin one after the other.
        """
        polls: list[tuple[float, tuple[int, str]]] = []
        count, seconds = self._sizes.dashboards, self._sizes.dashboard_seconds
        for tab in range(count):
            path = f"/v1/jobs/{self._ids[tab % len(self._ids)]}"
            points = f"names={SERIES[0]}&max_points=1000"
            of_job = (
                [(JOB_SECONDS, f"{path}/live?{points}&attempts=all")]
                if self._live
                else [(JOB_SECONDS, path), (SERIES_SECONDS, f"{path}/metrics?{points}")]
            )
            for every, what in [(LIST_SECONDS, "/v1/jobs"), *of_job]:
                moments = arrivals(1 / every, seconds, offset=every * tab / count)
                polls += [(moment, (tab, what)) for moment in moments]
        polls.sort()
        return [moment for moment, _ in polls], [poll for _, poll in polls]

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Report one step of each live job, evenly over time."""
        stop = threading.Event()

        def report() -> None:
            while True:
                for planter in self._planters:
                    if stop.wait(LIVE_SECONDS / len(self._planters)):
                        return
                    planter.append(1)

        reporting = threading.Thread(target=report)
        reporting.start()
        try:
            yield
        finally:
            stop.set()
            reporting.join()
