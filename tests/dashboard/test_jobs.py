"""The list of jobs: its content, its address, and actions on several jobs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, expect

from tests.dashboard.browser import Visitor
from tests.dashboard.work import Work
from tests.harness.builders import script
from tests.harness.service import Service


@pytest.fixture(scope="module")
def jobs(lockstep: Service, work: Work) -> Iterator[dict[str, str]]:
    """Create one job of each kind, and two more for deletion.

    Ended well, failed, running (two), and two that wait: one for more devices than are free, and
    one behind it.
    """
    made = {
        "old-1": work.curve("old-1", steps=1),
        "old-2": work.curve("old-2", steps=1),
        "done": work.curve("done", labels={"team": "vision"}),
        "broken": lockstep.submit(script("broken", ["false"], labels={"team": "vision"}))["id"],
        "going": work.endless("going", project="night"),
        "one": work.endless("one"),
    }
    work.ended(*(made[name] for name in ("old-1", "old-2", "done", "broken")))
    for running in ("going", "one"):
        lockstep.at_step(made[running], 2)
    made["waiting"] = work.curve("waiting", gpus=4)
    yield made
    work.cancel(made["waiting"], made["going"], made["one"])


@pytest.fixture
def visitor(visitor: Visitor, jobs: dict[str, str]) -> Visitor:
    """Return a user on the list."""
    visitor.go("/jobs", "Jobs")
    expect(row(visitor, "waiting")).to_be_visible()
    return visitor


def row(visitor: Visitor, name: str) -> Locator:
    return visitor.page.get_by_role("row").filter(
        has=visitor.page.get_by_role("link", name=name, exact=True)
    )


def names(visitor: Visitor) -> Locator:
    return visitor.page.locator("tbody th[scope=row] a[href^='/jobs/']")


def test_a_row_has_progress_or_the_reason_of_a_wait(visitor: Visitor) -> None:
    for name, state in (
        ("done", "succeeded"),
        ("broken", "failed"),
        ("going", "running"),
        ("waiting", "queued"),
    ):
        expect(row(visitor, name)).to_contain_text(state)
    expect(row(visitor, "waiting")).to_contain_text("#1")
    expect(row(visitor, "done").get_by_role("img", name="train/loss from")).to_be_visible()
    expect(row(visitor, "done").get_by_role("img", name="NaN")).to_be_visible()
    visitor.is_accessible()


def test_the_address_contains_the_whole_view(visitor: Visitor) -> None:
    page = visitor.page
    visitor.button("failed").click()
    visitor.button("succeeded").click()
    page.get_by_label("Label").fill("team=vision")
    page.get_by_label("Label").press("Enter")
    page.get_by_label("Order").select_option("oldest")
    expect(names(visitor)).to_have_text(["done", "broken"])
    address = visitor.address
    page.reload()
    expect(names(visitor)).to_have_text(["done", "broken"])
    assert visitor.address == address
    expect(visitor.button("failed")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Label")).to_have_value("team=vision")
    # The way back has the same views.
    page.go_back()
    expect(page.get_by_label("Order")).to_have_value("newest")
    page.get_by_role("link", name="Show all jobs").click()
    expect(row(visitor, "going")).to_be_visible()


def test_a_filter_without_a_match_offers_a_reset(visitor: Visitor) -> None:
    visitor.press("/")
    field = visitor.page.get_by_label("Name or id")
    expect(field).to_be_focused()
    field.fill("nobody")
    visitor.sees("No job matches these filters")
    visitor.page.get_by_label("Node").fill("nowhere")
    visitor.page.get_by_label("Node").press("Enter")
    expect(visitor.page.get_by_role("link", name="Leave out node nowhere")).to_be_visible()
    visitor.is_accessible()
    visitor.page.get_by_role("link", name="Show all jobs").first.click()
    expect(row(visitor, "done")).to_be_visible()


def test_a_job_is_found_by_part_of_name_id_or_owner(visitor: Visitor, jobs: dict[str, str]) -> None:
    field = visitor.page.get_by_label("Name or id")
    field.fill("OIN")
    expect(names(visitor)).to_have_text(["going"])
    field.fill(jobs["done"][-12:])
    expect(names(visitor)).to_have_text(["done"])
    visitor.page.get_by_role("link", name="Show all jobs").click()
    expect(field).to_have_value("")
    row(visitor, "going").get_by_role("link", name="night", exact=True).click()
    expect(names(visitor)).to_have_text(["going"])
    visitor.go("/cluster", "Cluster").page.get_by_role("link", name="Jobs on this node").click()
    expect(row(visitor, "going")).to_be_visible()
    expect(row(visitor, "waiting")).to_be_hidden()
    visitor.is_accessible()


def test_rows_are_chosen_by_key_and_compared(visitor: Visitor, jobs: dict[str, str]) -> None:
    visitor.press("j", "x", "j", "x")
    bar = visitor.page.get_by_role("region", name="Selected jobs")
    expect(bar).to_contain_text("2 jobs selected")
    visitor.is_accessible()
    bar.get_by_role("link", name="Compare").click()
    visitor.sees_heading("Compare")
    assert {name for name, job in jobs.items() if job in visitor.page.url} == {"waiting", "one"}


def test_enter_opens_the_row_under_the_cursor(visitor: Visitor) -> None:
    newest = names(visitor).first.inner_text()
    visitor.press("j", "j", "k", "Enter")
    visitor.sees_heading(newest)


def test_several_jobs_that_have_ended_are_deleted_at_once(
    visitor: Visitor, work: Work, lockstep: Service, jobs: dict[str, str]
) -> None:
    old = {name: jobs[name] for name in ("old-1", "old-2")}
    work.cleared(*old.values())
    for name in (*old, "going"):
        row(visitor, name).get_by_role("checkbox").check()
    visitor.is_accessible()
    visitor.button("Delete 2 jobs").click()
    dialog = visitor.page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 more of the selected has not ended and stays")
    visitor.is_accessible()
    dialog.get_by_role("button", name="Delete 2 jobs").click()
    expect(dialog).to_contain_text("2 jobs deleted.")
    dialog.get_by_role("button", name="Close").last.click()
    for name in old:
        expect(row(visitor, name)).to_have_count(0)
    expect(row(visitor, "going")).to_contain_text("running")
    assert [lockstep.http.get(f"/v1/jobs/{job}").status_code for job in old.values()] == [404, 404]


def test_several_jobs_are_cancelled_at_once_with_each_answer(
    visitor: Visitor, work: Work, jobs: dict[str, str]
) -> None:
    two = work.curve("two", gpus=4)
    for name in ("one", "two"):
        row(visitor, name).get_by_role("checkbox").check()
    visitor.button("Cancel 2 jobs").click()
    dialog = visitor.page.get_by_role("dialog")
    visitor.is_accessible()
    dialog.get_by_role("button", name="Cancel 2 jobs").click()
    expect(dialog).to_contain_text("asked to stop")
    expect(dialog).to_contain_text("2 jobs cancelled")
    dialog.get_by_role("button", name="Close").last.click()
    work.ended(jobs["one"], two)
    for name in ("one", "two"):
        expect(row(visitor, name)).to_contain_text("cancelled")
