"""Every route against every kind of caller, and what each caller sees of other projects."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from fastapi import FastAPI
from sqlalchemy import update

from lockstep.api import access
from lockstep.api.app import routed
from lockstep.domain.rights import ProjectRole, ServiceRole, UserState, Visibility
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import TokenRow, UserRow
from lockstep.storage.db.tables import JobRow
from lockstep.storage.jobs.foreign import OTHER, Mentions
from lockstep.storage.people import credentials, projects, tokens, users
from tests.api.conftest import SCRIPT, Api, problem
from tests.storage import scenes

MEMBERS = {"viewer": ProjectRole.VIEWER, "member": ProjectRole.MEMBER, "lead": ProjectRole.ADMIN}
"""People with a role in the own project, nlp; the foreign one is vision."""
SERVICE = {"operator": ServiceRole.OPERATOR, "admin": ServiceRole.ADMIN}
CALLERS = ("none", *MEMBERS, *SERVICE, "narrow", "elsewhere")
"""``narrow`` and ``elsewhere`` are tokens of ``member``: one may only read jobs, one is of vision
alone."""
REFUSED = ("off", "expired", "revoked")
_READ = ("404 200 200 200 200 200 200 404", "404 404 404 404 200 200 404 404")
_CONTROL = ("404 403 403 409 409 409 403 404", "404 404 404 404 409 409 404 404")
_OF_CHECKPOINT = ("404 403 404 404 403 404 404 404", "404 404 404 404 403 404 404 404")
_WRITE = ("404 403 403 409 403 409 403 404", "404 404 404 404 403 409 404 404")
TABLE: dict[str, tuple[str, str]] = {
    # route: status for each of CALLERS, in the own project and in the foreign one
    "POST /v1/jobs": ("403 403 201 201 403 201 403 403", "403 403 422 422 403 201 403 403"),
    "POST /v1/jobs/plan": ("403 403 200 200 403 200 403 403", "403 403 422 422 403 200 403 403"),
    "GET /v1/jobs": ("200 200 200 200 200 200 200 200", "200 200 200 200 200 200 200 200"),
    "GET /v1/queue": ("200 200 200 200 200 200 200 200", "200 200 200 200 200 200 200 200"),
    "GET /v1/jobs/{reference}": _READ,
    "POST /v1/jobs/{reference}/cancel": _CONTROL,
    "PATCH /v1/jobs/{reference}": (
        _WRITE[0].replace("409", "200"),
        _WRITE[1].replace("409", "200"),
    ),
    "POST /v1/jobs/{reference}/pause": _CONTROL,
    "POST /v1/jobs/{reference}/resume": _CONTROL,
    "POST /v1/jobs/{reference}/requeue": _CONTROL,
    "DELETE /v1/jobs/{reference}": _WRITE,
    "POST /v1/jobs/{reference}/clone": (
        "403 403 201 201 403 201 403 403",
        "403 403 404 404 403 201 403 403",
    ),
    "GET /v1/jobs/{reference}/metrics": _READ,
    "GET /v1/jobs/{reference}/series": _READ,
    "GET /v1/jobs/{reference}/live": _READ,
    "GET /v1/jobs/{reference}/metrics/download": _READ,
    "GET /v1/jobs/{reference}/attempts": _READ,
    "GET /v1/jobs/{reference}/spec": _READ,
    "GET /v1/jobs/{reference}/events": _READ,
    "GET /v1/series": _READ,
    "GET /v1/series/summaries": _READ,
    "GET /v1/jobs/{reference}/checkpoints": _READ,
    # No checkpoint is there: who may read one gets 404.
    "GET /v1/jobs/{reference}/checkpoints/{which}": ("404 " * 8, "404 " * 8),
    "GET /v1/jobs/{reference}/checkpoints/{which}/files/{name}": _OF_CHECKPOINT,
    "GET /v1/jobs/{reference}/files": _READ,
    "GET /v1/jobs/{reference}/files/{path:file}": _OF_CHECKPOINT,
    "DELETE /v1/jobs/{reference}/files": (
        "404 403 403 200 403 200 403 404",
        "404 404 404 404 403 200 404 404",
    ),
    "GET /v1/jobs/{reference}/logs": _READ,
    "GET /v1/jobs/{reference}/logs/download": _READ,
    "GET /v1/jobs/{reference}/logs/stream": _READ,
    "PUT /v1/uploads/{sha256}": (
        "403 403 422 422 403 422 403 403",
        "403 403 422 422 403 422 403 403",
    ),
    "GET /v1/uploads/{sha256}": (
        "403 403 404 404 403 404 403 403",
        "403 403 404 404 403 404 403 403",
    ),
    "GET /v1/home": ("200 200 200 200 200 200 200 200",) * 2,
    "GET /v1/shares": ("200 200 200 200 200 200 200 200",) * 2,
    "GET /v1/jobs/{reference}/why": _READ,
    "GET /v1/usage": ("200 200 200 200 200 200 200 200",) * 2,
    "GET /v1/audit": ("403 403 403 200 403 200 403 403",) * 2,
    "GET /v1/audit/export": ("403 403 403 200 403 200 403 403",) * 2,
    "GET /v1/nodes": ("200 200 200 200 200 200 200 200", "200 200 200 200 200 200 200 200"),
    "POST /v1/nodes/{name}/drain": ("403 403 403 403 404 404 403 403",) * 2,
    "DELETE /v1/nodes/{name}": ("403 403 403 403 404 404 403 403",) * 2,
    "POST /v1/nodes/{name}/resume": ("403 403 403 403 404 404 403 403",) * 2,
    "GET /v1/users": ("200 200 200 200 200 200 200 200",) * 2,
    "POST /v1/users": ("403 403 403 403 403 409 403 403",) * 2,
    "PATCH /v1/users/{name}": ("403 403 403 403 403 404 403 403",) * 2,
    "GET /v1/tokens": ("200 200 200 200 200 200 200 200",) * 2,
    "POST /v1/tokens": ("201 201 201 201 201 201 403 403",) * 2,
    "POST /v1/tokens/{token_id}/rotate": ("404 404 404 404 404 404 403 403",) * 2,
    "DELETE /v1/tokens/{token_id}": ("404 404 404 404 404 404 403 403",) * 2,
    "GET /v1/projects": ("200 200 200 200 200 200 200 200",) * 2,
    "POST /v1/projects": ("403 403 403 403 403 409 403 403",) * 2,
    "GET /v1/projects/{project}": _READ,
    "PATCH /v1/projects/{project}": (
        "404 403 403 200 403 200 403 404",
        "404 404 404 404 403 200 404 404",
    ),
    "PUT /v1/projects/{project}/members/{name}": (
        "404 403 403 404 403 404 403 404",
        "404 404 404 404 403 404 404 404",
    ),
    "DELETE /v1/projects/{project}/members/{name}": (
        "404 403 403 404 403 404 403 404",
        "404 404 404 404 403 404 404 404",
    ),
    # Without a body. No caller has a session here: all callers send tokens.
    "POST /v1/session": ("400 " * 8,) * 2,
    "POST /v1/session/code": ("400 " * 8,) * 2,
    "POST /v1/sign-in-codes": ("201 " * 8,) * 2,
    "POST /v1/invitation": ("400 " * 8,) * 2,
    "GET /v1/session": ("200 " * 8,) * 2,
    "DELETE /v1/session": ("409 " * 8,) * 2,
    "GET /v1/sessions": ("200 200 200 200 200 200 403 403",) * 2,
    "DELETE /v1/sessions/{id}": ("404 404 404 404 404 404 403 403",) * 2,
    "POST /v1/session/password": ("400 400 400 400 400 400 403 403",) * 2,
    "POST /v1/users/{name}/invite": ("403 403 403 403 403 404 403 403",) * 2,
}


OPEN = {"POST /v1/session", "POST /v1/session/code", "POST /v1/invitation"}
"""Routes that need no token."""

BODIES: dict[str, dict[str, Any]] = {
    "/v1/jobs/{reference}": {"starred": True},
    "/v1/users": {"name": "admin"},
    "/v1/users/{name}": {},
    "/v1/tokens": {},
    "/v1/tokens/{token_id}/rotate": {},
    "/v1/projects": {},
    "/v1/projects/{project}": {"title": "changed"},
    "/v1/projects/{project}/members/{name}": {"role": "member"},
}


def secret_of(caller: str) -> str:
    return f"lockstep_a-token-of-{caller}-for-tests"


class Team:
    """People of two projects, with jobs of each: one that has ended, and one that waits."""

    def __init__(self, api: Api) -> None:
        self.api = api
        with api.database.jobs() as session:
            for project in ("nlp", "vision"):
                projects.ensure(session, project)
            for name in (*CALLERS, *REFUSED):
                owner = "member" if name in {"narrow", "elsewhere"} else name
                tokens.ensure(session, secret_of(name), name=name, actor=owner)
            session.execute(update(UserRow).where(UserRow.name != "ada").values(role=None))
            for name, role in SERVICE.items():
                session.execute(update(UserRow).where(UserRow.name == name).values(role=role))
            for name, member in MEMBERS.items():
                projects.set_role(session, "nlp", name, member)
            off = update(UserRow).where(UserRow.name == "off")
            session.execute(off.values(state=UserState.OFF))
        self.set_token("narrow", scopes=["jobs:read"])
        self.set_token("elsewhere", projects=["vision"])
        self.set_token("expired", expires_at=db_now() - 1)
        self.set_token("revoked", revoked_at=db_now())
        self.ended, self.waiting = (
            {project: self.job(project) for project in ("nlp", "vision")} for _ in range(2)
        )
        for job in self.ended.values():
            assert api.http.post(f"/v1/jobs/{job}/cancel").status_code == 202

    def set_token(self, caller: str, **values: Any) -> None:
        with self.api.database.jobs() as session:
            of_caller = TokenRow.sha256 == credentials.digest(secret_of(caller))
            session.execute(update(TokenRow).where(of_caller).values(**values))

    def job(self, project: str, **spec: Any) -> str:
        return self.api.job_id({**SCRIPT, "project": project, "name": f"of-{project}", **spec})

    def ask(self, caller: str | None, method: str, path: str, **more: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {secret_of(caller)}"} if caller else {}
        headers |= more.pop("headers", {})
        without = {"Authorization": ""} if caller is None else {}
        return self.api.http.request(method, path, headers=headers | without, **more)

    def call(self, caller: str | None, route: str, project: str, job: str = "") -> httpx2.Response:
        """Send the request of a row of the table about a job of a project."""
        method, path = route.split()
        jobs = self.waiting if method == "DELETE" else self.ended
        reference = job or jobs.get(project) or str(uuid4())
        values = {"reference": reference, "which": "last", "sha256": "0" * 64, "name": "model.pt"}
        values |= {"project": project, "token_id": "unknown", "id": "0" * 16}
        more: dict[str, Any] = {}
        if path in {"/v1/jobs", "/v1/jobs/plan"} and method == "POST":
            more["json"] = {**SCRIPT, "project": project}
        if path in BODIES and method in {"POST", "PATCH", "PUT"}:
            more["json"] = BODIES[path] | ({"name": project} if path == "/v1/projects" else {})
        if route.startswith("DELETE") and path.endswith("/files"):
            more["params"] = {"match": "*.pt"}
        if path.startswith("/v1/series"):
            more["params"] = {"jobs": reference, "names": "loss"}
        if "sha256" in path and method == "PUT":
            more |= {"content": b"x", "headers": {"Content-Type": "application/gzip"}}
        path = path.replace("{path:file}", "out/model.pt")
        return self.ask(caller, method, path.format(**values), **more)

    def seen(self, caller: str, path: str) -> set[str]:
        """Return the projects of the jobs on a list."""
        return {job["project"] for job in self.ask(caller, "GET", path).json()["items"]}


@pytest.fixture(scope="module")
def team(unchanged_api: Api) -> Team:
    return Team(unchanged_api)


def test_the_table_has_every_route() -> None:
    assert {route for route, _ in access.routes(routed())} == TABLE.keys()


@pytest.mark.parametrize("route", TABLE)
def test_a_caller_gets_what_the_table_allows(team: Team, route: str) -> None:
    for project, expected in zip(("nlp", "vision"), TABLE[route], strict=True):
        found = [str(team.call(caller, route, project).status_code) for caller in CALLERS]
        assert dict(zip(CALLERS, found, strict=True)) == dict(
            zip(CALLERS, expected.split(), strict=True)
        ), project
    for caller in (None, *REFUSED):
        refused = (400, "malformed") if route in OPEN else (401, "unauthenticated")
        problem(team.call(caller, route, "nlp"), *refused)


def words_of(response: httpx2.Response, job: str) -> str:
    found = response.json()
    del found["instance"]
    return json.dumps(found).replace(job, "ID")


@pytest.mark.parametrize(
    "route", [each for each in TABLE if "{reference}" in each or "series" in each]
)
def test_a_foreign_job_is_refused_in_the_words_for_an_unknown_one(team: Team, route: str) -> None:
    foreign = (team.waiting if route.startswith("DELETE") else team.ended)["vision"]
    unknown = str(uuid4())
    one, other = (team.call("member", route, "vision", job) for job in (foreign, unknown))
    assert one.status_code == other.status_code == 404
    assert words_of(one, foreign) == words_of(other, unknown)


OUTSIDERS = ("none", "viewer", "member", "lead", "narrow", "elsewhere")
NAMING: dict[str, tuple[str, Any]] = {
    # each request that names a project: status for each of OUTSIDERS, and the body
    "GET /v1/jobs?project={}": ("200 200 200 200 200 200", None),
    "GET /v1/queue?project={}": ("200 200 200 200 200 200", None),
    "GET /v1/usage?project={}": ("200 200 200 200 200 200", None),
    "GET /v1/audit?project={}": ("403 403 403 200 403 403", None),
    "GET /v1/audit/export?project={}": ("403 403 403 200 403 403", None),
    "GET /v1/projects/{}": ("404 404 404 404 404 404", None),
    "PATCH /v1/projects/{}": ("404 404 404 404 404 404", {"title": "changed"}),
    "PUT /v1/projects/{}/members/member": ("404 404 404 404 404 404", {"role": "admin"}),
    "DELETE /v1/projects/{}/members/ada": ("404 404 404 404 404 404", None),
    "POST /v1/jobs": ("403 403 422 422 403 403", {**SCRIPT, "project": "{}"}),
    "POST /v1/jobs/plan": ("403 403 422 422 403 403", {**SCRIPT, "project": "{}"}),
    "POST /v1/jobs/of-nlp/clone": ("403 403 422 422 403 403", {"set": {"/project": "{}"}}),
    "POST /v1/tokens": ("422 422 422 422 403 403", {"projects": ["{}"]}),
    "POST /v1/projects": ("403 403 403 403 403 403", {"name": "{}"}),
}
VARYING = re.compile(r"lsp_\w+|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9-]{10}T[0-9:.]+Z")
"""Secrets, ids and times."""


def test_each_request_that_names_a_project_is_in_the_table(team: Team) -> None:
    described = team.api.http.get("/openapi.json").json()
    found = set()
    for path, verbs in described["paths"].items():
        for verb, operation in verbs.items():
            names = {each["name"] for each in operation.get("parameters", ())}
            body = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            schema = body.get("schema", {})
            schema = described["components"]["schemas"].get(schema.get("$ref", "")[21:], schema)
            if {"project", "projects"} & (names | schema.get("properties", {}).keys()):
                found.add(f"{verb.upper()} {path.replace('{project}', '{}')}")
    listed = {route.partition("?")[0] for route in NAMING}
    listed = {re.sub("members/.*", "members/{name}", route) for route in listed}
    # A clone has any field of a spec, and a new project its name.
    assert listed - found == {"POST /v1/jobs/of-nlp/clone", "POST /v1/projects"}
    assert found <= listed


@pytest.mark.parametrize("route", NAMING)
def test_a_foreign_project_is_answered_as_an_unknown_one(team: Team, route: str) -> None:
    expected, body = NAMING[route]
    for caller, status in zip(OUTSIDERS, expected.split(), strict=True):
        answers = []
        for name in ("vision", "unknown"):
            method, path = route.replace("{}", name).split()
            sent = json.loads(json.dumps(body).replace("{}", name))
            answers.append(team.ask(caller, method, path, json=sent))
        assert {str(each.status_code) for each in answers} == {status}, caller
        one, other = (VARYING.sub("", each.text) for each in answers)
        assert one.replace("vision", "unknown") == other, caller


def test_a_foreign_project_is_refused_in_the_words_for_an_unknown_one(team: Team) -> None:
    one, other = (team.call("member", "POST /v1/jobs", name) for name in ("vision", "unknown"))
    assert words_of(one, "vision") == words_of(other, "unknown")
    (error,) = one.json()["errors"]
    assert (error["pointer"], error["next_step"]) == ("/project", "your projects are nlp")
    # There are other people: a misspelled project of an admin is no new project.
    assert team.call("admin", "POST /v1/jobs", "unknown").status_code == 422


def test_lists_names_and_parts_of_ids_find_own_jobs_only(team: Team) -> None:
    filtered = ("search=of-", "owner=*&project=*", "filter=owner:* project:nlp,vision", "sort=name")
    for path in ("/v1/jobs", *(f"/v1/jobs?{each}" for each in filtered), "/v1/queue"):
        assert team.seen("member", path) == {"nlp"}
        assert team.seen("none", path) == set()
        assert team.seen("admin", path) == {"nlp", "vision"}
    team.job("vision", name="newest")
    assert team.ask("member", "GET", "/v1/jobs/last").json()["project"] == "nlp"
    for reference in ("of-vision", "newest", team.waiting["vision"][-12:]):
        assert team.ask("member", "GET", f"/v1/jobs/{reference}").status_code == 404
    every = team.ask("member", "GET", "/v1/jobs").json()
    assert every["total"] == len(every["items"])
    grouped = team.ask("member", "GET", "/v1/jobs?group=project").json()
    assert grouped["total"] == sum(grouped["totals"]["states"].values()) == len(every["items"])
    assert {group["value"] for group in grouped["totals"]["groups"]} == {"nlp"}


def test_two_readers_share_neither_tags_nor_cached_answers(team: Team) -> None:
    for path in ("/v1/jobs", "/v1/queue", "/v1/nodes"):
        tag = team.ask("admin", "GET", path).headers["ETag"]
        answer = team.ask("member", "GET", path, headers={"If-None-Match": tag})
        assert answer.status_code == 200
        assert team.waiting["vision"] not in answer.text


def test_a_device_of_a_foreign_job_is_held_and_has_no_name(team: Team) -> None:
    claim = scenes.run(team.api.database, project="vision")
    shown = {}
    for caller in ("member", "admin"):
        (node,) = team.ask(caller, "GET", "/v1/nodes").json()["items"]
        shown[caller] = [(each["job_id"], each["held"]) for each in node["devices"]]
    assert (None, True) in shown["member"]
    assert (claim.job_id, True) in shown["admin"]
    assert (None, False) in shown["member"]


def test_reasons_and_events_name_no_foreign_job(team: Team) -> None:
    own, foreign = team.job("nlp"), team.waiting["vision"]
    reason = f"behind job {foreign}, which needs the same devices"
    with team.api.database.jobs() as session:
        session.execute(
            update(JobRow)
            .where(JobRow.id == own)
            .values(
                wait_reason=reason,
                wait_code="behind",
                wait_facts={"job": foreign, "needs": 2},
                wait_position=1,
                version=JobRow.version + 1,
            )
        )
    shown = team.ask("member", "GET", f"/v1/jobs/{own}").json()
    assert shown["reason"] == f"behind {OTHER}, which needs the same devices"
    assert (shown["queue"]["code"], shown["queue"]["facts"]) == (
        "behind",
        {"job": None, "needs": 2},
    )
    assert team.ask("admin", "GET", f"/v1/jobs/{own}").json()["reason"] == reason
    followed = {
        caller: team.ask(caller, "GET", f"/v1/jobs/{own}/live") for caller in ("admin", "member")
    }
    assert followed["member"].json()["job"] == shown
    assert foreign in followed["admin"].text
    assert foreign not in followed["member"].text
    tag = followed["admin"].headers["ETag"]
    again = team.ask("member", "GET", f"/v1/jobs/{own}/live", headers={"If-None-Match": tag})
    assert (again.status_code, again.text) == (200, followed["member"].text)
    assert foreign not in team.ask("member", "GET", "/v1/queue").text


def test_only_the_jobs_of_a_reader_stay_in_a_text(team: Team) -> None:
    own, foreign = team.ended["nlp"], team.ended["vision"]
    text = "hardware (job {0}), behind job {0}, cloned from gpt ({0}); changed: steps"
    reader = access.Caller("member", _rights(team.api.database, "member")).rights
    within = reader.within(access.Right.JOB_READ)
    with team.api.database.read_jobs() as session:
        mentions = Mentions(session, [own, foreign], among=within)
    assert mentions.text(text.format(own)) == text.format(own)
    assert mentions.text(text.format(foreign)) == (
        f"hardware ({OTHER}), behind {OTHER}, cloned from {OTHER}; changed: steps"
    )
    assert [mentions.job_id(each) for each in (own, foreign, None)] == [own, None, None]


def _rights(database: Database, caller: str) -> Any:
    with database.read_jobs() as session:
        row = tokens.find(session, secret_of(caller))
        assert row is not None
        return tokens.rights(session, row)


def test_a_member_controls_own_jobs_and_a_lead_all(team: Team) -> None:
    headers = {"Authorization": f"Bearer {secret_of('member')}"}
    mine = team.api.submit({**SCRIPT, "project": "nlp"}, **headers).json()["id"]
    of_ada = team.job("nlp")
    refused = problem(team.ask("member", "POST", f"/v1/jobs/{of_ada}/cancel"), 403, "forbidden")
    assert "job.control in project nlp" in refused["detail"]
    assert "admin of the project" in refused["next_step"]
    assert team.ask("member", "POST", f"/v1/jobs/{mine}/cancel").status_code == 202
    assert team.ask("lead", "POST", f"/v1/jobs/{of_ada}/cancel").status_code == 202


def test_an_internal_project_is_read_by_each_person(team: Team) -> None:
    with team.api.database.jobs() as session:
        projects.ensure(session, "open", visibility=Visibility.INTERNAL)
        tokens.ensure(session, secret_of("later"), name="later", actor="later")
        session.execute(update(UserRow).where(UserRow.name == "later").values(role=None))
    job = team.job("open")
    assert team.ask("later", "GET", f"/v1/jobs/{job}").status_code == 200
    refused = problem(team.ask("later", "POST", f"/v1/jobs/{job}/cancel"), 403, "forbidden")
    assert "job.control in project open" in refused["detail"]


def test_a_repeated_submit_returns_no_job_that_may_not_be_read_any_more(team: Team) -> None:
    with team.api.database.jobs() as session:
        tokens.ensure(session, secret_of("leaver"), name="leaver", actor="leaver")
        session.execute(update(UserRow).where(UserRow.name == "leaver").values(role=None))
        for project in ("nlp", "vision"):
            projects.set_role(session, project, "leaver", ProjectRole.MEMBER)
    more = {"json": {**SCRIPT, "project": "vision"}, "headers": {"Idempotency-Key": "one"}}
    assert team.ask("leaver", "POST", "/v1/jobs", **more).status_code == 201
    assert team.ask("leaver", "POST", "/v1/jobs", **more).status_code == 200
    team.set_token("leaver", projects=["nlp"])
    team.api.http.app.state.parts.guard.forget()  # type: ignore[attr-defined]
    assert problem(team.ask("leaver", "POST", "/v1/jobs", **more), 409, "conflict")


def test_the_only_person_needs_no_project(api: Api, tmp_path: Path) -> None:
    assert api.submit({**SCRIPT, "project": "new"}).status_code == 201
    with api.database.jobs() as session:
        assert projects.get(session, "new")
        users.ensure(session, "bob")
    assert api.submit({**SCRIPT, "project": "newer"}).status_code == 422


def test_a_route_without_a_right_stops_the_program() -> None:
    app = FastAPI()

    @app.get("/v1/undeclared")
    def undeclared() -> None:
        """Return nothing."""

    with pytest.raises(RuntimeError, match="the route GET /v1/undeclared declares 0 rights"):
        access.check(app)
