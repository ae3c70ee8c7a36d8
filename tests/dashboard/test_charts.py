"""Charts of several jobs: readable values, and live data that does not move the view."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Locator, expect

from tests.dashboard.browser import Visitor
from tests.dashboard.work import Work
from tests.harness.processes import until
from tests.harness.service import Service

STEPS = 40


@pytest.fixture(scope="module")
def pair(work: Work) -> str:
    """Return the address of a comparison of two ended jobs."""
    jobs = work.curve("lower", steps=STEPS), work.curve("higher", steps=STEPS, scale=2)
    work.ended(*jobs)
    return f"/compare?jobs={','.join(jobs)}"


def card(visitor: Visitor, metric: str = "train/loss") -> Locator:
    found = visitor.page.locator(f"[data-metric='{metric}']")
    expect(found.get_by_role("img")).to_be_visible()
    return found


def picture(of: Locator) -> str:
    """Return the chart when it is completely drawn, without the cursor."""
    canvas = of.locator("canvas")
    drawn: list[str] = []

    def is_still() -> bool:
        drawn.append(canvas.evaluate("canvas => canvas.toDataURL()"))
        return drawn[-3:] == drawn[-1:] * 3

    until(is_still, 60, "a chart that stands still")
    return drawn[-1]


def point_at(of: Locator, share: float) -> None:
    """Put the cursor at this fraction of the drawing area's width."""
    area = of.locator(".u-over").bounding_box()
    assert area is not None
    of.page.mouse.move(area["x"] + share * area["width"] - 1, area["y"] + area["height"] / 2)


def drag(of: Locator, start: float, end: float) -> None:
    point_at(of, start)
    of.page.mouse.down()
    point_at(of, (start + end) / 2)
    point_at(of, end)
    of.page.mouse.up()


def smoothed(weight: float, scale: float) -> float:
    """Return the debiased moving average of the curve's points at its last step."""
    total = count = 0.0
    for step in range(1, STEPS + 1):
        if step != 7:  # NaN: it does not count in an average
            total = weight * total + (1 - weight) * scale * (1 + 9 * 0.9**step)
            count += 1
    return total / (1 - weight**count)


def test_jobs_are_compared_by_their_figures_and_differences(visitor: Visitor, pair: str) -> None:
    page = visitor.go(pair, "Compare").page
    table = page.get_by_role("region", name="Runs")
    best = table.get_by_role("row").filter(has_text="the best")
    expect(best).to_contain_text("lower")
    expect(table.get_by_role("columnheader").nth(1)).to_have_text("args")
    expect(best.get_by_role("cell").first).to_have_text(f"{STEPS} 0 1")
    expect(card(visitor).get_by_role("img")).to_have_attribute(
        "aria-label", re.compile("not finite in places")
    )
    visitor.is_accessible()
    shown = page.get_by_role("button", name="Show higher")
    shown.click()
    expect(card(visitor).get_by_role("img")).not_to_have_attribute(
        "aria-label", re.compile("higher")
    )
    page.reload()
    expect(shown).to_have_attribute("aria-pressed", "false")


def test_a_script_defines_units_and_the_better_direction(visitor: Visitor, work: Work) -> None:
    job_id = work.files("defines", "defined.py")
    page = visitor.go(f"/jobs/{job_id}", "defines").page
    score = card(visitor, "val/score")
    expect(score.get_by_role("heading")).to_contain_text("nats")
    best = score.locator("[title='at step 700']")
    expect(best).to_have_text("best, lowest1")
    point_at(score, 1)
    expect(page.get_by_test_id("chart-tooltip")).to_contain_text("801 nats")
    expect(card(visitor, "heap")).to_contain_text("1.46 GiB")
    # Nothing is derived from the words of a name.
    expect(card(visitor, "accuracy")).not_to_contain_text("best")
    visitor.is_accessible()
    page.goto(f"{page.url.split('?')[0]}?tab=timeline")
    expect(page.get_by_text("definitions of 'q'")).to_contain_text('unknown field "colour"')


