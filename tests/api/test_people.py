"""People, projects and tokens over HTTP: changes, their limits, and what ends at once."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from sqlalchemy import select, update

from lockstep.domain.errors import LockstepError
from lockstep.domain.people_views import TokenNew, UserChange
from lockstep.domain.rights import ServiceRole, UserState
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.people_tables import ProjectRow, SessionRow, TokenRow, UserRow
from lockstep.storage.people import credentials, sessions, tokens, users
from tests.api.conftest import SCRIPT, Api, problem
from tests.storage.scenes import at_once

LONG = {"timeout_default_seconds": 9, "timeout_max_seconds": 8}


def send(api: Api, method: str, path: str, body: Any = None, *, token: str = "") -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return api.http.request(method, path, json=body, headers=headers)


def made(response: httpx2.Response, status: int = 201) -> dict[str, Any]:
    assert response.status_code == status, response.text
    found: dict[str, Any] = response.json()
    return found


def program(api: Api, name: str = "ci", **fields: Any) -> tuple[str, str]:
    """Add a program with a token; return the token's id and secret."""
    made(send(api, "POST", "/v1/users", {"name": name, "service": True}))
    found = made(send(api, "POST", "/v1/tokens", {"owner": name, **fields}))
    return found["token"]["id"], found["secret"]


def test_a_program_works_with_its_token_in_its_project_only(api: Api) -> None:
    for project in ("nlp", "vision"):
        made(send(api, "POST", "/v1/projects", {"name": project}))
    _, secret = program(api, projects=["nlp"], scopes=["jobs:read", "jobs:write"])
    for project in ("nlp", "vision"):
        made(send(api, "PUT", f"/v1/projects/{project}/members/ci", {"role": "member"}), 200)
    assert secret.startswith("lss_")
    made(send(api, "POST", "/v1/jobs", {**SCRIPT, "project": "nlp"}, token=secret))
    refused = send(api, "POST", "/v1/jobs", {**SCRIPT, "project": "vision"}, token=secret)
    assert problem(refused, 422, "invalid")["errors"][0]["pointer"] == "/project"
    seen = send(api, "GET", "/v1/projects", token=secret).json()["items"]
    assert [(each["name"], each["role"]) for each in seen] == [("nlp", "member")]


def test_a_token_has_the_rights_that_its_owner_has_now(api: Api) -> None:
    made(send(api, "POST", "/v1/projects", {"name": "nlp"}))
    _, secret = program(api)
    assert send(api, "GET", "/v1/projects/nlp", token=secret).status_code == 404
    made(send(api, "PUT", "/v1/projects/nlp/members/ci", {"role": "admin"}), 200)
    made(send(api, "PATCH", "/v1/projects/nlp", {"title": "x"}, token=secret), 200)
    made(send(api, "PUT", "/v1/projects/nlp/members/ci", {"role": "viewer"}), 200)
    assert send(api, "PATCH", "/v1/projects/nlp", {"title": "y"}, token=secret).status_code == 403
    assert send(api, "DELETE", "/v1/projects/nlp/members/ci").status_code == 204
    assert send(api, "GET", "/v1/projects/nlp", token=secret).status_code == 404


def test_a_deactivated_owner_and_a_revoked_token_are_refused_at_once(api: Api) -> None:
    token_id, secret = program(api)
    assert send(api, "GET", "/v1/nodes", token=secret).status_code == 200
    assert made(send(api, "PATCH", "/v1/users/ci", {"active": False}), 200)["state"] == "off"
    problem(send(api, "GET", "/v1/nodes", token=secret), 401, "unauthenticated")
    made(send(api, "PATCH", "/v1/users/ci", {"active": True}), 200)
    assert send(api, "GET", "/v1/nodes", token=secret).status_code == 200
    assert made(send(api, "DELETE", f"/v1/tokens/{token_id}"), 200)["revoked_at"] is not None
    problem(send(api, "GET", "/v1/nodes", token=secret), 401, "unauthenticated")


def test_a_rotated_token_has_two_secrets_until_the_overlap_ends(api: Api) -> None:
    token_id, old = program(api)
    new = made(send(api, "POST", f"/v1/tokens/{token_id}/rotate", {"overlap_hours": 1}), 200)
    for secret in (old, new["secret"]):
        assert send(api, "GET", "/v1/nodes", token=secret).status_code == 200
    with api.database.jobs() as session:
        session.execute(update(TokenRow).values(overlap_until=db_now() - 1))
    api.http.app.state.parts.guard.forget()  # type: ignore[attr-defined]  # set by the app
    problem(send(api, "GET", "/v1/nodes", token=old), 401, "unauthenticated")
    assert send(api, "GET", "/v1/nodes", token=new["secret"]).status_code == 200
    with api.database.read_jobs() as session:
        row = tokens.get(session, token_id)
        assert row.used_at is not None
        assert new["secret"] not in {row.sha256, row.overlap_sha256}


