"""Comparison of many runs: one table beside the charts, groups, and what an open page asks for."""

from __future__ import annotations

import re
from itertools import pairwise
from statistics import fmean

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.dashboard.browser import NARROW, WIDE, Visitor, violations, visiting
from tests.dashboard.test_traffic import MINUTE_MS, SETTLING_MS, Traffic
from tests.dashboard.work import Work
from tests.harness.service import Service

FIRST_CHART_Y_MAX = 200
FIRST_DATA_BYTES_MAX = 500_000


@pytest.fixture(scope="module")
def runs(work: Work) -> list[str]:
    first = work.curve("to-sweep", steps=3)
    work.ended(first)
    return work.sweep(first, 200)


def address(runs: list[str], **view: str) -> str:
    more = "".join(f"&{name}={value}" for name, value in view.items())
    return f"/compare?jobs={','.join(runs)}&metric=val/loss{more}"


def rows(page: Page) -> Locator:
    return page.get_by_role("region", name="Runs").locator("tbody tr")


def figures(page: Page, column: str) -> list[float]:
    """Return the numbers of a column from the top, without the rows of groups."""
    heads = page.get_by_role("region", name="Runs").locator("thead th").all_inner_texts()
    place = next(at for at, text in enumerate(heads) if column in text)
    cells = rows(page).filter(has=page.get_by_role("link")).locator(f":nth-child({place + 1})")
    return [float(text.split()[0]) for text in cells.all_inner_texts() if text[:1].isdigit()]


def test_two_hundred_runs_have_a_table_beside_their_charts(
    visitor: Visitor, runs: list[str]
) -> None:
    page = visitor.go(address(runs), "Compare").page
    expect(rows(page)).to_have_count(200)
    chart = page.locator("[data-metric='val/loss'] canvas")
    expect(chart).to_be_visible()
    box = chart.bounding_box()
    assert box is not None
    assert box["y"] <= FIRST_CHART_Y_MAX
    expect(rows(page).first.locator("td").nth(2)).to_have_text(re.compile(r"^1\.\d+"))
    best = figures(page, "best loss")
    assert best == sorted(best)
    assert len(best) == 200
    assert not violations(page, "light")
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    expect(page.locator("[data-metric='val/loss']")).to_be_in_viewport(ratio=0.5)
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]


def test_runs_are_accessible_on_both_sizes_and_in_both_themes(
    visitor: Visitor, runs: list[str]
) -> None:
    # Enough for a table that scrolls; axe looks at each row.
    page = visitor.go(address(runs[:30]), "Compare").page
    expect(rows(page)).to_have_count(30)
    expect(page.locator("[data-metric='val/loss'] canvas")).to_be_visible()
    for width, height in (WIDE, NARROW):
        page.set_viewport_size({"width": width, "height": height})
        for scheme in ("light", "dark"):
            assert not violations(page, scheme)


def test_a_link_has_the_whole_view(
    browser: Browser, lockstep: Service, token: str, visitor: Visitor, runs: list[str]
) -> None:
    page = visitor.go(address(runs[:12]), "Compare").page
    page.get_by_role("button", name="Compare with sweep-004 as base").click()
    page.get_by_role("button", name="Show sweep-002").click()
    page.get_by_role("button", name="lr", exact=True).click()
    page.get_by_label("Colour").select_option("lr")
    page.get_by_label("x axis").select_option("fraction of the run")
    page.wait_for_url(re.compile("axis=fraction"))
    base = page.locator("tr[data-base]")
    expect(base).to_contain_text("sweep-004")
    expect(rows(page).first).to_contain_text("sweep-000")
    expect(rows(page).first).to_contain_text(re.compile("[▲▼] [+−]"))
    seen = rows(page).all_inner_texts()
    with visiting(browser, lockstep.url, token) as other:
        found = other.go(visitor.address, "Compare").page
        expect(found.get_by_role("button", name="Show sweep-002")).to_have_attribute(
            "aria-pressed", "false"
        )
        expect(rows(found).first).to_contain_text(re.compile("[▲▼] [+−]"))
        assert rows(found).all_inner_texts() == seen
        expect(found.get_by_label("x axis")).to_have_value("fraction")
    page.get_by_role("button", name="Remove sweep-004 from the comparison").click()
    expect(rows(page)).to_have_count(11)
    expect(page.get_by_role("columnheader", name="vs base")).to_have_count(0)


