"""Projects, people, tokens and the own account on their pages, and what a team sees."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
from playwright.sync_api import expect

from tests.dashboard.browser import Visitor
from tests.harness.builders import script
from tests.harness.service import Service

PASSWORD = "correct horse battery staple"


def session_of(
    lockstep: Service, name: str, password: str = PASSWORD, *, project: str = "default"
) -> str:
    """Return the token of a new session of a person, who becomes a member of the project."""
    lockstep.http.post("/v1/projects", json={"name": project})
    body = {"name": name, "title": f"Full name of {name}"}
    if lockstep.http.post("/v1/users", json=body).status_code == 201:
        code = lockstep.http.post(f"/v1/users/{name}/invite").json()["code"]
        asked = {"code": code, "password": password}
        assert httpx2.post(f"{lockstep.url}/v1/invitation", json=asked).status_code == 200
    member = f"/v1/projects/{project}/members/{name}"
    assert lockstep.http.put(member, json={"role": "member"}).status_code == 200
    asked = {"name": name, "password": password}
    answer = httpx2.post(f"{lockstep.url}/v1/session", json=asked)
    token: str = answer.json()["token"]
    return token


def status_of(lockstep: Service, token: str) -> int:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.get(f"{lockstep.url}/v1/session", headers=headers).status_code


def test_a_team_is_set_up_on_its_pages(visitor: Visitor, lockstep: Service) -> None:
    page = visitor.go("/people", "People").page
    page.get_by_role("textbox", name="Name", exact=True).fill("ci")
    page.get_by_label("A program, with tokens only").check()
    visitor.button("Add").click()
    row = page.get_by_role("row").filter(has_text="program")
    expect(row).to_contain_text("active")
    page.get_by_role("textbox", name="Name", exact=True).fill("kim")
    visitor.button("Add").click()
    status = page.get_by_role("status").filter(has_text="shown only now. kim signs in")
    code = status.locator("code").inner_text()
    visitor.is_accessible()
    visitor.button("Invite kim").click()
    expect(status.locator("code")).not_to_have_text(code)
    body = {"code": status.locator("code").inner_text(), "password": PASSWORD}
    assert httpx2.post(f"{lockstep.url}/v1/invitation", json=body).is_success

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
    project.get_by_text("Weight and limits of nlp").click()
    project.get_by_role("textbox", name="Weight", exact=True).fill("2.5")
    most = project.get_by_label("Devices at one time")
    most.fill("many")
    project.get_by_role("button", name="Set the limits").click()
    expect(most).to_have_accessible_description(re.compile("expected a whole number, got 'many'"))
    most.fill("8")
    project.get_by_role("button", name="Set the limits").click()
    expect(project).to_contain_text("weight 2.5at most 8 devices")
    visitor.complaints.clear()  # The browser reports refused requests.
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


def test_a_person_reads_and_changes_the_own_account(signed_out: Visitor, lockstep: Service) -> None:
    first, second = (session_of(lockstep, "lea") for _ in range(2))
    page = signed_out.keep(first).go("/account", "Account").page
    person = page.get_by_role("region", name="Person")
    expect(person).to_contain_text("Full name of lea")
    expect(person.get_by_role("row").filter(has_text="default")).to_contain_text("member")
    rows = page.get_by_role("region", name="Sessions").get_by_role("row")
    expect(rows.filter(has_text="this session")).to_have_count(1)
    signed_out.is_accessible()

    signed_out.expects("status of 422")
    page.get_by_label("Present password").fill(PASSWORD)
    page.get_by_label("New password").fill("short")
    change = signed_out.button("Change the password")
    change.click()
    expect(page.get_by_label("New password")).to_have_accessible_description(
        "expected a password of 12 to 1024 characters, got 5"
    )
    page.get_by_label("New password").fill("new " + PASSWORD)
    page.get_by_label("Present password").fill("wrong " + PASSWORD)
    change.click()
    old = page.get_by_label("Present password")
    expect(old).to_have_accessible_description("is not the present password")
    signed_out.is_accessible()
    page.wait_for_timeout(1_100)  # the delay after a wrong one
    page.get_by_label("Present password").fill(PASSWORD)
    change.click()
    signed_out.sees("The password is changed.")
    assert status_of(lockstep, second) == 401

    others = [session_of(lockstep, "lea", "new " + PASSWORD) for _ in range(3)]
    page.reload()
    expect(rows).to_have_count(5)  # and the head
    rows.nth(1).get_by_role("button").click()
    expect(rows).to_have_count(4)
    signed_out.button("End all other sessions").click()
    expect(rows).to_have_count(2)
    assert [status_of(lockstep, token) for token in (*others, first)] == [401, 401, 401, 200]


def test_the_menu_of_a_person_has_the_pages_of_the_own_rights(
    signed_out: Visitor, lockstep: Service, token: str
) -> None:
    mine = session_of(lockstep, "ben")
    page = signed_out.keep(mine).go("/cluster", "Cluster").page
    opener, menu = signed_out.button("ben"), page.get_by_role("menu")
    opener.focus()
    signed_out.press("Enter")
    expect(menu).to_be_visible()
    entries = ["Account", "Tokens", "Projects", "Settings", "Sign out"]
    expect(menu.get_by_role("menuitem")).to_have_text(entries)
    signed_out.is_accessible()
    signed_out.press("Escape")
    expect(menu).to_be_hidden()
    expect(opener).to_be_focused()
    # Each key once the one before has moved the focus: a menu opens a moment later.
    for key, entry in (("Enter", "Account"), ("ArrowDown", "Tokens")):
        signed_out.press(key)
        expect(menu.get_by_role("menuitem", name=entry)).to_be_focused()
    signed_out.press("Enter")
    signed_out.sees_heading("Tokens")
    opener.click()
    signed_out.expects("status of 401")
    page.get_by_role("menuitem", name="Sign out").click()
    signed_out.sees_heading("Sign in")
    assert status_of(lockstep, mine) == 401
    signed_out.keep(token).go("/cluster", "Cluster").button("admin").click()
    expect(menu.get_by_role("menuitem")).to_have_text(
        ["Account", "Tokens", "Projects", "People", "Audit", "Settings", "Sign out"]
    )


def test_in_a_team_lists_begin_with_the_own_jobs_and_are_filtered_by_project(
    visitor: Visitor, lockstep: Service, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("print(1)\n")
    upload = lockstep.upload(tmp_path)
    mia = {"Authorization": f"Bearer {session_of(lockstep, 'mia', project='speech')}"}
    job = script("of-mia", ["a.py"], upload=upload, project="speech")
    assert httpx2.post(f"{lockstep.url}/v1/jobs", json=job, headers=mia).status_code == 201
    lockstep.submit(script("of-admin", ["a.py"], upload=upload))
    page = visitor.go("/jobs", "Jobs").page
    names = page.get_by_role("table").get_by_role("rowheader")
    expect(names).to_have_count(1)
    expect(names).to_contain_text("of-admin")
    assert visitor.address == "/jobs?owner=admin"
    visitor.is_accessible()
    visitor.button("All").click()
    expect(names).to_have_count(2)
    assert visitor.address == "/jobs?owner=*"
    page.reload()  # as a link from another person
    expect(names).to_have_count(2)
    assert visitor.address == "/jobs?owner=*"
    page.get_by_label("Project", exact=True).select_option("speech")
    expect(names).to_have_count(1)
    expect(names).to_contain_text("of-mia")
    assert visitor.address == "/jobs?owner=*&project=speech"
    page.get_by_role("link", name="Queue", exact=True).click()
    visitor.sees_heading("Queue")
    assert visitor.address == "/queue?project=speech"
    expect(page.get_by_label("Project", exact=True)).to_have_value("speech")
    visitor.is_accessible()
