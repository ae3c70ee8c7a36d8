"""Traffic of pages: when they open, and over one minute. Requests, and bytes with their headers.

The pages are open side by side, so that the minute passes once.
"""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Page, expect

from tests.dashboard.browser import visiting
from tests.dashboard.work import Work
from tests.harness.builders import slow
from tests.harness.service import Service

MINUTE_MS = 60_000
SETTLING_MS = 15_000
"""First answers, late points of jobs that have just ended, and their sparklines."""
ROWS = 50
BEGUN = 1_500
"""Steps that the live job reports at once: more than a chart has places."""
FIRST_DATA_KILOBYTES, FIRST_CODE_KILOBYTES = 250, 185
HIDE = """() => {
  Object.defineProperty(document, "visibilityState", { value: "hidden" });
  Object.defineProperty(document, "hidden", { value: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""


@dataclass
class Traffic:
    """Counts of one page from here on, as the browser's network stack reports them."""

    page: Page
    requests: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    """Both by path."""
    _paths: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        session = self.page.context.new_cdp_session(self.page)
        session.on("Network.requestWillBeSent", self._sent)
        session.on("Network.loadingFinished", self._finished)
        session.send("Network.enable")

    def _sent(self, event: dict[str, Any]) -> None:
        path = urlsplit(event["request"]["url"]).path
        self.requests[path] += 1
        self._paths[event["requestId"]] = path

    def _finished(self, event: dict[str, Any]) -> None:
        # A request that was sent before the count began does not belong to it.
        if path := self._paths.get(event["requestId"]):
            self.bytes[path] += int(event["encodedDataLength"])

    def of(self, prefix: str) -> int:
        """Return the bytes of all paths with this beginning."""
        return sum(count for path, count in self.bytes.items() if path.startswith(prefix))

    def within(self, requests: int, kilobytes: int) -> str | None:
        """Return the excess, if there is one."""
        sent, received = self.requests.total(), self.bytes.total()
        if sent <= requests and received <= kilobytes * 1_000:
            return None
        by_path = f"{dict(self.requests)}, {dict(self.bytes)}"
        return f"{self.page.url}: {sent} requests, {received} bytes: {by_path}"


def test_a_minute_of_open_pages_stays_within_its_requests_and_bytes(
    browser: Browser, lockstep: Service, token: str, work: Work
) -> None:
    ended = work.curve("ended", steps=200)
    live = [work.wide("wide", begun=BEGUN), work.curve("other", steps=10_000, pause=1)]
    # Starts on the device of the one that ends. Some points per second and series, as in the live
    # script; its pauses leave the processors to the browser.
    code = lockstep.home / "slow"
    train = lockstep.submit(slow(lockstep, code, "train", args={"pause": 0.01}, steps=100_000))[
        "id"
    ]
    work.ended(ended)
    work.copies(ended, ROWS - 4)
    lockstep.at_step(train, 2)
    lockstep.at_step(live[0], BEGUN)
    with ExitStack() as tabs:

        def tab(address: str, heading: str) -> tuple[Page, Traffic]:
            visitor = tabs.enter_context(visiting(browser, lockstep.url, token))
            first = Traffic(visitor.page)
            return visitor.go(address, heading).page, first

        opened = [
            tab(f"/jobs/{live[0]}", "wide"),
            tab(f"/jobs/{live[0]}?tab=logs", "wide"),
            tab(f"/jobs/{live[0]}", "wide"),
            tab(f"/jobs/{train}", "train"),
            tab(f"/jobs/{ended}", "ended"),
            tab("/jobs", "Jobs"),
            tab("/", "Home"),
        ]
        pages = [page for page, _ in opened]
        first = opened[0][1]
        pages[0].get_by_role("img", name="Line chart of val/loss").wait_for()
        assert [page.evaluate("document.visibilityState") for page in pages] == ["visible"] * 7
        # Planted rows are shown like those of real jobs.
        expect(pages[5].locator("tr", has_text="ended-0").get_by_role("img")).to_be_visible()
        pages[1].get_by_test_id("log-where").wait_for()
        pages[2].evaluate(HIDE)
        assert first.of("/v1/") <= FIRST_DATA_KILOBYTES * 1_000, dict(first.bytes)
        of_code = opened[5][1]
        assert 0 < of_code.of("/assets/") <= FIRST_CODE_KILOBYTES * 1_000, dict(of_code.bytes)
        pages[0].wait_for_timeout(SETTLING_MS)
        of_live, of_log, of_hidden, of_train, of_ended, of_list, of_home = map(Traffic, pages)
        pages[0].wait_for_timeout(MINUTE_MS)
        found = [
            of_live.within(40, 300),
            of_log.within(40, 300),
            of_hidden.within(0, 0),
            of_train.within(40, 300),
            of_ended.within(0, 0),
            of_list.within(14, 60),
            of_home.within(14, 100),
        ]
        # Not because polling stopped.
        for traffic, path in (
            (of_live, f"{live[0]}/live"),
            (of_log, f"{live[0]}/logs"),
            (of_train, f"{train}/live"),
        ):
            assert traffic.requests[f"/v1/jobs/{path}"] >= 15
        assert of_list.requests["/v1/jobs"] > 0
        assert set(of_home.requests) == {"/v1/home"}
        assert not any(found), "\n".join(filter(None, found))
    work.cancel(*live, train)