def test_groups_have_the_mean_and_the_range_of_their_runs(
    visitor: Visitor, runs: list[str]
) -> None:
    page = visitor.go(address(runs[:24], group="args.wd"), "Compare").page
    head = rows(page).filter(has_text="wd 0.05")
    expect(head).to_contain_text("8 runs")
    expect(head).to_contain_text("mean")
    own = figures(page, "best loss")
    low, high, mean = map(float, re.findall(r"\d\.\d+", head.locator("td").first.inner_text()))
    index = next(at for at, text in enumerate(rows(page).all_inner_texts()) if "wd 0.05" in text)
    start = sum("wd" not in text for text in rows(page).all_inner_texts()[:index])
    of_group = own[start : start + 8]
    assert (low, high) == (min(of_group), max(of_group))
    assert mean == pytest.approx(fmean(of_group), rel=1e-4)
    chart = page.locator("[data-metric='val/loss']").get_by_role("img")
    expect(chart).to_have_attribute("aria-label", re.compile("wd 0.05 .mean of 8"))
    plain = page.locator("[data-metric='val/loss'] canvas").screenshot()
    head.hover()
    expect(head).to_have_attribute("data-hot", "true")
    assert page.locator("[data-metric='val/loss'] canvas").screenshot() != plain
    visitor.is_accessible()


def test_a_scatter_has_a_point_for_each_run_and_is_read_by_keys(
    visitor: Visitor, runs: list[str]
) -> None:
    page = visitor.go(address(runs[::20], sort="setting:args.lr"), "Compare").page
    page.get_by_label("Scatter").select_option("lr")
    page.wait_for_url(re.compile(r"scatter=args\.lr"))
    dots = page.locator("circle[data-run]")
    expect(dots).to_have_count(10)
    places = [
        float(x or "nan") for x in dots.evaluate_all("all => all.map(d => d.cx.baseVal.value)")
    ]
    # Each rate is the one before times the same factor, to two digits.
    gaps = [after - before for before, after in pairwise(places)]
    assert gaps == pytest.approx([fmean(gaps)] * 9, rel=0.2)
    expect(rows(page)).to_have_count(10)
    visitor.is_accessible()
    page.get_by_role("application", name="Read 10 runs by arrow keys").focus()
    words = page.get_by_role("region", name="Scatter").locator("[aria-live]")
    read = []
    for number in range(10):
        visitor.press("ArrowRight")
        expect(words).to_contain_text(f"sweep-{20 * number:03}: lr ")
        read.append(float(words.inner_text().split()[-1]))
    assert read == figures(page, "best loss")
    visitor.press("Enter")
    visitor.sees_heading("sweep-180")


def test_twenty_runs_with_a_live_one_cost_little(
    browser: Browser, lockstep: Service, token: str, work: Work, runs: list[str]
) -> None:
    live = work.endless("live")
    lockstep.at_step(live, 2)
    with visiting(browser, lockstep.url, token) as visitor:
        visitor.go("/compare", "Compare")
        first = Traffic(visitor.page)
        page = visitor.go(address([*runs[:190:10], live]), "Compare").page
        expect(rows(page)).to_have_count(20)
        page.wait_for_timeout(SETTLING_MS)
        data = sum(count for path, count in first.bytes.items() if path.startswith("/v1/"))
        minute = Traffic(page)
        page.wait_for_timeout(MINUTE_MS)
        assert minute.requests["/v1/series"] > 0
        assert minute.requests["/v1/jobs"] > 0
        assert not minute.within(40, 300)
    assert data < FIRST_DATA_BYTES_MAX
    work.cancel(live)
