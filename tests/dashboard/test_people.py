"""Projects, people and tokens: made, changed and revoked on their pages."""

from __future__ import annotations

import httpx2
from playwright.sync_api import expect

from tests.dashboard.browser import Visitor
from tests.harness.service import Service


def test_a_team_is_set_up_on_its_pages(visitor: Visitor, lockstep: Service) -> None:
    page = visitor.go("/people", "People").page
    page.get_by_role("textbox", name="Name", exact=True).fill("ci")
    page.get_by_label("A program, with tokens only").check()
    visitor.button("Add").click()
    row = page.get_by_role("row").filter(has_text="program")
    expect(row).to_contain_text("active")
    visitor.is_accessible()

    visitor.go("/projects", "Projects")
    page.get_by_role("region", name="New project").get_by_role("textbox", name="Name").fill("nlp")
    visitor.button("Make the project").click()
    project = page.get_by_role("region", name="Project nlp")
    project.get_by_role("textbox", name="Person to add to nlp").fill("ci")
    project.get_by_role("button", name="Give the role").click()
    expect(project.get_by_label("Role of ci in nlp")).to_have_value("member")
    project.get_by_role("textbox", name="Person to add to nlp").fill("unknown-name")
    project.get_by_role("button", name="Give the role").click()
    expect(project.get_by_role("alert")).to_contain_text("there is no person")
    visitor.complaints.clear()  # The browser reports the refused request.
    visitor.is_accessible()
    members = lockstep.http.get("/v1/projects/nlp").json()["members"]
    assert members == [{"user": "ci", "role": "member"}]

    visitor.go("/audit", "Audit")
    given = page.get_by_role("row").filter(has_text="member.set")
    expect(given).to_contain_text("nlp")
    visitor.is_accessible()


def test_a_token_is_made_shown_once_and_revoked(visitor: Visitor, lockstep: Service) -> None:
    page = visitor.go("/tokens", "Tokens").page
    page.get_by_role("textbox", name="Name", exact=True).fill("laptop")
    visitor.button("Make the token").click()
    status = page.get_by_role("status").filter(has_text="shown only now")
    secret = status.locator("code").inner_text()
    visitor.is_accessible()
    headers = {"Authorization": f"Bearer {secret}"}
    assert httpx2.get(f"{lockstep.url}/v1/jobs", headers=headers).status_code == 200
    assert httpx2.post(f"{lockstep.url}/v1/tokens", json={}, headers=headers).status_code == 403
    visitor.go("/tokens", "Tokens")
    expect(page.get_by_text(secret)).to_have_count(0)
    visitor.button("Revoke laptop").click()
    expect(page.get_by_role("row").filter(has_text="laptop")).to_contain_text("revoked")
    assert httpx2.get(f"{lockstep.url}/v1/jobs", headers=headers).status_code == 401