def test_a_rotated_token_lives_no_longer_than_at_first_and_than_366_days(api: Api) -> None:
    token_id, _ = program(api, days=300)
    for more, life in ((0, 300), (0, 300), (99, 366)):
        with api.database.jobs() as session:
            row = tokens.get(session, token_id)
            assert row.expires_at is not None
            row.created_at -= 299 * 86_400
            row.expires_at -= (299 - more) * 86_400
            tokens.rotate(session, row, overlap_hours=0)
            assert row.expires_at - now(session) == pytest.approx(life * 86_400, abs=5)


def test_a_secret_is_valid_for_its_whole_overlap(api: Api) -> None:
    token_id, old = program(api)
    path = f"/v1/tokens/{token_id}/rotate"
    both = at_once(*[lambda: send(api, "POST", path, {"overlap_hours": 1})] * 2)
    new, refused = sorted(both, key=lambda answer: answer.status_code)
    secret = made(new, 200)["secret"]
    assert "is valid until" in problem(refused, 409, "conflict")["detail"]
    for each in (old, secret):
        assert send(api, "GET", "/v1/nodes", token=each).status_code == 200
    made(send(api, "POST", path, {"overlap_hours": 0}), 200)
    for each in (old, secret):
        problem(send(api, "GET", "/v1/nodes", token=each), 401, "unauthenticated")


@pytest.mark.parametrize("hours", [0, 1])
def test_what_an_old_secret_has_started_ends_with_it(api: Api, hours: int) -> None:
    found = made(send(api, "POST", "/v1/tokens", {}))
    token_id, old = found["token"]["id"], found["secret"]

    def code(secret: str) -> str:
        return str(made(send(api, "POST", "/v1/sign-in-codes", token=secret))["code"])

    def sign_in(code: str) -> httpx2.Response:
        return send(api, "POST", "/v1/session/code", {"code": code})

    begun, unused = made(sign_in(code(old)), 200)["token"], code(old)
    path = f"/v1/tokens/{token_id}/rotate"
    new = made(send(api, "POST", path, {"overlap_hours": hours}), 200)["secret"]
    assert sign_in(unused).status_code == (200 if hours else 401)
    last = code(old if hours else new)
    later = made(sign_in(last), 200)["token"]
    assert send(api, "GET", "/v1/nodes", token=begun).status_code == (200 if hours else 401)
    with api.database.jobs() as session:
        rows = session.scalars(select(SessionRow)).all()
        ends = [row.expires_at - now(session) for row in rows]
    assert max(ends) == pytest.approx(3600 if hours else sessions.LIFE_SECONDS, abs=5)
    assert send(api, "GET", "/v1/nodes", token=later).status_code == 200


def test_a_secret_is_recognised_with_a_typing_error_and_in_a_text() -> None:
    for prefix in (credentials.USER, credentials.PROGRAM):
        secret = credentials.make(prefix)
        assert len(secret) == 40
        assert not credentials.is_mistyped(secret)
        assert credentials.masked(f"/v1/tokens/{secret}/x") == f"/v1/tokens/{prefix}***/x"
        for at in range(4, 40):
            changed = "a" if secret[at] != "a" else "b"
            assert credentials.is_mistyped(secret[:at] + changed + secret[at + 1 :])
    first = "lockstep_" + "x" * 40
    assert not credentials.is_mistyped(first)
    assert credentials.masked(first) == "lockstep_***"
    assert credentials.masked("/v1/jobs/lss_run/lockstep_job") == "/v1/jobs/lss_run/lockstep_job"


def test_the_last_admin_of_the_service_stays(api: Api) -> None:
    for changes in ({"role": None}, {"role": "operator"}, {"active": False}):
        refused = problem(send(api, "PATCH", "/v1/users/ada", changes), 409, "conflict")
        assert "the last active admin" in refused["detail"]
    with api.database.jobs() as session:
        users.ensure(session, "bob", role=ServiceRole.ADMIN)
    both = [
        lambda name=name: _demote(api, name)  # type: ignore[misc]
        for name in ("ada", "bob")
    ]
    assert sorted(at_once(*both)) == [False, True]


def _demote(api: Api, name: str) -> bool:
    try:
        with api.database.jobs() as session:
            users.change(session, name, UserChange.model_validate({"role": None}))
    except LockstepError as error:
        return "the last active admin" not in error.message
    return True


