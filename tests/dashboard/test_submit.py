"""A new job from the form or from YAML, and a clone with changes."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.dashboard.browser import Visitor
from tests.harness.builders import digits
from tests.harness.service import Service


def test_a_job_is_submitted_from_the_form(visitor: Visitor, lockstep: Service) -> None:
    page = visitor.go("/submit", "New job").page
    visitor.button("Digits").click()
    form = page.get_by_role("form", name="The job's settings")
    form.get_by_label("Name", exact=True).fill("from-the-form")
    expect(page.get_by_label("YAML of the job")).to_contain_text("name: from-the-form")
    expect(page.get_by_test_id("batch-sentence")).to_contain_text("=")
    visitor.is_accessible()
    visitor.button("Submit job").click()
    visitor.sees_heading("from-the-form")
    (job,) = lockstep.http.get("/v1/jobs", params={"name": "from-the-form"}).json()["items"]
    lockstep.http.post(f"/v1/jobs/{job['id']}/cancel")


def test_the_live_plan_shows_the_memory_forecast(visitor: Visitor) -> None:
    page = visitor.go("/submit", "New job").page
    visitor.button("Digits").click()
    plan = page.get_by_test_id("plan")
    expect(plan).to_contain_text("on each device with micro-batches of", timeout=200_000)
    expect(plan).to_contain_text("computed from the task")
    expect(plan).to_contain_text(re.compile(r"on each cpu: micro-batches of up to \d+ fit"))
    visitor.is_accessible()


def test_a_refusal_of_the_service_is_shown_at_its_line(visitor: Visitor) -> None:
    visitor.expects("status of 422")
    page = visitor.go("/submit", "New job").page
    editor = page.get_by_label("YAML of the job")
    editor.click()
    visitor.press("Control+a")
    page.keyboard.insert_text(
        "name: wrong\nkind: train\ntrain:\n  task: causal_lm\n  batch: {size: 0}\n  steps: 10\n"
    )
    refused = page.get_by_role("list", name="What the service refuses")
    expect(refused).to_contain_text("train.batch.size")
    expect(refused.get_by_role("button", name="Go to line 5").first).to_be_visible()
    visitor.is_accessible()


def test_a_clone_shows_its_changes_and_runs(visitor: Visitor, lockstep: Service) -> None:
    original = lockstep.submit(digits("original", steps=4))["id"]
    lockstep.ended(original)
    page = visitor.go(f"/jobs/{original}", "original").page
    page.get_by_role("link", name="Clone", exact=True).click()
    visitor.sees_heading(re.compile("Clone of"))
    page.get_by_role("form", name="The job's settings").get_by_label("Steps", exact=True).fill("5")
    diff = page.get_by_test_id("diff")
    expect(diff.locator("[data-kind=gone]")).to_contain_text("steps: 4")
    expect(diff.locator("[data-kind=new]")).to_contain_text("steps: 5")
    visitor.is_accessible()
    visitor.button("Submit clone").click()
    expect(page).to_have_url(re.compile(rf"/jobs/(?!{original})[0-9a-f-]+$"))
    made = page.url.rpartition("/")[2]
    ended = lockstep.ended(made)
    assert (ended["state"], ended["spec"]["train"]["steps"]) == ("succeeded", 5)
