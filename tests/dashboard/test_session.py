"""Sign-in and sign-out, settings of a browser, keys, and unknown addresses."""

from __future__ import annotations

import re

import httpx2
import pytest
from playwright.sync_api import Page, expect

from lockstep.client.api import Client
from tests.dashboard.browser import Visitor
from tests.dashboard.work import Work
from tests.harness.service import Service

UNAUTHENTICATED = r"status of 401"
"""Complaint of the browser about every refused request; before a sign-in all are refused."""


def sign_in(visitor: Visitor, token: str, *, remember: bool = False) -> None:
    visitor.sees_heading("Sign in")
    visitor.page.get_by_label(re.compile("^Token")).fill(token)
    visitor.page.get_by_label("Remember on this computer").set_checked(remember)
    visitor.button("Sign in").click()


def kept(page: Page) -> list[str | None]:
    """Return the token in the browser's storage: of the tab, and permanent."""
    found: list[str | None] = page.evaluate(
        "[sessionStorage.getItem('lockstep.token'), localStorage.getItem('lockstep.token')]"
    )
    return found


def test_only_the_right_token_opens_the_door(signed_out: Visitor, token: str) -> None:
    signed_out.expects(UNAUTHENTICATED)
    signed_out.go("/nodes")
    sign_in(signed_out, "lockstep_wrong")
    signed_out.sees("The token was refused: the bearer token is unknown to this service.")
    assert kept(signed_out.page) == [None, None]
    signed_out.is_accessible()
    sign_in(signed_out, token)
    signed_out.sees_heading("Cluster")
    assert signed_out.address == "/cluster"
    assert kept(signed_out.page) == [token, None]


def test_an_invited_person_signs_in_and_out_by_name(signed_out: Visitor, lockstep: Service) -> None:
    assert lockstep.http.post("/v1/users", json={"name": "lea"}).status_code == 201
    code = lockstep.http.post("/v1/users/lea/invite").json()["code"]
    signed_out.expects(UNAUTHENTICATED)
    page, secret = signed_out.go("/jobs").page, "correct horse battery staple"
    page.get_by_text("By invitation").click()
    field = page.get_by_label(re.compile("^Invitation code"))
    password = page.get_by_label(re.compile("^New password"))
    signed_out.expects("status of 422")
    field.fill("lsi_unknown")
    for given, where, why in (
        ("short", password, "expected a password of 12"),
        (secret, field, "the invitation code is unknown"),
    ):
        password.fill(given)
        signed_out.button("Sign in").click()
        expect(where).to_have_accessible_description(re.compile(why))
    field.fill(code)
    signed_out.is_accessible()
    signed_out.button("Sign in").click()
    signed_out.sees_heading("Jobs")
    (token, _) = kept(page)
    headers = {"Authorization": f"Bearer {token}"}
    assert httpx2.get(f"{lockstep.url}/v1/session", headers=headers).json()["name"] == "lea"
    signed_out.go("/settings", "Settings")
    signed_out.button("lea").click()
    page.get_by_role("menuitem", name="Sign out").click()
    signed_out.sees_heading("Sign in")
    assert httpx2.get(f"{lockstep.url}/v1/session", headers=headers).status_code == 401
    page.get_by_role("textbox", name="Name").fill("lea")  # no choice: the way of the last sign-in
    page.get_by_label(re.compile("^Password")).fill("wrong " + secret)
    signed_out.button("Sign in").click()
    signed_out.sees("the name or the password is wrong")
    page.wait_for_timeout(1_100)  # the delay after a wrong one
    page.get_by_label(re.compile("^Password")).fill(secret)
    signed_out.button("Sign in").click()
    signed_out.sees_heading("Settings")


def test_a_revoked_token_leads_to_the_sign_in_with_a_reason(
    signed_out: Visitor, work: Work
) -> None:
    signed_out.expects(UNAUTHENTICATED)
    work.token("lockstep_of_ada_0123456789", actor="ada")
    signed_out.go("/queue")
    sign_in(signed_out, "lockstep_of_ada_0123456789")
    signed_out.sees_heading("Queue")
    work.revoke("lockstep_of_ada_0123456789")
    signed_out.sees_heading("Sign in")
    signed_out.sees(
        re.compile(r"The token was refused: .* was revoked at \d{4}-\d\d-\d\d .* UTC\.")
    )
    assert kept(signed_out.page) == [None, None]
    signed_out.is_accessible()


def test_a_remembered_token_is_in_new_tabs_until_sign_out(signed_out: Visitor, token: str) -> None:
    signed_out.expects(UNAUTHENTICATED)
    signed_out.go("/settings")
    sign_in(signed_out, token, remember=True)
    signed_out.sees_heading("Settings")
    other = signed_out.page.context.new_page()
    other.goto(f"{signed_out.url}/settings")
    other.get_by_role("button", name="admin").click()
    other.get_by_role("menuitem", name="Sign out").click()
    expect(other.get_by_role("heading", name="Sign in")).to_be_visible()
    assert kept(other) == [None, None]
    signed_out.page.reload()
    signed_out.sees_heading("Sign in")