@pytest.mark.parametrize("name", ["ada", "lockstep", "admin"])
def test_a_name_is_never_used_again(api: Api, name: str) -> None:
    problem(send(api, "POST", "/v1/users", {"name": name}), 409, "conflict")


@pytest.mark.parametrize(
    ("method", "path", "body", "pointer"),
    [
        ("POST", "/v1/users", {"name": "Lea Weber"}, "/name"),
        ("POST", "/v1/users", {"name": "lea", "rôle": 1}, "/rôle"),
        ("POST", "/v1/users", {"name": "lea", "role": "root"}, "/role"),
        ("POST", "/v1/users", {"name": "lea", "title": "a\0b"}, "/title"),
        ("POST", "/v1/tokens", {"days": 367}, "/days"),
        ("POST", "/v1/tokens", {"days": True}, "/days"),
        ("POST", "/v1/tokens", {"scopes": ["jobs:all"]}, "/scopes/0"),
        ("POST", "/v1/tokens", {"scopes": []}, "/scopes"),
        ("POST", "/v1/tokens", {"owner": "bob"}, "/owner"),
        ("POST", "/v1/projects", {"name": "x", "visibility": "public"}, "/visibility"),
        ("POST", "/v1/projects", {"name": "x", "limits": {"queued_max": 0}}, "/limits/queued_max"),
        ("POST", "/v1/tokens", {"projects": ["default", "nlq"]}, "/projects/1"),
        ("POST", "/v1/projects", {"name": "x", "limits": LONG}, "/limits/timeout_default_seconds"),
        ("PATCH", "/v1/projects/default", {"limits": LONG}, "/limits/timeout_default_seconds"),
        ("PUT", "/v1/projects/default/members/ada", {"role": "owner"}, "/role"),
    ],
)
def test_bad_input_is_named_with_its_pointer(
    api: Api, method: str, path: str, body: dict[str, Any], pointer: str
) -> None:
    with api.database.jobs() as session:
        users.ensure(session, "bob")
    found = problem(send(api, method, path, body), 422, "invalid")
    assert [error["pointer"] for error in found["errors"]] == [pointer]


def test_an_archived_project_takes_no_jobs_and_stays_readable(api: Api) -> None:
    made(send(api, "POST", "/v1/projects", {"name": "nlp"}))
    job = made(send(api, "POST", "/v1/jobs", {**SCRIPT, "project": "nlp"}))["id"]
    archive = {"archived": True}
    refused = problem(send(api, "PATCH", "/v1/projects/nlp", archive), 409, "conflict")
    assert job in refused["detail"]
    assert api.http.post(f"/v1/jobs/{job}/cancel").status_code == 202
    assert made(send(api, "PATCH", "/v1/projects/nlp", archive), 200)["archived_at"] is not None
    found = problem(send(api, "POST", "/v1/jobs", {**SCRIPT, "project": "nlp"}), 422, "invalid")
    assert "is archived" in found["errors"][0]["message"]
    assert api.http.get(f"/v1/jobs/{job}").status_code == 200
    made(send(api, "PATCH", "/v1/projects/nlp", {"archived": False}), 200)
    made(send(api, "POST", "/v1/jobs", {**SCRIPT, "project": "nlp"}))


def test_an_admin_of_a_project_changes_no_limits(api: Api) -> None:
    made(send(api, "POST", "/v1/projects", {"name": "nlp"}))
    _, secret = program(api)
    made(send(api, "PUT", "/v1/projects/nlp/members/ci", {"role": "admin"}), 200)
    for body in ({"limits": {"queued_max": 9}}, {"weight": 9}):
        answer = send(api, "PATCH", "/v1/projects/nlp", body, token=secret)
        assert "project.limits" in problem(answer, 403, "forbidden")["detail"]
    found = send(api, "GET", "/v1/projects/nlp").json()
    assert (found["limits"]["queued_max"], found["weight"]) == (None, 1)


def test_an_invited_person_has_no_access(api: Api) -> None:
    assert made(send(api, "POST", "/v1/users", {"name": "lea"}))["state"] == "invited"
    with api.database.jobs() as session:
        tokens.ensure(session, "lockstep_token-of-an-invited-person", name="x", actor="lea")
        row = session.get(UserRow, "lea")
        assert row is not None
        assert row.state is UserState.INVITED
    denied = send(api, "GET", "/v1/nodes", token="lockstep_token-of-an-invited-person")
    assert "not active" in problem(denied, 401, "unauthenticated")["detail"]


