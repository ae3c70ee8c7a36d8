"""One job's page: live updates, its log, its end, and its actions."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.dashboard.browser import WIDE, Visitor
from tests.dashboard.work import Work
from tests.harness.builders import digits, script
from tests.harness.processes import until
from tests.harness.service import Service


@pytest.fixture(scope="module")
def trained(lockstep: Service) -> str:
    """Return two ranks with eight samples at a time, four times: 64."""
    return str(lockstep.ended(lockstep.submit(digits("trained", steps=12))["id"])["id"])


def test_the_batch_plan_is_shown_and_every_tab_is_accessible(
    visitor: Visitor, trained: str
) -> None:
    page = visitor.go(f"/jobs/{trained}", "trained").page
    expect(page.locator("[data-fact=batch]")).to_have_text("batch 64 = 2 ranks × 8 × 4")
    expect(page.get_by_test_id("outcome")).to_contain_text("12")
    for tab in ("Charts", "Logs", "Timeline", "Configuration", "Checkpoints", "Files"):
        page.get_by_role("navigation", name="Parts of this job").get_by_role(
            "link", name=tab
        ).click()
        expect(page.get_by_role("link", name=tab, exact=True)).to_have_attribute(
            "aria-current", "page"
        )
        visitor.is_accessible()


def test_the_view_of_the_curves_is_in_the_address(visitor: Visitor, trained: str) -> None:
    page = visitor.go(f"/jobs/{trained}", "trained").page
    page.get_by_label("x axis").select_option("samples")
    visitor.button("Log axis for train/loss").click()
    expect(page).to_have_url(re.compile(r"axis=samples&log=train%2Floss$"))
    # The recipient of the address has other settings.
    page.evaluate("localStorage.clear()")
    page.reload()
    expect(page.get_by_label("x axis")).to_have_value("samples")
    expect(visitor.button("Log axis for train/loss")).to_have_attribute("aria-pressed", "true")
    chart = page.locator("[data-metric='train/loss']").get_by_role("img")
    expect(chart).to_have_attribute(
        "aria-label", re.compile(r"over samples.*Marked: 1 checkpoint\.$")
    )
    # 64 samples a step: the last of the 12 is under the cursor at the right edge, as is its
    # checkpoint.
    area = page.locator("[data-metric='train/loss'] .u-over").bounding_box()
    assert area is not None
    page.mouse.move(area["x"] + area["width"] - 2, area["y"] + area["height"] / 2)
    expect(page.get_by_test_id("chart-tooltip")).to_contain_text("768")
    expect(page.get_by_test_id("chart-tooltip")).to_contain_text("inal checkpoint of step 12")
    page.get_by_role("link", name="Timeline", exact=True).click()
    page.get_by_role("link", name="Charts", exact=True).click()
    expect(page).to_have_url(re.compile(r"axis=samples"))


def test_attempts_have_batch_plans_and_the_spec_has_all_defaults(
    visitor: Visitor, trained: str
) -> None:
    page = visitor.go(f"/jobs/{trained}?tab=timeline", "trained").page
    expect(page.get_by_test_id("made")).to_have_text(
        re.compile(r"64\s+= 2 ranks\s+× 8 samples\s+× 4 accumulation steps")
    )
    visitor.sees("submitted")
    visitor.go(f"/jobs/{trained}?tab=configuration", "trained")
    spec = page.get_by_test_id("spec-yaml")
    expect(spec).to_contain_text("name: trained")
    expect(spec).not_to_contain_text("priority")
    page.get_by_role("link", name="With every default").click()
    expect(spec).to_contain_text("priority: 50")
    expect(page).to_have_url(re.compile("spec=whole"))
    visitor.is_accessible()


def test_a_running_job_is_seen_running_and_is_cancelled_from_its_page(
    visitor: Visitor, work: Work, lockstep: Service
) -> None:
    job = work.endless("live")
    lockstep.at_step(job, 1)
    page = visitor.go(f"/jobs/{job}", "live").page
    step = page.locator("[data-fact=step] strong")
    expect(step).to_have_text(re.compile(r"\d"))
    before = step.inner_text()
    expect(step).not_to_have_text(before)
    visitor.button("Cancel").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("30 s unless the spec gives another")
    visitor.is_accessible()
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("[data-state=cancelled]").first).to_be_visible()
    assert lockstep.ended(job)["state"] == "cancelled"


def test_a_job_that_has_ended_is_deleted_from_its_page(
    visitor: Visitor, work: Work, lockstep: Service
) -> None:
    job, other = work.curve("unwanted"), work.curve("wanted")
    work.cleared(job, other)
    page = visitor.go(f"/jobs/{job}", "unwanted").page
    visitor.button("Delete").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("cannot be taken back")
    visitor.is_accessible()
    dialog.get_by_role("button", name="Delete the job").click()
    visitor.sees_heading("Jobs")
    expect(page.get_by_role("link", name="wanted", exact=True).first).to_be_visible()
    expect(page.get_by_role("link", name="unwanted", exact=True)).to_have_count(0)
    assert lockstep.http.get(f"/v1/jobs/{job}").status_code == 404


def test_the_newest_events_load_first_and_older_ones_on_demand(
    visitor: Visitor, work: Work
) -> None:
    job = work.curve("storied", steps=1)
    work.ended(job)
    work.warnings(job, 6_000)
    asked: list[str] = []
    visitor.page.on(
        "request", lambda request: asked.append(request.url) if "/events?" in request.url else None
    )
    page = visitor.go(f"/jobs/{job}?tab=timeline", "storied").page
    visitor.sees("warning 6000")
    assert all("order=newest" in url for url in asked)
    visitor.is_accessible()
    visitor.button("Show older events").click()
    visitor.sees("warning 5601")
    page.wait_for_load_state("networkidle")
    # The newest come with the job, and nine pages are read ahead. Older ones are read on demand.
    assert len(asked) == 9


def test_a_log_is_followed_let_go_and_followed_again(
    visitor: Visitor, work: Work, lockstep: Service
) -> None:
    job = work.curve("talking", steps=400, pause=0.05)
    lockstep.at_step(job, 60)
    page = visitor.go(f"/jobs/{job}?tab=logs").page
    lines = page.get_by_test_id("log-lines")
    follow = visitor.button("Live")
    expect(follow).to_have_attribute("aria-pressed", "true")
    newest = lines.get_by_text(re.compile(r"^.*loss")).last
    before = newest.inner_text()
    expect(newest).not_to_have_text(before)
    lines.hover()
    page.mouse.wheel(0, -600)
    expect(follow).to_have_attribute("aria-pressed", "false")
    top = lines.evaluate("element => element.scrollTop")
    length = page.get_by_test_id("log-where").inner_text()
    expect(page.get_by_test_id("log-where")).not_to_have_text(length)
    assert lines.evaluate("element => element.scrollTop") == pytest.approx(top, abs=2)
    visitor.press("f")
    expect(follow).to_have_attribute("aria-pressed", "true")
    expect(newest).not_to_have_text(newest.inner_text())
    work.cancel(job)


def test_a_log_is_searched_its_first_error_found_and_a_line_linked(
    visitor: Visitor, work: Work
) -> None:
    job = work.curve("searched", steps=40)
    work.ended(job)
    page = visitor.go(f"/jobs/{job}?tab=logs").page
    lines = page.get_by_test_id("log-lines")
    expect(lines).to_contain_text("step 40")
    hidden = "each => each.scrollHeight - each.clientHeight - each.scrollTop"
    for height in (600, 800, 500, WIDE[1]):
        page.set_viewport_size({"width": WIDE[0], "height": height})
        page.wait_for_timeout(200)
        until(lambda: lines.evaluate(hidden) < 5, what="the end of the log stays in sight")
    visitor.press("/")
    page.keyboard.type("step 17")
    expect(lines.locator("mark")).to_have_text(["step 17"])
    expect(page).to_have_url(re.compile("search=step"))
    page.reload()
    expect(lines.locator("mark")).to_have_text(["step 17"])
    visitor.is_accessible()
    page.get_by_label("Search the log").fill("nowhere to be found")
    visitor.sees("No line fits the filter")
    visitor.button("Show all lines").click()
    page.get_by_label("Stream").select_option("stderr")
    expect(lines).to_contain_text("a shard was read twice")
    expect(lines).not_to_contain_text("step 17")
    page.get_by_label("Stream").select_option("")
    visitor.button("First error").click()
    pointed = lines.locator("[aria-current]")
    expect(pointed).to_contain_text("Error: a shard was read twice")
    link = visitor.address
    visitor.go("/settings", "Settings").go(link)
    expect(pointed).to_contain_text("Error: a shard was read twice")


def test_a_failure_has_a_reason_and_a_link_to_its_first_line(
    visitor: Visitor, lockstep: Service
) -> None:
    job = lockstep.submit(
        script("broken", ["sh", "-c", "echo fine; echo 'Error: no such shard' >&2; exit 3"])
    )["id"]
    lockstep.ended(job)
    page = visitor.go(f"/jobs/{job}", "broken").page
    outcome = page.get_by_test_id("outcome")
    expect(outcome).to_contain_text("Exit code3")
    expect(outcome).to_contain_text("no such shard")
    visitor.is_accessible()
    outcome.get_by_role("link", name=re.compile("First error")).click()
    expect(page.get_by_test_id("log-lines")).to_contain_text("no such shard")


def test_kept_files_are_shown_downloaded_and_deleted(
    visitor: Visitor, work: Work, lockstep: Service
) -> None:
    job = work.files("writer")
    page = visitor.go(f"/jobs/{job}?tab=files", "writer").page
    visitor.sees(re.compile(r"^5 files, "))
    strange = "output/<img src=x onerror=alert(3)>\\u202egnp.\\x0a"
    visitor.button(strange).click()
    expect(page.get_by_role("region", name=f"Beginning of {strange}")).to_have_text(
        "one\\x1b[2J\ntwo\n"
    )
    visitor.button("train.log").click()
    visitor.sees(re.compile("^The first 64.0 KiB of "))
    visitor.is_accessible()
    for name in ("output/plot.png", "output/drawn.svg"):
        visitor.button(name).click()
        image = page.get_by_role("img", name=name)
        expect(image).to_be_visible()
        page.wait_for_function(
            "image => image.complete && image.naturalWidth > 0", arg=image.element_handle()
        )
    visitor.is_accessible()
    with page.expect_download() as download:
        visitor.button("Download output/model.pt").click()
    assert download.value.suggested_filename == "model.pt"
    assert download.value.path().read_bytes() == bytes(range(256)) * 400
    page.get_by_role("searchbox", name="Filter the files").fill("*.pt")
    visitor.sees(re.compile(r"^1 file, 100 KiB"))
    expect(page).to_have_url(re.compile("match="))
    visitor.button("Delete these").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    visitor.sees("No file matches.")
    assert lockstep.http.get(f"/v1/jobs/{job}/files").json()["total"] == 4


def test_a_missing_job_is_reported(visitor: Visitor) -> None:
    visitor.expects("status of 404")
    visitor.go("/jobs/nobody")
    visitor.sees("nobody")
    visitor.is_accessible()