def test_the_link_of_open_signs_in_once_and_leaves_no_code_in_the_address(
    signed_out: Visitor, token: str
) -> None:
    signed_out.expects(UNAUTHENTICATED)
    with Client(signed_out.url, token) as client:
        code = client.create_sign_in_code().code
    link = f"/jobs?state=%5B%22failed%22%5D#code={code}"
    signed_out.go(link, "Jobs")
    assert code not in signed_out.page.url
    assert "state" in signed_out.address
    session, remembered = kept(signed_out.page)
    assert session.startswith("lst_")
    assert remembered is None
    signed_out.page.reload()
    signed_out.sees_heading("Jobs")
    # In a browser that is signed in, a used code changes nothing; in another it is the reason.
    signed_out.go(link, "Jobs")
    assert kept(signed_out.page) == [session, None]
    signed_out.page.evaluate("sessionStorage.clear()")
    signed_out.go(f"/queue#code={code}")
    signed_out.sees_heading("Sign in")
    signed_out.sees("the code is unknown, used or expired")


def test_a_tab_has_the_name_of_its_page_and_a_state(visitor: Visitor, work: Work) -> None:
    job = work.curve("named")
    page = visitor.go(f"/jobs/{job}?tab=logs", "named").page
    icon = page.locator("link[rel='icon']")
    expect(page).to_have_title("named · succeeded · Logs · Lockstep")
    # The policy of the pages allows it. Otherwise the browser would complain.
    expect(icon).to_have_attribute("href", re.compile("^data:image/svg"))
    for name, title in (("Queue", "Queue"), ("Jobs", "Jobs"), ("New job", "New job")):
        page.get_by_role("link", name=name, exact=True).click()
        expect(page).to_have_title(f"{title} · Lockstep")
        expect(icon).to_have_attribute("href", "/mark.svg")


def test_colours_follow_the_system_until_one_is_chosen(visitor: Visitor) -> None:
    page = visitor.go("/settings", "Settings").page
    html = page.locator("html")
    for system in ("dark", "light"):
        page.emulate_media(color_scheme=system)
        expect(html).to_have_attribute("data-mantine-color-scheme", system)
    page.get_by_text("Dark", exact=True).click()
    expect(html).to_have_attribute("data-mantine-color-scheme", "dark")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    expect(html).to_have_attribute("data-mantine-color-scheme", "dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == ground
    page.get_by_text("As the system", exact=True).click()
    expect(html).to_have_attribute("data-mantine-color-scheme", "light")
    visitor.is_accessible()


def test_the_refresh_rate_can_be_set_in_two_places_and_is_kept(visitor: Visitor) -> None:
    page = visitor.go("/settings", "Settings").page
    above = page.get_by_label("How often the pages are brought up to date").first
    page.get_by_text("Paused", exact=True).click()
    expect(above).to_have_value("paused")
    page.reload()
    expect(above).to_have_value("paused")
    above.select_option("calm")
    expect(page.get_by_label("Calm (12–30 s)")).to_be_checked()


def test_every_page_has_a_key_and_the_help_lists_it(visitor: Visitor) -> None:
    page = visitor.go("/settings", "Settings").page
    visitor.press("?")
    help_ = page.get_by_role("dialog", name="Keyboard shortcuts")
    expect(help_).to_be_visible()
    for does in ("show these keys", "go to Jobs", "search on this page"):
        expect(help_.get_by_text(does)).to_be_visible()
    visitor.is_accessible()
    visitor.press("Escape")
    expect(help_).to_be_hidden()
    for key, address in (
        ("h", "/"),
        ("q", "/queue"),
        ("n", "/cluster"),
        ("c", "/compare"),
        ("s", "/submit"),
        ("j", "/jobs"),
    ):
        visitor.press("g", key)
        expect(page).to_have_url(re.compile(rf"{address}(\?.*)?$"))


def test_the_first_thing_that_the_tab_key_reaches_skips_to_the_content(visitor: Visitor) -> None:
    visitor.go("/settings", "Settings")
    visitor.press("Tab")
    expect(visitor.page.get_by_text("Skip to the content")).to_be_focused()


@pytest.mark.parametrize("address", ["/nowhere", "/jobs/a/b"])
def test_an_address_that_leads_nowhere_leads_back(visitor: Visitor, address: str) -> None:
    visitor.go(address)
    visitor.sees("There is no such page")
    visitor.is_accessible()
    visitor.page.get_by_role("link", name="All jobs", exact=True).click()
    visitor.sees_heading("Jobs")