def test_an_invited_person_sets_a_password_once_and_signs_in(api: Api) -> None:
    made(send(api, "POST", "/v1/users", {"name": "lea"}))
    codes = [made(send(api, "POST", "/v1/users/lea/invite"), 200)["code"] for _ in range(2)]
    body = {"password": "correct horse battery staple"}
    for code, status in ((codes[0], 401), (codes[1], 200), (codes[1], 401)):
        answer = send(api, "POST", "/v1/invitation", {"code": code, **body})
        assert answer.status_code == status, answer.text
        if status == 200:
            token = answer.json()["token"]
    assert send(api, "GET", "/v1/session", token=token).json()["name"] == "lea"
    signed_in = send(api, "POST", "/v1/session", {"name": "lea", **body})
    made(send(api, "PATCH", "/v1/users/lea", {"active": False}), 200)
    for session in (token, signed_in.json()["token"]):
        problem(send(api, "GET", "/v1/session", token=session), 401, "unauthenticated")
    problem(send(api, "POST", "/v1/users/lea/invite"), 409, "conflict")
    made(send(api, "PATCH", "/v1/users/lea", {"active": True}), 200)
    for session in (token, signed_in.json()["token"]):  # They stay ended.
        problem(send(api, "GET", "/v1/session", token=session), 401, "unauthenticated")
    old = made(send(api, "POST", "/v1/users/lea/invite"), 200)["code"]
    for active in (False, True):
        made(send(api, "PATCH", "/v1/users/lea", {"active": active}), 200)
    assert send(api, "POST", "/v1/invitation", {"code": old, **body}).status_code == 401
    program(api)
    problem(send(api, "POST", "/v1/users/ci/invite"), 409, "conflict")


def test_tokens_of_others_exist_for_an_admin_of_the_service_alone(api: Api) -> None:
    token_id, _ = program(api)
    _, other = program(api, "other")
    for method, path in (("DELETE", ""), ("POST", "/rotate")):
        body = {} if method == "POST" else None
        one = send(api, method, f"/v1/tokens/{token_id}{path}", body, token=other)
        unknown = send(api, method, f"/v1/tokens/unknown{path}", body, token=other)
        assert one.status_code == unknown.status_code == 404
        words = [each.json()["detail"] for each in (one, unknown)]
        assert words[0].replace(token_id, "unknown") == words[1]
    assert send(api, "GET", "/v1/tokens?owner=ci", token=other).status_code == 403
    assert [each["id"] for each in send(api, "GET", "/v1/tokens?owner=ci").json()["items"]] == [
        token_id
    ]


def test_an_admin_revokes_the_token_of_a_person_and_gets_no_secret_of_it(api: Api) -> None:
    with api.database.jobs() as session:
        users.ensure(session, "bob")
        row, secret = tokens.create(session, TokenNew(), owner=users.find(session, "bob"))
        path = f"/v1/tokens/{row.id}"
    refused = problem(send(api, "POST", f"{path}/rotate", {}), 403, "forbidden")
    assert "of bob, a person" in refused["detail"]
    made(send(api, "POST", f"{path}/rotate", {}, token=secret), 200)
    made(send(api, "DELETE", path), 200)


def test_a_token_of_some_projects_makes_no_other_token(api: Api) -> None:
    limited = made(send(api, "POST", "/v1/tokens", {"projects": ["default"]}))["secret"]
    for method, path, body in (
        ("POST", "/v1/tokens", {}),
        ("POST", "/v1/users", {"name": "eve"}),
        ("POST", "/v1/projects", {"name": "mine"}),
        ("POST", "/v1/nodes/none/drain", None),
    ):
        problem(send(api, method, path, body, token=limited), 403, "forbidden")
    assert send(api, "GET", "/v1/users", token=limited).status_code == 200


def test_a_use_is_stored_once_a_minute(api: Api) -> None:
    token_id, _ = program(api)
    written = []
    with api.database.jobs() as session:
        for _ in range(3):
            tokens.note_use(session, token_id)
            row = tokens.get(session, token_id)
            session.refresh(row)
            written.append(row.used_at)
    assert len(set(written)) == 1
    assert written[0] is not None


@pytest.mark.parametrize("path", ["/v1/users", "/v1/projects"])
def test_of_two_who_add_one_name_at_once_one_is_refused(api: Api, path: str) -> None:
    for round_ in range(5):
        adds = [lambda: send(api, "POST", path, {"name": f"x{round_}"}).status_code] * 4  # noqa: B023
        assert sorted(at_once(*adds)) == [201, 409, 409, 409]


