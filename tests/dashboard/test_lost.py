"""Loss of the service under an open page, and its return."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Locator, Route, expect

from tests.dashboard.browser import Visitor, visiting
from tests.dashboard.proxy import proxy
from tests.dashboard.work import Work
from tests.harness.processes import until
from tests.harness.service import Service


@pytest.fixture
def visitor(browser: Browser, lockstep: Service, token: str) -> Iterator[Visitor]:
    """Return a user in a new tab, which has no scripts in its cache."""
    with visiting(browser, lockstep.url, token) as visitor:
        yield visitor


def top(element: Locator) -> float:
    """Return the distance of an element from the top of the page, in pixels."""
    distance: float = element.evaluate("node => node.getBoundingClientRect().top + scrollY")
    return distance


def test_a_lost_connection_is_reported_and_the_page_recovers(
    visitor: Visitor, work: Work, lockstep: Service
) -> None:
    work.ended(work.curve("before"))
    visitor.go("/jobs", "Jobs")
    visitor.sees("before")
    visitor.expects("ERR_CONNECTION|Failed to load resource")
    place = top(visitor.page.get_by_role("heading", level=1))
    lockstep.down()
    lost = visitor.page.get_by_test_id("connection-lost")
    expect(lost).to_contain_text("Connection lost")
    visitor.sees("before")
    assert top(visitor.page.get_by_role("heading", level=1)) == place
    visitor.is_accessible()
    lockstep.up()
    expect(lost).to_be_hidden(timeout=60_000)
    expect(visitor.page.get_by_test_id("freshness")).to_be_empty()


def test_a_cut_answer_affects_only_its_panel_until_the_next(
    browser: Browser, lockstep: Service, token: str, work: Work
) -> None:
    job = work.endless("live")
    lockstep.at_step(job, 10)
    with proxy(lockstep.url) as between, visiting(browser, between.address, token) as visitor:
        visitor.expects(
            "ERR_CONTENT_LENGTH_MISMATCH|ERR_INCOMPLETE_CHUNKED|Failed to load resource"
        )
        page = visitor.go(f"/jobs/{job}", "live").page
        chart = page.locator("[data-metric='train/loss']").get_by_role("img")
        expect(chart).to_be_visible()
        place = top(chart)
        between.cut = re.compile(f"/v1/jobs/{job}/live")
        stale = page.locator("section[aria-labelledby=charts-title]").get_by_test_id("stale").first
        expect(stale).to_contain_text("Not updated for", timeout=60_000)
        expect(page.get_by_test_id("freshness")).to_contain_text("old")
        expect(page.get_by_test_id("connection-lost")).to_be_hidden()
        elapsed = page.locator("[data-fact=elapsed]")
        expect(elapsed).to_contain_text("elapsed, stopped", timeout=60_000)
        stopped_at = elapsed.inner_text()
        assert top(chart) == place
        until(lambda: between.cuts >= 3, 60, "answers that were cut")
        assert elapsed.inner_text() == stopped_at
        label = chart.get_attribute("aria-label") or ""
        between.cut = None
        # Without a reload, a click or a change of focus.
        expect(chart).not_to_have_attribute("aria-label", label, timeout=60_000)
        expect(stale).to_be_hidden()
        expect(elapsed).not_to_contain_text("stopped", timeout=60_000)
        between.cut = re.compile("/logs")
        page.get_by_role("link", name="Logs").click()
        expect(page.get_by_role("alert")).to_contain_text("cut off")
        between.cut = None
        page.get_by_role("alert").get_by_role("button", name="Retry").click()
        expect(page.get_by_role("log").or_(page.get_by_test_id("log-where"))).to_be_visible()
        where = page.get_by_test_id("log-where").inner_text()
        between.cut = re.compile("/logs")
        cuts = between.cuts
        until(lambda: between.cuts >= cuts + 2, 60, "polls of the log that go on")
        between.cut = None
        expect(page.get_by_test_id("log-where")).not_to_have_text(where, timeout=60_000)
    work.cancel(job)


def test_a_gateway_that_fails_or_trickles_makes_old_data_visible(
    browser: Browser, lockstep: Service, token: str, work: Work
) -> None:
    job = work.endless("live")
    lockstep.at_step(job, 10)
    with proxy(lockstep.url) as between, visiting(browser, between.address, token) as visitor:
        visitor.expects("502|Failed to load resource")
        page = visitor.go(f"/jobs/{job}", "live").page
        chart = page.locator("[data-metric='train/loss']").get_by_role("img")
        expect(chart).to_be_visible()
        place = top(chart)
        live = re.compile(f"/v1/jobs/{job}/live")
        between.lost = live
        expect(page.get_by_test_id("connection-lost")).to_contain_text("Connection lost")
        expect(page.locator("[data-fact=elapsed]")).to_contain_text("elapsed, stopped")
        expect(page.get_by_test_id("freshness")).to_contain_text("old", timeout=60_000)
        until(lambda: between.cuts >= 3, 60, "polls that go on")
        label = chart.get_attribute("aria-label") or ""
        between.lost = None
        expect(page.get_by_test_id("connection-lost")).to_be_hidden(timeout=60_000)
        expect(chart).not_to_have_attribute("aria-label", label, timeout=60_000)
        between.slow = live
        # Old while the answer is on its way, and not given up.
        stale = page.get_by_test_id("stale").first
        expect(stale).to_contain_text("Not updated for", timeout=60_000)
        assert top(chart) == place
        label = chart.get_attribute("aria-label") or ""
        expect(chart).not_to_have_attribute("aria-label", label, timeout=60_000)
        between.slow = None
        expect(stale).to_be_hidden(timeout=60_000)
    work.cancel(job)


def test_a_tab_of_an_older_build_is_loaded_again_once(visitor: Visitor) -> None:
    visitor.expects("404|could not be loaded|Failed to load")
    page = visitor.go("/jobs", "Jobs").page
    loads: list[str] = []

    def after_an_upgrade(route: Route) -> None:
        """Names of the old build fail until the tab has loaded the new pages."""
        request = route.request
        if request.resource_type == "document":
            loads.append(request.url)
        if loads:
            route.continue_()
        elif "ClusterPage" in request.url:
            route.fulfill(status=404, body="gone")
        elif urlsplit(request.url).path == "/":
            route.fulfill(
                content_type="text/html",
                body='<script type="module" src="/assets/index-new.js"></script>',
            )
        else:
            route.continue_()

    page.route("**/*", after_an_upgrade)
    page.get_by_role("link", name="Cluster", exact=True).click()
    expect(page.get_by_text("This page failed")).to_be_hidden(timeout=60_000)
    until(lambda: page.wait_for_timeout(50) is None and loads, 60, "the tab loading the new pages")
    if not page.url.endswith("/cluster"):
        # The cursor was on the link, which loads its page ahead. So the tab was reloaded at its
        # position.
        page.get_by_role("link", name="Cluster", exact=True).click()
    visitor.sees_heading("Cluster")
    assert len(loads) == 1


@pytest.mark.parametrize("lost", ["the connection", "the script"])
def test_a_page_that_cannot_be_loaded_is_retried_without_losing_the_tab(
    visitor: Visitor, lost: str
) -> None:
    visitor.expects("ERR_FAILED|ERR_INTERNET|Failed to load|could not be loaded")
    page = visitor.go("/jobs", "Jobs").page
    page.evaluate("window.isSameTab = true")
    script = re.compile(r"/ClusterPage[^/]*\.js")
    if lost == "the script":
        page.route(script, lambda route: route.abort())
    else:
        page.context.set_offline(True)
    page.get_by_role("link", name="Cluster", exact=True).click()
    alert = page.get_by_role("alert").filter(has_text="This page failed")
    expect(alert).to_be_visible()
    if lost == "the connection":
        alert.get_by_role("button", name="Retry").click()
        expect(alert).to_contain_text("Lockstep does not answer")
    assert page.evaluate("window.isSameTab")
    page.unroute(script)
    page.context.set_offline(False)
    alert.get_by_role("button", name="Retry").click()
    visitor.sees_heading("Cluster")
