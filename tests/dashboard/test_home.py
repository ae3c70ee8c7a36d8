"""The page after the sign-in: small for one person on one machine, with projects for a team."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlsplit

from playwright.sync_api import expect

from tests.dashboard.browser import Visitor
from tests.dashboard.work import Work
from tests.harness.service import Service


def test_one_person_on_one_machine_gets_jobs_templates_and_the_command(
    visitor: Visitor, work: Work
) -> None:
    page = visitor.go("/", "Home").page
    expect(page.get_by_role("region")).to_have_count(2)
    visitor.sees("4 devices on 1 node")
    visitor.sees("lockstep submit job.yaml")
    visitor.is_accessible()
    page.get_by_role("link", name="Digits", exact=True).click()
    visitor.sees_heading("New job")
    expect(page.get_by_role("textbox", name="Name").first).to_have_value("digits")
    page.get_by_role("link", name="Lockstep: home").click()
    visitor.sees_heading("Home")
    failed = work.curve("failed", steps=10, pause=-1)
    work.ended(failed)
    going = work.endless("going")
    waiting = work.curve("waiting", gpus=4)
    try:
        mine = page.get_by_role("region", name="My jobs", exact=True)
        expect(mine).to_contain_text("1 failed in 24 h")
        expect(mine.get_by_role("listitem").filter(has_text="going")).to_contain_text("running")
        starts = page.get_by_role("region", name="When my jobs start")
        expect(starts.get_by_role("link", name="waiting")).to_be_visible()
        visitor.is_accessible()
        notice = page.get_by_role("region", name="Needs attention").get_by_role("listitem")
        expect(notice).to_contain_text("failed failed")
        notice.get_by_role("link", name="Open failed").click()
        visitor.sees_heading("failed")
    finally:
        work.cancel(waiting, going)


def test_a_team_sees_who_uses_what_and_asks_once_a_tick(
    visitor: Visitor, work: Work, lockstep: Service
) -> None:
    http = lockstep.http
    assert http.post("/v1/users", json={"name": "lea"}).is_success
    code = http.post("/v1/users/lea/invite").json()["code"]
    body = {"code": code, "password": "correct horse battery"}
    assert http.post("/v1/invitation", json=body).is_success
    going = work.endless("going")
    lockstep.at_step(going, 1)
    try:
        page = visitor.go("/", "Home").page
        use = page.get_by_role("region", name="Who uses what")
        expect(use.get_by_role("row").filter(has_text="admin 1")).to_contain_text("default")
        (node,) = http.get("/v1/nodes").json()["items"]
        assert http.post(f"/v1/nodes/{node['name']}/drain?reason=new fan").is_success
        visitor.sees("on nodes without work")
        notices = page.get_by_role("region", name="Needs attention")
        expect(notices).to_contain_text("new fan, by admin")
        visitor.is_accessible()
        asked: Counter[str] = Counter()
        page.on("request", lambda request: asked.update([urlsplit(request.url).path]))
        page.wait_for_timeout(11_000)
        assert set(asked) == {"/v1/home"}
        assert 1 <= asked["/v1/home"] <= 3
        assert http.post(f"/v1/nodes/{node['name']}/resume").is_success
    finally:
        work.cancel(going)