def test_a_highest_time_limit_is_not_below_the_default_one(api: Api) -> None:
    for seconds, status in ((9, 200), (8, 422)):
        name = "timeout_default_seconds" if status == 200 else "timeout_max_seconds"
        answer = send(api, "PATCH", "/v1/projects/default", {"limits": {name: seconds}})
        assert answer.status_code == status, answer.text
    assert answer.json()["errors"][0]["pointer"] == "/limits/timeout_max_seconds"
    assert send(api, "GET", "/v1/projects/default").json()["limits"][name] is None
    made(send(api, "PATCH", "/v1/projects/default", {"title": "x"}), 200)


def test_two_who_change_different_limits_at_once_lose_none(api: Api) -> None:
    made(send(api, "POST", "/v1/projects", {"name": "nlp", "limits": {"priority_max": 9}}))
    bodies = [{"limits": {"queued_max": 7}}, {"limits": {"gpus_per_job_max": 3}}]
    changes = [
        lambda body=body: send(api, "PATCH", "/v1/projects/nlp", body).status_code  # type: ignore[misc]
        for body in bodies
    ]
    assert at_once(*changes) == [200, 200]
    limits = send(api, "GET", "/v1/projects/nlp").json()["limits"]
    assert (limits["queued_max"], limits["gpus_per_job_max"], limits["priority_max"]) == (7, 3, 9)
    made(send(api, "PATCH", "/v1/projects/nlp", {"limits": {"priority_max": None}}), 200)
    assert send(api, "GET", "/v1/projects/nlp").json()["limits"]["priority_max"] is None


def test_an_archived_project_has_no_job_that_was_submitted_at_once(api: Api) -> None:
    for round_ in range(8):
        name = f"p{round_}"
        made(send(api, "POST", "/v1/projects", {"name": name}))
        submitted, archived = at_once(
            lambda: send(api, "POST", "/v1/jobs", {**SCRIPT, "project": name}).status_code,  # noqa: B023
            lambda: send(api, "PATCH", f"/v1/projects/{name}", {"archived": True}).status_code,  # noqa: B023
        )
        assert (submitted, archived) in {(201, 409), (422, 200)}


def test_a_consequence_of_a_newer_version_is_shown_as_it_is(api: Api) -> None:
    made(send(api, "POST", "/v1/projects", {"name": "nlp", "limits": {"budget_gpu_hours": 10}}))
    with api.database.jobs() as session:
        session.execute(update(ProjectRow).values(budget_action="pause"))
    shown = made(send(api, "PATCH", "/v1/projects/nlp", {"title": "x"}), 200)
    assert shown["limits"]["budget_action"] == "pause"
    wrong = send(api, "PATCH", "/v1/projects/nlp", {"limits": {"budget_action": "holds"}})
    (error,) = problem(wrong, 422, "invalid")["errors"]
    assert error["pointer"] == "/limits/budget_action"
    assert error["message"] == "expected warn or hold, got 'holds'"
    assert error["next_step"] == "did you mean hold?"


def test_a_job_that_names_no_project_goes_to_the_only_one_of_its_sender(api: Api) -> None:
    _, secret = program(api)

    def member(project: str) -> None:
        made(send(api, "POST", "/v1/projects", {"name": project, "visibility": "internal"}))
        made(send(api, "PUT", f"/v1/projects/{project}/members/ci", {"role": "member"}), 200)

    def project_of(path: str = "/v1/jobs", body: Any = SCRIPT, **headers: str) -> tuple[Any, ...]:
        headers |= {"Authorization": f"Bearer {secret}"}
        found = api.http.post(path, json=body, headers=headers).json()
        if errors := found.get("errors"):
            return errors[0]["pointer"], errors[0]["message"], errors[0]["next_step"]
        return (found.get("project") or found["spec"]["project"],)

    member("nlp")
    same = {"Idempotency-Key": "one"}
    assert project_of(**same) == project_of("/v1/jobs/plan") == ("nlp",)
    # It is readable, and takes no jobs of this sender.
    made(send(api, "PATCH", "/v1/projects/default", {"visibility": "internal"}), 200)
    assert project_of() == ("nlp",)
    member("vision")
    which = (
        "/project",
        "no project is given, and you have several",
        "write one of them: nlp, vision",
    )
    assert project_of() == project_of("/v1/jobs/plan") == which
    assert project_of(**same) == project_of("/v1/jobs/last/clone", {}) == ("nlp",)
    made(send(api, "PATCH", "/v1/projects/vision", {"archived": True}), 200)
    assert project_of() == ("nlp",)
    made(send(api, "PUT", "/v1/projects/default/members/ci", {"role": "member"}), 200)
    assert project_of() == ("default",)
