"""Speed of the pages, in a headless Chromium against a real api.

``python -m benchmarks.dashboard``.

======================  ================================================================================
first paint             of a job's page in a new browser: until its first content, and until its name is there
first screen            of a job of 300 series: the place of its first chart, what moved, and the longest task
draw                    twenty jobs compared at 1,000 buckets each: from the answer's end to the last stroke
update                  the same while points arrive: from a poll's answer to the last stroke, for each poll
log                     opening a log of a million lines and scrolling to its head: requests and bytes
first load              JavaScript of the list of jobs, as it travels
polls                   50 open pages for half a minute: how many answers were 304
======================  ================================================================================

The strokes are observed from outside, by a canvas that records its last drawing; the pages are
unchanged.

Not here: the required content of the pages (``tests/dashboard``), and the api's own speed
(``benchmarks.service``).
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Page, Response, sync_playwright

from benchmarks.service.ours import api_alone
from benchmarks.service.planting import Planter, job, opened
from benchmarks.service.stores import Sqlite
from lockstep.domain.life.attempt import LogRecord
from lockstep.storage.db.database import Database
from lockstep.storage.logs import logs
from tests.harness.processes import Program, running_broker

FLAGS: Final = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
    " --disable-component-update --disable-sync"
).split()
NAMES: Final = ("train/loss",)
WATCH_STROKES: Final = """
window.lastStroke = 0;
for (const name of ["stroke", "fill"]) {
  const draw = CanvasRenderingContext2D.prototype[name];
  CanvasRenderingContext2D.prototype[name] = function (...given) {
    window.lastStroke = performance.now();
    return draw.apply(this, given);
  };
}
performance.setResourceTimingBufferSize(10000);
"""
LAST_ANSWER: Final = """
() => Math.max(0, ...performance.getEntriesByType("resource").filter((one) => one.name.includes("/v1/series")).map((one) => one.responseEnd))
"""
COMPARED: Final = 20
COMPARED_STEPS: Final = 50_000
MANY_SERIES: Final = tuple(
    f"{group}/{name}" for group in ("train", "val", "layer", "head", "expert") for name in range(60)
)
MANY_STEPS: Final = 500
WATCH_LOAD: Final = """
window.shifted = 0;
window.longest = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
}).observe({ type: "layout-shift", buffered: true });
new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration);
}).observe({ type: "longtask", buffered: true });
"""
LOG_LINES: Final = 1_000_000
LOG_LINES_AT_ONCE: Final = 20_000
OPEN_PAGES: Final = 50
POLL_SECONDS: Final = 30.0


def main() -> int:
    """Measure, print a table and write JSON."""
    parser = argparse.ArgumentParser(description="Measure the dashboard in headless Chromium.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--out", type=Path, default=None, help="write the figures to this file, as JSON"
    )
    asked = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("no chromium here: apt-get install chromium\n")
        return 1
    with tempfile.TemporaryDirectory() as name, _service(Path(name)) as (program, database):
        planted = [job(database) for _ in range(COMPARED)]
        planters = [Planter(database, one, NAMES) for one in planted]
        for planter in planters:
            planter.append(COMPARED_STEPS)
        with_many = job(database)
        Planter(database, with_many, MANY_SERIES).append(MANY_STEPS)
        with_log = job(database)
        _write_log(database, with_log)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            visit = Visits(browser, program)
            figures = {
                **_first_paint(visit, planted[0], asked.rounds),
                **_first_screen(visit, with_many, asked.rounds),
                **_charts(visit, planted, planters, asked.rounds),
                **_log(visit, with_log),
                **_first_load(visit),
                **_polls(visit, planted[0]),
            }
            browser.close()
    for figure, value in figures.items():
        print(f"{figure:<44} {value:>12,.3f}")
    if asked.out is not None:
        asked.out.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    return 0


@contextmanager
def _service(folder: Path) -> Iterator[tuple[Program, Database]]:
    urls = Sqlite().ours(folder / "db")
    database = Database(*urls)
    with running_broker() as broker, api_alone(folder / "api", urls, broker.url) as program:
        yield program, database
    database.close()


def _write_log(database: Database, job_id: str) -> None:
    stream = opened(database, job_id)
    for first in range(0, LOG_LINES, LOG_LINES_AT_ONCE):
        last = first + LOG_LINES_AT_ONCE
        records = [
            LogRecord(time=time.time(), rank=0, stream="stdout", text=f"line {line} of a long log")
            for line in range(first, last)
        ]
        with database.series() as session:
            logs.append(
                session,
                assignment_id=stream.assignment_id,
                token=stream.token,
                offset_before=(0, first),
                offset_after=(0, last),
                records=records,
            )


class Visits:
    """New browsers, signed in."""

    def __init__(self, browser: Browser, program: Program):
        self.browser = browser
        self.url = program.url
        self.token = (program.home / "token").read_text().strip()

    @contextmanager
    def context(self) -> Iterator[BrowserContext]:
        context = self.browser.new_context(viewport={"width": 1440, "height": 900})
        context.add_init_script(
            WATCH_STROKES + f"sessionStorage.setItem('lockstep.token', {json.dumps(self.token)});"
        )
        try:
            yield context
        finally:
            context.close()

    @contextmanager
    def page(self, path: str) -> Iterator[Page]:
        with self.context() as context:
            page = context.new_page()
            page.goto(self.url + path)
            yield page


def _first_paint(visit: Visits, job_id: str, rounds: int) -> dict[str, float]:
    paints, names = [], []
    for _ in range(rounds):
        with visit.page(f"/jobs/{job_id}") as page:
            page.get_by_role("heading", level=1, name="gpt").wait_for()
            names.append(page.evaluate("() => performance.now()"))
            paints.append(
                page.evaluate(
                    "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime "
                    "?? NaN"
                )
            )
    return {
        "job page: first content (ms)": median(paints),
        "job page: its name (ms)": median(names),
    }


def _first_screen(visit: Visits, job_id: str, rounds: int) -> dict[str, float]:
    # It leaves the queue: a job that waits says why above its charts.
    headers = {"Authorization": f"Bearer {visit.token}"}
    request = urllib.request.Request(
        f"{visit.url}/v1/jobs/{job_id}/cancel", method="POST", headers=headers
    )
    urllib.request.urlopen(request).close()
    places, shifts, tasks = [], [], []
    for _ in range(rounds):
        with visit.context() as context:
            context.add_init_script(WATCH_LOAD)
            page = context.new_page()
            page.goto(f"{visit.url}/jobs/{job_id}")
            chart = page.locator("[data-metric]").first
            chart.get_by_role("img").wait_for()
            page.wait_for_timeout(2_000)
            box = chart.bounding_box()
            places.append(box["y"] if box else float("nan"))
            shifts.append(page.evaluate("() => window.shifted"))
            tasks.append(page.evaluate("() => window.longest"))
    name = f"job page of {len(MANY_SERIES)} series"
    return {
        f"{name}: first chart (px)": median(places),
        f"{name}: layout shift": max(shifts),
        f"{name}: longest task (ms)": median(tasks),
    }


def _charts(
    visit: Visits, planted: list[str], planters: list[Planter], rounds: int
) -> dict[str, float]:
    draws, updates = [], []
    path = "/compare?jobs=" + json.dumps(planted)
    for _ in range(rounds):
        with visit.page(path) as page:
            draws.append(_drawn(page))
            for _ in range(3):
                before = page.evaluate(LAST_ANSWER)
                for planter in planters:
                    planter.append(100)
                _until(lambda before=before: page.evaluate(LAST_ANSWER) > before)
                updates.append(_drawn(page))
    return {
        f"{COMPARED} jobs x 1,000 buckets: drawn (ms)": median(draws),
        "live update: drawn (ms), median": median(updates),
        "live update: drawn (ms), worst": max(updates),
    }


def _drawn(page: Page) -> float:
    """Return milliseconds from the end of the newest answer to the last stroke after it."""
    _until(
        lambda: page.evaluate(
            f"() => window.lastStroke > ({LAST_ANSWER})() && ({LAST_ANSWER})() > 0"
        )
    )
    page.wait_for_timeout(400)
    return float(page.evaluate(f"() => window.lastStroke - ({LAST_ANSWER})()"))


def _log(visit: Visits, job_id: str) -> dict[str, float]:
    seen: list[Response] = []
    with visit.context() as context:
        page = context.new_page()
        page.on(
            "response", lambda response: seen.append(response) if "/logs" in response.url else None
        )
        page.goto(f"{visit.url}/jobs/{job_id}?tab=logs")
        page.get_by_text(f"line {LOG_LINES - 1} of a long log").wait_for()
        opened = len(seen)
        region = page.get_by_role("region", name="Log lines")
        for _ in range(20):
            region.evaluate("(element) => { element.scrollTop = 0; }")
            page.wait_for_timeout(150)
        drawn = region.locator("[data-index]").count()
        size = sum(len(response.body()) for response in seen if response.status == 200)
    return {
        "log of 1,000,000 lines: requests to open": float(opened),
        "log of 1,000,000 lines: KB after scrolling": size / 1_000,
        "log of 1,000,000 lines: lines drawn": float(drawn),
    }


def _first_load(visit: Visits) -> dict[str, float]:
    sizes: dict[str, int] = {}

    def note(response: Response) -> None:
        if response.url.endswith((".js", ".css")):
            sizes[response.url] = len(gzip.compress(response.body(), 9))

    with visit.context() as context:
        page = context.new_page()
        page.on("response", note)
        page.goto(f"{visit.url}/jobs")
        page.get_by_role("heading", level=1).wait_for()
        page.wait_for_timeout(500)
    return {
        f"first load: {what} (KB, gzip)": sum(
            size for url, size in sizes.items() if url.endswith(ending)
        )
        / 1_000
        for what, ending in (("JavaScript", ".js"), ("styles", ".css"))
    }


def _polls(visit: Visits, job_id: str) -> dict[str, float]:
    """Open pages: half show the list, half a job that does not change."""
    with visit.context() as context:
        for number in range(OPEN_PAGES):
            page = context.new_page()
            page.goto(visit.url + ("/jobs" if number % 2 else f"/jobs/{job_id}"))
        # Without the protocol's view of answers, which shows the browser's result of a 304: a 200
        # from its cache.
        before = _answers(visit)
        page.wait_for_timeout(POLL_SECONDS * 1_000)
        after = _answers(visit)
    found = {status: after[status] - before[status] for status in after}
    total = sum(found.values())
    return {
        f"{OPEN_PAGES} open pages: requests a second": total / POLL_SECONDS,
        f"{OPEN_PAGES} open pages: of them 304 (%)": 100 * found.get("304", 0) / max(1, total),
    }


def _answers(visit: Visits) -> Counter[str]:
    """Return the number of the api's own answers by status."""
    with urllib.request.urlopen(f"{visit.url}/metrics") as response:
        text = response.read().decode()
    counts: Counter[str] = Counter()
    for line in text.splitlines():
        found = re.match(r"lockstep_http_requests_total\{(?P<labels>[^}]*)\} (?P<value>\S+)", line)
        status = re.search(r'status="(\d+)"', found["labels"]) if found else None
        if found and status:
            counts[status[1]] += int(float(found["value"]))
    return counts


def _until(holds: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so after {seconds} s")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