def test_a_chart_is_read_by_keys(visitor: Visitor, pair: str) -> None:
    page = visitor.go(pair, "Compare").page
    chart = card(visitor)
    reader, words = chart.get_by_role("application"), chart.get_by_test_id("chart-reading")
    reader.focus()
    for keys, read in (
        ("ArrowRight", "step 1, 9.1"),
        ("Shift+ArrowRight", "step 11"),
        ("ArrowLeft", "step 10"),
        ("End", f"step {STEPS}"),
        ("ArrowDown", f"step {STEPS}"),
    ):
        page.keyboard.press(keys)
        expect(words).to_contain_text(read)
    expect(words).to_have_text(re.compile("of higher$"))
    expect(page.get_by_test_id("chart-tooltip")).to_contain_text("higher")
    visitor.is_accessible()
    page.keyboard.press("+")
    expect(visitor.button("Reset zoom")).to_be_visible()
    page.keyboard.press("0")
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog", name="train/loss")).to_be_visible()


def test_smoothing_is_a_debiased_average_and_can_be_disabled(visitor: Visitor, pair: str) -> None:
    page = visitor.go(pair, "Compare").page
    plain = picture(card(visitor))
    visitor.button(re.compile("^View")).click()
    page.get_by_label("Smoothing, as a number").fill("0.9")
    point_at(card(visitor), 1)
    rows = page.get_by_test_id("chart-tooltip").get_by_role("row", include_hidden=True)
    for name, scale in (("lower", 1), ("higher", 2)):
        cells = rows.filter(has_text=name).get_by_role("cell", include_hidden=True)
        expect(cells.nth(3)).to_have_text(str(STEPS))
        assert float(cells.nth(1).inner_text()) == pytest.approx(smoothed(0.9, scale), rel=1e-3)
        assert float(cells.nth(2).inner_text()) == pytest.approx(
            scale * (1 + 9 * 0.9**STEPS), rel=1e-3
        )
    assert picture(card(visitor)) != plain
    page.wait_for_url("**smoothing=0.9**")  # The address is written once the field rests.
    page.reload()
    expect(page.get_by_label("Smoothing, as a number")).to_have_value("0.9")
    visitor.button(re.compile("^View · smoothing 0.9")).click()
    visitor.button("Off").click()
    expect(page.get_by_label("Smoothing, as a number")).to_have_value("0")
    assert picture(card(visitor)) == plain


def test_a_logarithmic_axis_is_one_charts_own(visitor: Visitor, pair: str) -> None:
    visitor.go(pair, "Compare")
    loss, rate = card(visitor), card(visitor, "train/lr")
    plain, other = picture(loss), picture(rate)
    toggle = visitor.button("Log axis for train/loss")
    toggle.click()
    expect(toggle).to_have_attribute("aria-pressed", "true")
    assert picture(loss) != plain
    assert picture(rate) == other
    toggle.click()
    assert picture(loss) == plain


def test_the_last_label_of_an_axis_is_not_cut(visitor: Visitor, work: Work) -> None:
    job = work.curve("round", steps=2_000)
    work.ended(job)
    page = visitor.go(f"/compare?jobs={job}", "Compare").page
    assert ink_in_last_column(card(visitor)) == 0
    visitor.button("Show train/loss on the whole screen").click()
    assert ink_in_last_column(page.get_by_role("dialog", name="train/loss")) == 0


def ink_in_last_column(chart: Locator) -> int:
    """Return the pixels drawn at the right edge of the canvas.

    A label that is cut has some, and nothing else reaches the edge.
    """
    picture(chart)
    return int(
        chart.locator("canvas").evaluate(
            """canvas => {
                const { width, height } = canvas;
                const column = canvas.getContext("2d").getImageData(width - 1, 0, 1, height).data;
                return column.filter((_, index) => index % 4 === 3 && column[index] > 0).length;
            }"""
        )
    )


def test_the_zoom_and_the_cursor_stay_while_points_arrive(
    visitor: Visitor, work: Work, lockstep: Service
) -> None:
    job = work.endless("live")
    lockstep.at_step(job, 25)
    page = visitor.go(f"/compare?jobs={job}", "Compare").page
    chart = card(visitor).get_by_role("img")
    drag(card(visitor), 0.1, 0.5)
    expect(visitor.button("Reset zoom")).to_be_visible()
    point_at(card(visitor), 0.5)
    tooltip = page.get_by_test_id("chart-tooltip")
    read = tooltip.inner_text()
    before, label = picture(card(visitor)), chart.get_attribute("aria-label") or ""
    for _ in range(2):
        expect(chart).not_to_have_attribute("aria-label", label)
        label = chart.get_attribute("aria-label") or ""
    # Points were added twice, and the view has not moved.
    assert picture(card(visitor)) == before
    assert tooltip.inner_text() == read
    visitor.button("Reset zoom").click()
    expect(visitor.button("Reset zoom")).to_be_hidden()
    assert picture(card(visitor)) != before
    drag(card(visitor), 0.1, 0.5)
    expect(visitor.button("Reset zoom")).to_be_visible()
    card(visitor).locator(".u-over").dblclick()
    expect(visitor.button("Reset zoom")).to_be_hidden()
    work.cancel(job)


