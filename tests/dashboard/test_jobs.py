"""The list of jobs: its content, its address, and actions on several jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.dashboard.browser import Visitor, violations, visiting
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


def filter_by(visitor: Visitor, text: str) -> None:
    field = visitor.page.get_by_label("Filter jobs")
    field.fill(text)
    field.press("Enter")


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
    assert row(visitor, "done").bounding_box()["height"] == 32  # type: ignore[index]
    visitor.is_accessible()


def test_the_address_contains_the_whole_view(
    visitor: Visitor, browser: Browser, lockstep: Service, token: str
) -> None:
    page = visitor.page
    visitor.button(re.compile("^failed")).click()
    visitor.button(re.compile("^succeeded")).click()
    filter_by(visitor, "label:team=vision")
    expect(names(visitor)).to_have_count(2)
    page.get_by_role("columnheader", name="Submitted").or_(
        page.get_by_role("columnheader", name="Name")
    ).get_by_role("button").click()
    expect(names(visitor)).to_have_text(["broken", "done"])
    visitor.button(re.compile("^Columns")).click()
    columns = page.get_by_role("dialog", name=re.compile("^Columns"))
    columns.get_by_role("checkbox", name="Node").uncheck()
    visitor.button("train/loss, lowest value").click()
    move = columns.get_by_role("button", name="Move State to the right")
    move.press("Enter")
    expect(move).to_be_focused()
    visitor.is_accessible()
    visitor.press("Escape")
    expect(page.get_by_role("columnheader", name="train/loss lowest")).to_be_visible()
    expect(page.get_by_role("columnheader").nth(2)).to_have_text("Progress")
    page.get_by_role("columnheader", name="GPUs").drag_to(
        page.get_by_role("columnheader", name="Progress")
    )
    expect(page.get_by_role("columnheader").nth(2)).to_have_text("GPUs")
    expect(page.get_by_role("columnheader", name="Node")).to_have_count(0)
    heads = page.get_by_role("columnheader").all_inner_texts()
    address = visitor.address
    assert page.evaluate("Object.keys(localStorage)") == []
    # Another person with the link, and a reload, see the same.
    with visiting(browser, lockstep.url, token) as other:
        other.go(address, "Jobs")
        expect(names(other)).to_have_text(["broken", "done"])
        assert other.page.get_by_role("columnheader").all_inner_texts() == heads
        assert other.address == address
    page.reload()
    expect(names(visitor)).to_have_text(["broken", "done"])
    assert visitor.address == address
    expect(visitor.button(re.compile("^failed"))).to_have_attribute("aria-pressed", "true")
    page.get_by_role("link", name="Clear", exact=True).click()
    expect(row(visitor, "going")).to_be_visible()


def test_a_filter_without_a_match_can_be_cleared(visitor: Visitor) -> None:
    visitor.press("/")
    field = visitor.page.get_by_label("Filter jobs")
    expect(field).to_be_focused()
    field.fill("nobody")
    visitor.sees("No job matches this filter")
    filter_by(visitor, "node:nowhere")
    expect(visitor.button("Remove node:nowhere")).to_be_visible()
    visitor.is_accessible()
    visitor.page.get_by_role("link", name="Clear the filter").click()
    expect(row(visitor, "done")).to_be_visible()


def test_a_wrong_token_is_marked_and_lists_near_names(visitor: Visitor) -> None:
    visitor.expects("status of 422")
    filter_by(visitor, "gpsu>4")
    alert = visitor.page.get_by_role("alert")
    expect(alert).to_contain_text("gpsu>4 no job has a field 'gpsu'")
    expect(alert).to_contain_text("gpus")
    visitor.is_accessible()
    visitor.button("Remove gpsu>4").click()
    expect(row(visitor, "done")).to_be_visible()


def test_a_job_is_found_by_part_of_name_id_or_owner(visitor: Visitor, jobs: dict[str, str]) -> None:
    field = visitor.page.get_by_label("Filter jobs")
    field.press_sequentially("OIN")
    expect(names(visitor)).to_have_text(["going"])
    field.fill(jobs["done"][-12:])
    expect(names(visitor)).to_have_text(["done"])
    visitor.page.get_by_role("link", name="Clear", exact=True).click()
    row(visitor, "going").get_by_role("link", name="night", exact=True).click()
    expect(names(visitor)).to_have_text(["going"])
    visitor.go("/cluster", "Cluster").page.get_by_role("link", name="Jobs on this node").click()
    expect(row(visitor, "going")).to_be_visible()
    expect(row(visitor, "waiting")).to_be_hidden()
    visitor.is_accessible()


def test_jobs_are_grouped_with_their_numbers(visitor: Visitor) -> None:
    page = visitor.page
    page.get_by_label("Group").select_option("label:team")
    group = page.get_by_role("row").filter(has=visitor.button(re.compile("vision")))
    expect(group).to_contain_text("2 jobs")
    expect(group).to_contain_text("1 succeeded")
    group.get_by_role("button").click()
    expect(names(visitor)).to_have_text(["broken", "done"])
    assert "open=vision" in visitor.address
    visitor.is_accessible()
    page.get_by_role("row").filter(has_text="without a value").get_by_role("button").click()
    expect(row(visitor, "waiting")).to_be_visible()


def test_labels_note_and_star_are_edited_in_the_row(
    visitor: Visitor, lockstep: Service, jobs: dict[str, str]
) -> None:
    page = visitor.page
    row(visitor, "done").hover()
    row(visitor, "done").get_by_role("button", name="Star done").click()
    expect(row(visitor, "done").get_by_role("button", name="Star done")).to_have_attribute(
        "aria-pressed", "true"
    )
    row(visitor, "done").get_by_role("button", name="Labels and note of done").click()
    page.get_by_label(re.compile("^Labels, one in a line")).fill("team=vision\nbest")
    page.get_by_label(re.compile("^Note")).fill("the baseline")
    # Not in a narrow window, whose list is another one.
    assert not violations(page, "light") + violations(page, "dark")
    visitor.button("Save").click()
    expect(row(visitor, "done").get_by_title("best", exact=True)).to_have_text("+1")
    expect(row(visitor, "done").get_by_title("the baseline")).to_be_visible()
    job = lockstep.job(jobs["done"])
    assert job["labels"] == {"team": "vision", "best": ""}
    assert (job["note"], job["starred"]) == ("the baseline", True)
    lockstep.http.patch(f"/v1/jobs/{jobs['done']}", json={"labels": {"best": None}, "note": ""})


def test_several_jobs_get_a_label_and_lose_one_at_once(
    visitor: Visitor, lockstep: Service, jobs: dict[str, str]
) -> None:
    for name in ("done", "broken"):
        row(visitor, name).get_by_role("checkbox").check()
    visitor.button("Label 2 jobs").click()
    dialog = visitor.page.get_by_role("dialog")
    dialog.get_by_label(re.compile("^Add, one in a line")).fill("group=mix")
    dialog.get_by_label("team: vision · 2 jobs").check()
    assert not violations(visitor.page, "light") + violations(visitor.page, "dark")
    dialog.get_by_role("button", name="Label 2 jobs").click()
    expect(dialog).to_contain_text("2 jobs labelled.")
    dialog.get_by_role("button", name="Close").last.click()
    expect(row(visitor, "done").get_by_title("group=mix")).to_be_visible()
    for job in (jobs["done"], jobs["broken"]):
        assert lockstep.job(job)["labels"] == {"group": "mix"}
        lockstep.http.patch(f"/v1/jobs/{job}", json={"labels": {"team": "vision", "group": None}})


def test_rows_are_chosen_by_key_and_compared(visitor: Visitor, jobs: dict[str, str]) -> None:
    visitor.press("j", "x", "j", "x")
    bar = visitor.page.get_by_role("region", name="Selected jobs")
    expect(bar).to_contain_text("2 jobs selected")
    visitor.is_accessible()
    # Nothing covers a row: the bar is below the table.
    table = visitor.page.get_by_role("table").bounding_box()
    box = bar.bounding_box()
    assert table is not None
    assert box is not None
    assert table["y"] + table["height"] <= box["y"] + 1
    visitor.press("c")
    visitor.sees_heading("Compare")
    assert {name for name, job in jobs.items() if job in visitor.page.url} == {"waiting", "one"}


def test_a_job_is_found_and_cancelled_by_keys_alone(visitor: Visitor, work: Work) -> None:
    doomed = work.curve("doomed", gpus=4)
    visitor.press("/")
    visitor.page.keyboard.type("doom")
    expect(names(visitor)).to_have_text(["doomed"])
    visitor.press("Escape", "j", "x", "a", "Enter")
    dialog = visitor.page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Keep")).to_be_focused()
    visitor.press("Tab", "Enter")
    expect(dialog).to_contain_text("1 job cancelled")
    work.ended(doomed)


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
