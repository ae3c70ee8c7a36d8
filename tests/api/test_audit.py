"""Rows of the audit: one for each change and each refusal, none for what changed nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy import select, update

from lockstep import api as api_package
from lockstep.api import access, changes
from lockstep.api.app import routed
from lockstep.api.auth.bearer import ensure_token
from lockstep.api.changes import REFUSALS_MAX, REFUSALS_SECONDS, Refusals
from lockstep.domain import limits
from lockstep.domain.audit import Action
from lockstep.domain.rights import EVERY, ProjectRole, Right, forbidden
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import AuditRow, TokenRow, UserRow
from lockstep.storage.db.tables import NodeRow
from lockstep.storage.db.whole import METADATA
from lockstep.storage.people import audit, projects, tokens, users
from lockstep.storage.people.audit import Sender
from tests.api.conftest import SCRIPT, Api, problem
from tests.storage import scenes

BOB = {"Authorization": "Bearer lockstep_a-token-of-bob-for-tests"}


def rows(database: Database) -> list[AuditRow]:
    with database.read_jobs() as session:
        return list(reversed(audit.page(session, among=EVERY, limit=100)[0]))


def everything(database: Database) -> dict[str, Any]:
    with database.read_jobs() as session:
        tables = METADATA["jobs"].tables.values()
        return {
            table.name: session.execute(
                select(*(each for each in table.columns if each.name != "used_at")).order_by(
                    *table.primary_key.columns
                )
            ).all()
            for table in tables
        }


def ended(api: Api) -> str:
    job_id = api.job_id()
    api.http.post(f"/v1/jobs/{job_id}/cancel")
    return job_id


def node(api: Api) -> str:
    api.register("n1")
    return "n1"


def lost_node(api: Api) -> str:
    name = node(api)
    with api.database.jobs() as session:
        session.execute(update(NodeRow).values(seen_at=0.0))
    return name


def paused(api: Api) -> str:
    job_id = api.job_id()
    assert api.http.post(f"/v1/jobs/{job_id}/pause").status_code == 202
    return job_id


def running(api: Api) -> str:
    return scenes.run(api.database).job_id


def user(api: Api) -> str:
    with api.database.jobs() as session:
        users.ensure(session, "lea")
    return "lea"


def project(api: Api) -> str:
    with api.database.jobs() as session:
        projects.ensure(session, "nlp")
    return "nlp"


def member(api: Api) -> str:
    found = user(api)
    with api.database.jobs() as session:
        projects.ensure(session, "nlp")
        projects.set_role(session, "nlp", found, ProjectRole.VIEWER)
    return found


def token(api: Api) -> str:
    found: str = api.http.post("/v1/tokens", json={}).json()["token"]["id"]
    return found


ROLE = {"role": "member"}
SIGN_IN = {
    "POST /v1/session",
    "POST /v1/session/code",
    "POST /v1/sign-in-codes",
    "POST /v1/invitation",
    "POST /v1/session/password",
    "DELETE /v1/session",
    "DELETE /v1/sessions/{}",
}
REQUESTS: dict[str, tuple[Action, Callable[[Api], str], Any]] = {
    # route: the action, what makes the target, the body
    "POST /v1/jobs": (Action.JOB_SUBMIT, lambda _: "", SCRIPT),
    "POST /v1/jobs/{}/clone": (Action.JOB_CLONE, Api.job_id, {}),
    "POST /v1/jobs/{}/cancel": (Action.JOB_CANCEL, Api.job_id, None),
    "POST /v1/jobs/{}/pause": (Action.JOB_PAUSE, Api.job_id, None),
    "POST /v1/jobs/{}/resume": (Action.JOB_RESUME, paused, None),
    "POST /v1/jobs/{}/requeue": (Action.JOB_REQUEUE, running, None),
    "PATCH /v1/jobs/{}": (Action.JOB_MARK, Api.job_id, {"note": "x"}),
    "DELETE /v1/jobs/{}": (Action.JOB_DELETE, ended, None),
    "DELETE /v1/jobs/{}/files": (Action.JOB_FILES_DELETE, ended, None),
    "POST /v1/nodes/{}/drain": (Action.NODE_DRAIN, node, None),
    "POST /v1/nodes/{}/resume": (Action.NODE_RESUME, node, None),
    "DELETE /v1/nodes/{}": (Action.NODE_REMOVE, lost_node, None),
    "POST /v1/users": (Action.USER_ADD, lambda _: "lea", {"name": "lea"}),
    "PATCH /v1/users/{}": (Action.USER_CHANGE, user, {"title": "Lea"}),
    "POST /v1/users/{}/invite": (Action.USER_INVITE, user, None),
    "POST /v1/projects": (Action.PROJECT_ADD, lambda _: "nlp", {"name": "nlp"}),
    "PATCH /v1/projects/{}": (Action.PROJECT_CHANGE, project, {"title": "x"}),
    "PUT /v1/projects/nlp/members/{}": (Action.MEMBER_SET, member, ROLE),
    "DELETE /v1/projects/nlp/members/{}": (Action.MEMBER_REMOVE, member, None),
    "POST /v1/tokens": (Action.TOKEN_CREATE, lambda _: "", {}),
    "POST /v1/tokens/{}/rotate": (Action.TOKEN_ROTATE, token, {}),
    "DELETE /v1/tokens/{}": (Action.TOKEN_REVOKE, token, None),
}
"""A request of each route that changes rows."""
NO_CHANGE = {"POST /v1/jobs/plan", "PUT /v1/uploads/{}"}
"""The second writes a file, and no row."""


def send(api: Api, route: str, target: str) -> httpx2.Response:
    method, path = route.split()
    headers = {"X-Request-Id": "a-request"}
    params = {"match": "out/"} if path.endswith("/files") else None
    return api.http.request(
        method, path.format(target), json=REQUESTS[route][2], headers=headers, params=params
    )


def test_each_route_that_changes_something_is_tested_here() -> None:
    found = {
        re.sub(r"{\w+}", "{}", route.replace("/{project}/members", "/nlp/members"))
        for route, _ in access.routes(routed())
    }
    changing = {route for route in found if not route.startswith("GET ")}
    assert changing - NO_CHANGE - SIGN_IN == REQUESTS.keys()


def test_a_sign_in_and_what_follows_have_their_rows(api: Api) -> None:
    with api.database.jobs() as session:
        users.ensure(session, "lea")
        code = users.invite(session, "lea")
    secret, other = "correct horse battery staple", "another horse battery staple"
    accepted = api.http.post("/v1/invitation", json={"code": code, "password": secret}).json()
    own = {"Authorization": f"Bearer {accepted['token']}"}
    body = {"old": secret, "new": other}
    assert api.http.post("/v1/session/password", json=body, headers=own).is_success
    assert api.http.post("/v1/session", json={"name": "lea", "password": other}).is_success
    handed = api.http.post("/v1/sign-in-codes", headers=own).json()["code"]
    assert api.http.post("/v1/session/code", json={"code": handed}).is_success
    for each in api.http.get("/v1/sessions", headers=own).json()["items"]:
        if not each["is_own"]:
            assert api.http.delete(f"/v1/sessions/{each['id']}", headers=own).is_success
    assert api.http.delete("/v1/session", headers=own).is_success
    found = rows(api.database)
    assert [row.action for row in found] == [
        "invitation.accept",
        "password.change",
        "session.start",
        "sign_in_code.create",
        "session.start",
        *["session.end"] * 3,
    ]
    assert {(row.actor, row.outcome) for row in found} == {("lea", "ok")}
    assert not any(
        text in str(row.__dict__) for row in found for text in (secret, other, code, handed)
    )


@pytest.mark.parametrize("route", REQUESTS)
def test_a_change_has_one_row(api: Api, route: str) -> None:
    action, make, _ = REQUESTS[route]
    target = make(api)
    before = len(rows(api.database))
    answer = send(api, route, target)
    assert answer.is_success, answer.text
    (row,) = rows(api.database)[before:]
    if action in {Action.JOB_SUBMIT, Action.JOB_CLONE}:
        target = answer.json()["id"]
    if action is Action.TOKEN_CREATE:
        target = answer.json()["token"]["id"]
    assert row.target == target
    assert (row.actor, row.action, row.outcome) == ("ada", action, "ok")
    noun = route.split("/")[2]
    assert row.project == {"jobs": "default", "projects": "nlp"}.get(noun)
    assert (row.address, row.request_id) == ("testclient", "a-request")
    with api.database.read_jobs() as session:
        assert row.token == session.scalars(select(TokenRow.id).order_by(TokenRow.id)).first()


@pytest.mark.parametrize("route", REQUESTS)
def test_a_change_without_its_row_is_rolled_back(
    api: Api, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = REQUESTS[route][1](api)
    before = everything(api.database)

    def fail(*_: object, **_values: object) -> None:
        raise RuntimeError("no row")

    monkeypatch.setattr(audit, "add", fail)
    problem(send(api, route, target), 500, "internal")
    assert everything(api.database) == before


def test_a_change_that_fails_has_no_row(api: Api) -> None:
    for response in (api.http.post("/v1/jobs/last/cancel"), api.http.post("/v1/nodes/n/drain")):
        problem(response, 404, "not_found")
    api.register()
    problem(api.submit({**SCRIPT, "resources": {"gpus": 9}}), 422, "invalid")
    assert rows(api.database) == []


def test_a_change_without_a_target_is_a_defect(database: Database) -> None:
    with (
        pytest.raises(RuntimeError, match=r"node.drain names no target"),
        changes.of(database, Sender("ada"), Action.NODE_DRAIN) as change,
    ):
        projects.ensure(change.session, "nlp")
    with database.read_jobs() as session:
        assert projects.get(session, "nlp") is None


def test_a_repeated_submit_has_no_row(api: Api) -> None:
    for _ in range(2):
        assert api.submit(SCRIPT, **{"Idempotency-Key": "one"}).is_success
    (row,) = rows(api.database)
    assert row.detail == {"name": "first"}


def test_a_row_has_the_state_before_and_after(api: Api) -> None:
    api.http.post(f"/v1/nodes/{node(api)}/drain?reason=fan")
    (row,) = rows(api.database)
    assert row.detail == {
        "before": {"draining": False, "drain_reason": None, "quarantine": None},
        "after": {"draining": True, "drain_reason": "fan", "quarantine": None},
    }


@pytest.mark.parametrize(
    ("route", "body", "before"),
    [
        ("PATCH /v1/projects/nlp", {"title": "x"}, {"title": ""}),
        ("PATCH /v1/projects/nlp", {"archived": True}, {"archived": False}),
        ("PATCH /v1/projects/nlp", {"limits": {"gpus_max": 3}}, {"limits": {"gpus_max": None}}),
        ("PUT /v1/projects/nlp/members/lea", {"role": "admin"}, {"role": "viewer"}),
        ("DELETE /v1/projects/nlp/members/lea", None, {"role": "viewer"}),
        ("PATCH /v1/users/lea", {"role": "operator"}, {"role": None}),
        ("PATCH /v1/users/lea", {"active": False}, {"active": True}),
    ],
)
def test_people_and_projects_have_their_state_before(
    api: Api, route: str, body: Any, before: Any
) -> None:
    member(api)
    method, path = route.split()
    assert api.http.request(method, path, json=body).is_success
    (row,) = rows(api.database)
    assert row.detail == {"before": before, "after": body or {"role": None}}


def test_a_new_token_of_the_installation_has_a_row(database: Database, tmp_path: Path) -> None:
    for _ in range(2):
        ensure_token(tmp_path / "token", database)
    (row,) = rows(database)
    assert (row.actor, row.action, row.request_id) == ("lockstep", "token.ensure", None)


def test_nothing_else_in_the_api_begins_a_write_transaction() -> None:
    folder = Path(api_package.__file__).parent
    found = {
        str(path.relative_to(folder))
        for path in folder.rglob("*.py")
        if re.search(r"(?<!\w)(database|_database)\.jobs\b", path.read_text())
    }
    assert found == {"changes.py"}


def viewer(api: Api) -> str:
    """Make bob a viewer of nlp; return a job there."""
    with api.database.jobs() as session:
        tokens.ensure(session, BOB["Authorization"].split()[1], name="bob", actor="bob")
        session.execute(update(UserRow).where(UserRow.name == "bob").values(role=None))
        for project, role in (("nlp", ProjectRole.VIEWER), ("own", ProjectRole.MEMBER)):
            projects.ensure(session, project)
            projects.set_role(session, project, "bob", role)
    return api.job_id({**SCRIPT, "project": "nlp"})


def test_a_missing_right_has_a_row_and_nothing_else(api: Api) -> None:
    job_id = viewer(api)
    before = everything(api.database)
    asked = [f"/v1/jobs/{job_id}/cancel", "/v1/nodes/n1/drain", "/v1/jobs"]
    for path in asked:
        document = {**SCRIPT, "project": "nlp"} if path == "/v1/jobs" else None
        problem(api.http.post(path, headers=BOB, json=document), 403, "forbidden")
    after = everything(api.database)
    written = [row._mapping for row in after.pop("audit")[len(before.pop("audit")) :]]
    assert after == before
    assert [(row["action"], row["project"]) for row in written] == [
        ("job.control", "nlp"),
        ("node.write", None),
        ("job.submit", "nlp"),
    ]
    assert [row["target"] for row in written] == [f"POST {path}" for path in asked]
    assert {(row["actor"], row["outcome"]) for row in written} == {("bob", "denied")}
    problem(api.http.post("/v1/jobs/unknown/cancel", headers=BOB), 404, "not_found")
    unknown = {"Authorization": "Bearer lockstep_not-a-token-of-this-service"}
    problem(api.http.post("/v1/jobs/unknown/cancel", headers=unknown), 401, "unauthenticated")
    assert len(rows(api.database)) == 1 + len(asked)


def test_refusals_of_a_caller_have_few_rows_a_minute(database: Database) -> None:
    at = [0.0]
    refusals = Refusals(database, clock=lambda: at[0])

    def refuse(actor: str) -> int:
        refusals.note(Sender(actor), forbidden(actor, Right.NODE_WRITE), "POST /")
        return len(rows(database))

    assert [refuse("bob") for _ in range(REFUSALS_MAX + 2)][-3:] == [REFUSALS_MAX] * 3
    assert refuse("cy") == REFUSALS_MAX + 1
    at[0] = REFUSALS_SECONDS - 1
    assert refuse("bob") == REFUSALS_MAX + 1
    at[0] = REFUSALS_SECONDS
    assert refuse("bob") == REFUSALS_MAX + 2


def test_an_admin_of_a_project_reads_its_rows_and_one_of_the_service_all(api: Api) -> None:
    viewer(api)
    with api.database.jobs() as session:
        projects.set_role(session, "own", "bob", ProjectRole.ADMIN)
    problem(api.http.post("/v1/nodes/n1/drain", headers=BOB), 403, "forbidden")
    mine = api.http.post("/v1/jobs", headers=BOB, json={**SCRIPT, "project": "own"}).json()["id"]

    def seen(query: str = "", headers: dict[str, str] | None = None) -> list[tuple[str, str]]:
        answers = [
            api.http.get(f"/v1/audit{way}{query}", headers=headers) for way in ("", "/export")
        ]
        lines = [json.loads(line) for line in answers[1].text.splitlines()]
        assert lines == answers[0].json()["items"]
        return [(row["action"], row["outcome"]) for row in lines]

    of_bob = ("job.submit", "ok")
    assert seen() == [of_bob, ("node.write", "denied"), ("job.submit", "ok")]
    assert seen(headers=BOB) == [of_bob]
    assert seen("?project=nlp", BOB) == []
    assert seen("?actor=bob") == [of_bob, ("node.write", "denied")]
    assert seen("?action=node.write&actor=bob") == [("node.write", "denied")]
    (row,) = api.http.get("/v1/audit?project=own").json()["items"]
    assert (row["target"], row["actor"], row["detail"]) == (mine, "bob", {"name": "first"})


def test_the_audit_is_read_in_pages(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [api.job_id() for _ in range(5)]
    first = api.http.get("/v1/audit?limit=3").json()
    second = api.http.get(f"/v1/audit?limit=3&cursor={first['next_cursor']}").json()
    assert second["next_cursor"] is None
    assert [row["target"] for row in first["items"] + second["items"]] == jobs[::-1]
    monkeypatch.setattr(limits, "PAGE_SIZE_MAX", 2)
    export = api.http.get("/v1/audit/export")
    assert export.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert [json.loads(line)["target"] for line in export.text.splitlines()] == jobs[::-1]