def test_a_link_shows_its_view_and_changes_no_settings(visitor: Visitor, work: Work) -> None:
    job = work.curve("viewed", steps=STEPS)
    work.ended(job)
    page = visitor.go(f"/jobs/{job}?smoothing=0.9&axis=wall&zoom=wall:1:9", "viewed").page
    smoothing, reset = page.get_by_label("Smoothing, as a number"), visitor.button("Reset zoom")
    expect(smoothing).to_have_value("0.9")
    expect(page.get_by_label("x axis")).to_have_value("wall")
    expect(reset).to_be_visible()
    visitor.go(f"/jobs/{job}", "viewed")
    expect(smoothing).to_have_value("0")
    expect(page.get_by_label("x axis")).to_have_value("step")
    expect(reset).to_be_hidden()
    picture(card(visitor))
    drag(card(visitor), 0.2, 0.6)
    page.wait_for_url(re.compile("zoom=step"))
    page.get_by_role("link", name="Logs").click()
    expect(page.get_by_test_id("log-where")).to_be_visible()
    page.get_by_role("link", name="Charts").click()
    expect(reset).to_be_visible()
    page.reload()
    expect(reset).to_be_visible()


def test_a_finger_zooms_sideways_and_scrolls_up_and_down(visitor: Visitor, pair: str) -> None:
    page = visitor.go(pair, "Compare").page
    # A tall telephone, on which the page continues below the chart.
    page.set_viewport_size({"width": 360, "height": 640})
    area = card(visitor).locator(".u-over")
    area.evaluate("element => element.scrollIntoView({ block: 'center' })")
    touch = page.context.new_cdp_session(page)
    touch.send("Emulation.setTouchEmulationEnabled", {"enabled": True})

    def swipe(dx: float, dy: float) -> None:
        box = area.bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 3, box["y"] + box["height"] / 2
        for step in range(9):
            point = {"x": x + dx * step / 8, "y": y + dy * step / 8}
            kind = "touchMove" if step else "touchStart"
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [point]})
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})

    scrolled = page.evaluate("scrollY")
    swipe(100, 6)
    expect(visitor.button("Reset zoom")).to_be_visible()
    assert page.evaluate("scrollY") == scrolled
    visitor.button("Reset zoom").click()
    area.evaluate("element => element.scrollIntoView({ block: 'center' })")
    scrolled = page.evaluate("scrollY")
    swipe(6, -100)
    page.wait_for_function(f"scrollY > {scrolled}")
    expect(visitor.button("Reset zoom")).to_be_hidden()
    touch.detach()  # The next test has the tab without a finger.


def test_cards_are_found_pinned_and_shown_on_the_whole_screen(visitor: Visitor, pair: str) -> None:
    page = visitor.go(pair, "Compare").page
    expect(card(visitor, "train/lr")).to_be_visible()
    visitor.press("/")
    page.keyboard.type("loss")
    expect(page.locator("[data-metric='train/lr']")).to_have_count(0)
    visitor.press("Escape")
    page.get_by_label("Filter charts by the name of the metric").fill("")
    visitor.button("Pin train/lr").click()
    # Behind the card of the chosen metric, which is in no group.
    pinned = page.locator("section [data-metric]").first
    expect(pinned).to_have_attribute("data-metric", "train/lr")
    visitor.button("Show train/loss on the whole screen").click()
    dialog = page.get_by_role("dialog", name="train/loss")
    expect(dialog.locator("canvas")).to_be_visible()
    visitor.is_accessible()
    visitor.press("Escape")
    expect(dialog).to_be_hidden()
    visitor.button("Download train/loss").first.click()
    with page.expect_download() as download:
        page.get_by_role("menuitem", name="What is drawn (CSV)").click()
    lines = download.value.path().read_text().splitlines()
    assert len(lines) == 1 + 2 * STEPS
    assert "NaN" in "".join(lines)
