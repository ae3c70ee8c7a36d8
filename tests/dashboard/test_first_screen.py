"""The first screen of a job: where the charts begin, what moves while it loads, and the log beside it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, ViewportSize, expect

from tests.dashboard.browser import NARROW, WIDE, Scheme, Visitor, violations, visiting
from tests.dashboard.work import Work
from tests.harness.builders import digits, script, slow
from tests.harness.service import Service

FAILS = """
import json, os
with open(os.environ["LOCKSTEP_METRICS"], "a") as metrics:
    for step in range(200):
        metrics.write(json.dumps({"step": step, "train/loss": 9 / (step + 1)}) + "\\n")
for line in range(60):
    print("loading shard", line, flush=True)
raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")
"""
WATCH_SHIFTS = """
window.shifted = 0;
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) if (!entry.hadRecentInput) window.shifted += entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""
SHIFT_MAX = 0.02
TELEPHONE: ViewportSize = {"width": 360, "height": 740}
SETTLING_MS = 3_000


@pytest.fixture(scope="module")
def jobs(
    lockstep: Service, work: Work, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Return a live script, a job that failed, and a training job of two ranks that runs, by name."""
    folder: Path = tmp_path_factory.mktemp("fails")
    (folder / "fails.py").write_text(FAILS)
    failed = str(
        lockstep.submit(script("failed", ["fails.py"], upload=lockstep.upload(folder)))["id"]
    )
    lockstep.ended(failed)
    spec = slow(lockstep, folder / "task", "trains", args={"pause": 0.05}, steps=100_000)
    trains = str(lockstep.submit(spec)["id"])
    lockstep.at_step(trains, 2)
    script_job = work.wide("script")
    lockstep.at_step(script_job, 2)
    yield {"failed": failed, "trains": trains, "script": script_job}
    work.cancel(trains, script_job)


def first_chart(page: Page) -> Locator:
    chart = page.locator("[data-metric]").first
    expect(chart.get_by_role("img")).to_be_visible()
    return chart


def box(of: Locator) -> dict[str, float]:
    found = of.bounding_box()
    assert found is not None
    return dict(found)


@pytest.mark.parametrize(("name", "highest"), [("script", 300), ("trains", 300), ("failed", 420)])
def test_charts_begin_on_the_first_screen_and_nothing_moves(
    browser: Browser, lockstep: Service, token: str, jobs: dict[str, str], name: str, highest: int
) -> None:
    with visiting(browser, lockstep.url, token) as visitor:
        page = visitor.page
        page.add_init_script(WATCH_SHIFTS)
        visitor.go(f"/jobs/{jobs[name]}", name)
        assert box(first_chart(page))["y"] <= highest
        page.wait_for_timeout(SETTLING_MS)
        assert box(first_chart(page))["y"] <= highest
        assert page.evaluate("window.shifted") <= SHIFT_MAX
        schemes: tuple[Scheme, ...] = ("light", "dark")
        for width, height in (WIDE, NARROW):
            page.set_viewport_size({"width": width, "height": height})
            found = [line for scheme in schemes for line in violations(page, scheme)]
            assert not found, "\n".join(found)


def test_a_telephone_has_one_chart_on_its_first_screen(
    visitor: Visitor, jobs: dict[str, str]
) -> None:
    page = visitor.page
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    visitor.go(f"/jobs/{jobs['trains']}", "trains")
    chart, log = box(first_chart(page).get_by_role("img")), box(visitor.button("Log"))
    assert chart["y"] + chart["height"] <= log["y"]
    # The head stays in view, with the state, the actions and the parts.
    page.mouse.wheel(0, 2_000)
    expect(visitor.button("More actions")).to_be_in_viewport(ratio=1)
    visitor.button("More actions").click()
    expect(page.get_by_role("link", name="Clone", exact=True)).to_be_visible()
    visitor.press("Escape")
    expect(page.get_by_role("link", name="Clone", exact=True)).to_be_hidden()


def test_a_telephone_has_the_reason_and_the_chart_of_a_failed_job_on_its_first_screen(
    visitor: Visitor, jobs: dict[str, str]
) -> None:
    page = visitor.page
    page.set_viewport_size(TELEPHONE)
    visitor.go(f"/jobs/{jobs['failed']}", "failed")
    outcome = page.get_by_role("region", name="Outcome")
    order = [
        outcome.get_by_text("CUDA out of memory"),
        outcome.get_by_text(re.compile("^File .*fails.py")),
        outcome.get_by_text("What to do."),
        outcome.get_by_role("link", name=re.compile("^First error")),
        first_chart(page),
    ]
    tops = [box(each)["y"] for each in order]
    assert tops == sorted(tops)
    assert tops[-1] <= TELEPHONE["height"] - 160
    expect(outcome.get_by_text("loading shard 59")).to_have_count(0)
    outcome.get_by_text("Rank, node and last lines").click()
    lines = outcome.locator("pre")
    expect(lines).to_contain_text("loading shard 59")
    assert lines.evaluate("box => box.scrollTop > 0")


def test_the_log_is_shown_beside_the_charts_at_a_width_that_stays(
    visitor: Visitor, jobs: dict[str, str]
) -> None:
    page = visitor.go(f"/jobs/{jobs['failed']}", "failed").page
    first_chart(page)
    visitor.press("l")
    drawer = page.get_by_role("region", name="Log", exact=True)
    expect(drawer.get_by_test_id("log-lines")).to_contain_text("loading shard 59")
    expect(visitor.button("Log")).to_have_attribute("aria-pressed", "true")
    visitor.is_accessible()
    width = box(drawer)["width"]
    edge = drawer.get_by_role("separator", name="Width of the log")
    edge.focus()
    visitor.press("ArrowLeft", "ArrowLeft")
    assert box(drawer)["width"] == width + 40
    at = box(edge)
    page.mouse.move(at["x"] + 4, at["y"] + 200)
    page.mouse.down()
    page.mouse.move(at["x"] + 64, at["y"] + 200)
    page.mouse.up()
    assert abs(box(drawer)["width"] - (width - 20)) <= 6
    width = box(drawer)["width"]
    page.reload()
    expect(drawer.get_by_test_id("log-lines")).to_contain_text("loading shard 59")
    assert box(drawer)["width"] == width
    page.get_by_role("link", name="Timeline", exact=True).click()
    expect(drawer).to_be_visible()
    visitor.press("l")
    expect(drawer).to_be_hidden()
    page.set_viewport_size({"width": 1_000, "height": 800})
    visitor.button("Log").click()
    at = box(drawer)
    assert (at["x"], at["width"], at["y"] + at["height"]) == (0, 1_000, 800)


def test_a_configuration_is_compared_with_any_job_and_a_job_starts_from_a_checkpoint(
    visitor: Visitor, lockstep: Service, work: Work, jobs: dict[str, str]
) -> None:
    work.cancel(jobs["trains"])  # Its devices are needed.
    first = lockstep.ended(lockstep.submit(digits("first", steps=4))["id"])["id"]
    second = lockstep.submit(digits("second", steps=6))["id"]
    page = visitor.go(f"/jobs/{second}?tab=configuration", "second").page
    page.get_by_role("combobox", name=re.compile("^Job to compare with")).fill("first")
    visitor.button("Compare").click()
    diff = page.get_by_test_id("diff")
    expect(diff).to_contain_text("removed:   steps: 4")
    expect(diff).to_contain_text("added:   steps: 6")
    expect(page).to_have_url(re.compile("against=first"))
    visitor.is_accessible()
    page.get_by_role("link", name="With every default").click()
    expect(diff).to_contain_text("removed: name: first")
    visitor.go(f"/jobs/{first}?tab=checkpoints", "first")
    page.get_by_role("link", name="Start a job from this").first.click()
    expect(page).to_have_url(re.compile(f"clone=.*{first}.*from=.*4"))
    lockstep.http.post(f"/v1/jobs/{second}/cancel")
