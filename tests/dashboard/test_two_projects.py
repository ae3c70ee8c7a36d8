"""Two people of two private projects in browsers of their own: each sees the own jobs alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, Locator, Route, expect
from playwright.sync_api import TimeoutError as BrowserTimeoutError

from tests.dashboard.browser import Visitor, visiting
from tests.dashboard.work import Work
from tests.harness.processes import until
from tests.harness.service import Service

PASSWORD = "correct horse battery staple"
REFUSED = r"status of (401|403|404)"
"""Complaint of the browser about each refused request."""


@dataclass(frozen=True)
class Team:
    """A project with one member and two jobs: one with points and lines, one that waits."""

    project: str
    person: str
    shown: str
    waiting: str

    @property
    def words(self) -> tuple[str, ...]:
        """Words that no other team may see; the project is a part of each name."""
        return self.project, self.shown, self.waiting


@pytest.fixture(scope="module")
def teams(lockstep: Service, work: Work) -> Iterator[tuple[Team, Team]]:
    """Return zebra, whose job runs and whose other job waits first, and walrus behind it."""
    admin, made = lockstep.http.headers["Authorization"], []
    for project, person, going in (("walrus", "lea", False), ("zebra", "ben", True)):
        code = _invited(lockstep, project, person)
        body = {"code": code, "password": PASSWORD}
        token = lockstep.http.post("/v1/invitation", json=body).json()["token"]
        lockstep.http.headers["Authorization"] = f"Bearer {token}"
        curve = work.endless if going else work.curve
        shown = curve(f"{project}-curve", project=project)
        (lockstep.at_step(shown, 9) if going else lockstep.ended(shown))
        made.append([project, person, shown, token])
        lockstep.http.headers["Authorization"] = admin
    walrus, zebra = made
    for team, priority in ((zebra, 60), (walrus, 50)):
        lockstep.http.headers["Authorization"] = f"Bearer {team.pop()}"
        name = f"{team[0]}-waits"
        team.append(waits := work.curve(name, gpus=4, project=team[0], priority=priority))
        # One after the other: the first holds the node.
        until(lambda: lockstep.job(waits)["queue"], 60, "a place in the queue")
    lockstep.http.headers["Authorization"] = admin
    yield Team(*walrus), Team(*zebra)
    work.cancel(walrus[3], zebra[3], zebra[2])


def _invited(lockstep: Service, project: str, person: str, role: str = "member") -> str:
    if role == "member":
        assert lockstep.http.post("/v1/projects", json={"name": project}).status_code == 201
    assert lockstep.http.post("/v1/users", json={"name": person}).status_code == 201
    member = f"/v1/projects/{project}/members/{person}"
    assert lockstep.http.put(member, json={"role": role}).is_success
    code: str = lockstep.http.post(f"/v1/users/{person}/invite").json()["code"]
    return code


def sign_in(visitor: Visitor, person: str) -> None:
    page = visitor.page
    visitor.sees_heading("Sign in")
    page.get_by_text("By password").click()
    page.get_by_role("textbox", name="Name").fill(person)
    page.get_by_label(re.compile("^Password")).fill(PASSWORD)
    visitor.button("Sign in").click()


@contextmanager
def signed_in(browser: Browser, lockstep: Service, own: Team, other: Team) -> Iterator[Visitor]:
    """Yield a browser of a member. No answer that it gets may contain a word of the other team."""
    found: list[str] = []

    def check(route: Route) -> None:
        answer = route.fetch()
        text = answer.text()
        # A refusal repeats the id that the page asked for.
        words = [word for word in other.words if word not in route.request.url]
        found.extend(f"{route.request.url}: {word}" for word in words if word in text)
        route.fulfill(response=answer)

    with visiting(browser, lockstep.url, None) as visitor:
        visitor.expects(REFUSED)
        visitor.page.route("**/v1/**", check)
        visitor.go("/jobs")
        sign_in(visitor, own.person)
        visitor.sees_heading("Jobs")
        yield visitor
        visitor.page.unroute_all(behavior="ignoreErrors")
        assert found == []


def rest(visitor: Visitor) -> None:
    """Wait until the page has its data; on a busy machine its polls may never rest."""
    with suppress(BrowserTimeoutError):
        visitor.page.wait_for_load_state("networkidle", timeout=5_000)


def shows_none_of(visitor: Visitor, words: tuple[str, ...]) -> None:
    content = visitor.page.content()
    assert [word for word in words if word in content] == [], visitor.address


def names(visitor: Visitor) -> Locator:
    return visitor.page.locator("tbody th[scope=row] a[href^='/jobs/']")


@pytest.mark.parametrize("mine", [0, 1], ids=["walrus", "zebra"])
def test_a_member_sees_the_own_jobs_alone(
    browser: Browser, lockstep: Service, teams: tuple[Team, Team], mine: int
) -> None:
    own, other = teams[mine], teams[1 - mine]
    with signed_in(browser, lockstep, own, other) as visitor:
        page = visitor.page
        expect(names(visitor)).to_have_text([f"{own.project}-waits", f"{own.project}-curve"])
        page.get_by_label("Project").focus()
        shows_none_of(visitor, other.words)
        page.get_by_label("Filter jobs").fill("-waits")
        expect(names(visitor)).to_have_text([f"{own.project}-waits"])
        visitor.walk("/queue", "Queue")
        section = page.get_by_role("region", name=own.project, exact=True)
        expect(section).to_contain_text(f"{own.project}-waits")
        expect(section).to_contain_text("holds" if mine else "behind a job of another project")
        shows_none_of(visitor, other.words)
        visitor.walk("/cluster", "Cluster")
        devices = page.get_by_role("table", name="Devices of").get_by_role("row")
        expect(devices.filter(has_text="free")).to_have_count(3)
        expect(devices.filter(has_text="a job of another project")).to_have_count(1 - mine)
        expect(devices.get_by_role("link", name=f"{own.project}-curve")).to_have_count(mine)
        shows_none_of(visitor, other.words)
        visitor.walk(f"/jobs/{own.waiting}", f"{own.project}-waits")
        why = page.get_by_role("region", name="Why it waits")
        expect(why).to_contain_text("Place in the queue")
        expect(why.get_by_text("1 job is ahead of it.")).to_have_count(1 - mine)
        for address, heading in (
            *((f"/jobs/{own.shown}", f"{own.project}-curve"), ("/submit", "New job")),
            *(("/projects", "Projects"), ("/tokens", "Tokens"), ("/audit", "Audit")),
        ):
            visitor.walk(address, heading)
            rest(visitor)
            shows_none_of(visitor, other.words)
        visitor.walk(f"/compare?jobs={own.shown},{other.shown}", "Compare")
        expect(page.get_by_role("status").filter(has_text="There is no job")).to_be_visible()
        visitor.sees(f"{own.project}-curve")
        page.get_by_label("Add a job by its name").focus()
        expect(page.get_by_role("list", name="Jobs that can be added")).to_contain_text("-waits")
        shows_none_of(visitor, other.words[:1])
        # Each address of a job: one person opens those of a job with points and lines, and the
        # other those of one that waits.
        all_of, one_of = (other.waiting, other.shown) if mine else (other.shown, other.waiting)
        tabs = ("", "?tab=logs", "?tab=timeline", "?tab=configuration", "?tab=checkpoints")
        for address in (f"/jobs/{one_of}", *(f"/jobs/{all_of}{tab}" for tab in tabs)):
            visitor.go(address)
            visitor.sees(re.compile("there is no job", re.IGNORECASE))
            shows_none_of(visitor, other.words[:1])


def test_a_new_job_begins_in_the_own_project(
    browser: Browser, lockstep: Service, teams: tuple[Team, Team]
) -> None:
    walrus, zebra = teams
    with signed_in(browser, lockstep, walrus, zebra) as visitor:
        page = visitor.page
        page.get_by_role("link", name="New job").click()
        project = page.get_by_role("form", name="The job's settings").get_by_label("Project")
        expect(project.get_by_role("option")).to_have_text(["walrus"])
        for template in ("Digits", "GPT on text"):
            visitor.button(template).click()
            expect(project).to_have_value("walrus")
            expect(page.get_by_label("YAML of the job")).to_contain_text("project: walrus")
        visitor.is_accessible()
        visitor.go(f"/submit?clone={walrus.waiting}", re.compile("Clone of"))
        expect(project).to_have_value("walrus")
        visitor.sees("None: the same job again.")


def test_a_viewer_is_offered_nothing_that_is_refused(
    browser: Browser, lockstep: Service, teams: tuple[Team, Team]
) -> None:
    walrus, zebra = teams
    body = {"code": _invited(lockstep, zebra.project, "vera", "viewer"), "password": PASSWORD}
    assert lockstep.http.post("/v1/invitation", json=body).is_success
    viewer = Team(zebra.project, "vera", zebra.shown, zebra.waiting)
    refused = "Cancel|Delete|Clone|New job|Drain|Resume|Archive|Remove|Give|Make the project"
    with signed_in(browser, lockstep, viewer, walrus) as visitor:
        page = visitor.page
        # Viewers have no own jobs: the list begins with all.
        expect(names(visitor)).to_contain_text(["zebra-waits", "zebra-curve"])
        for address, heading in (
            *((f"/jobs/{zebra.shown}", "zebra-curve"), (f"/jobs/{zebra.waiting}", "zebra-waits")),
            *(("/queue", "Queue"), ("/cluster", "Cluster"), ("/projects", "Projects")),
        ):
            visitor.walk(address, heading)
            rest(visitor)
            for role in ("button", "link", "combobox"):
                offered = page.get_by_role(role, name=re.compile(f"^({refused}|Role)"))
                expect(offered).to_have_count(0)
        visitor.walk("/submit", "You have no project that takes jobs")
        visitor.is_accessible()


def test_the_next_person_in_a_tab_gets_nothing_of_the_last_one(
    browser: Browser, lockstep: Service, teams: tuple[Team, Team]
) -> None:
    walrus, zebra = teams
    with signed_in(browser, lockstep, zebra, walrus) as visitor:
        page = visitor.page
        page.get_by_role("link", name="New job").click()
        visitor.sees_heading("New job")
        page.get_by_role("textbox", name="Name").first.fill("zebra-draft")
        visitor.button(zebra.person).click()
        page.get_by_role("menuitem", name="Sign out").click()
        page.unroute_all(behavior="ignoreErrors")
        sign_in(visitor, walrus.person)
        visitor.sees_heading("New job")
        for name in ("Jobs", "New job"):
            page.get_by_role("link", name=name, exact=True).click()
            visitor.sees_heading(name)
            rest(visitor)
            shows_none_of(visitor, zebra.words)


def test_the_queue_of_a_team_has_a_section_for_each_project_and_each_reason_once(
    visitor: Visitor, lockstep: Service, teams: tuple[Team, Team], work: Work
) -> None:
    page = visitor.page
    names = [f"walrus-more-{number}" for number in range(6)]
    more = [work.curve(name, gpus=4, project="walrus", priority=40) for name in names]
    until(lambda: lockstep.job(more[-1])["queue"], 60, "a place in the queue")
    try:
        visitor.go("/queue", "Queue")
        zebra = page.get_by_role("region", name="zebra", exact=True)
        expect(zebra.get_by_role("rowheader")).to_have_text(re.compile("^zebra-waits"))
        expect(zebra).to_contain_text("In use1 device")
        walrus = page.get_by_role("region", name="walrus", exact=True)
        expect(walrus).to_contain_text("Waiting7 jobs")
        reason = walrus.get_by_role("row").filter(has_text="which needs the same devices")
        expect(reason).to_have_text(re.compile("^2–87 jobs: behind job zebra-waits, "))
        expect(walrus.get_by_role("rowheader")).to_have_count(0)
        visitor.is_accessible()
        walrus.get_by_role("button", name="7 jobs").click()
        shown = [re.compile(f"^{name}by ") for name in ("walrus-waits", *names)]
        expect(walrus.get_by_role("rowheader")).to_have_text(shown)
        visitor.is_accessible()
        walrus.get_by_role("link", name="walrus", exact=True).click()
        expect(zebra).to_have_count(0)
        walrus.get_by_role("button", name="7 jobs").click()
        walrus.get_by_role("link", name=names[0]).click()
        why = page.get_by_role("region", name="Why it waits")
        expect(why).to_contain_text("Behind job zebra-waits, which needs the same devices")
        expect(why.get_by_role("listitem")).to_have_text(
            [re.compile("^1zebra-waits 4 devices, zebra"), re.compile("^2walrus-waits 4 devices")]
        )
        visitor.is_accessible()
    finally:
        work.cancel(*more)
