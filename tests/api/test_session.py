"""Sign-in over HTTP: sessions, the password, invitations, and attacks on them."""

from __future__ import annotations

import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher
from sqlalchemy import func, select, update

from lockstep.api.auth import passwords
from lockstep.api.auth.bearer import Guard
from lockstep.api.parts import AppState
from lockstep.domain.errors import LockstepError
from lockstep.domain.rights import ProjectRole, UserState
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.people_tables import SessionRow, SignInCodeRow, TokenRow, UserRow
from lockstep.storage.people import credentials, projects, sessions, users
from tests.api.conftest import TOKEN, Api, problem
from tests.harness.clients import Client

PASSWORD = "correct horse battery"


def invited(api: Api, name: str = "bob", **more: Any) -> str:
    with api.database.jobs() as session:
        users.ensure(session, name, state=UserState.INVITED)
        return users.invite(session, name, **more)


def accept(api: Api, code: str, password: str = PASSWORD) -> httpx2.Response:
    return api.http.post("/v1/invitation", json={"code": code, "password": password})


def sign_in(
    api: Api, name: str = "bob", password: str = PASSWORD, address: str = "10.0.0.1"
) -> httpx2.Response:
    http = Client(api.http.app, client=(address, 1))
    return http.post("/v1/session", json={"name": name, "password": password})


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def status_of(api: Api, token: str) -> int:
    return api.http.get("/v1/session", headers=bearer(token)).status_code


@pytest.fixture
def bob(api: Api) -> str:
    """Return the token of bob's first session, a member of nlp."""
    answer = accept(api, invited(api))
    assert answer.headers["Cache-Control"] == "no-store"
    with api.database.jobs() as session:
        projects.ensure(session, "nlp")
        projects.set_role(session, "nlp", "bob", ProjectRole.MEMBER)
    token: str = answer.json()["token"]
    return token


def test_a_person_signs_in_reads_the_account_and_signs_out(api: Api, bob: str) -> None:
    answer = sign_in(api).json()
    assert answer["name"] == "bob"
    assert answer["token"].startswith("lst_")
    found = api.http.get("/v1/session", headers=bearer(answer["token"])).json()
    assert found["expires_at"] == answer["expires_at"]
    assert {name: found[name] for name in ("name", "role", "projects", "credential")} == {
        "name": "bob",
        "role": None,
        "projects": {"nlp": "member"},
        "credential": "session",
    }
    out = api.http.delete("/v1/session", headers=bearer(answer["token"]))
    assert out.status_code == 204
    assert [status_of(api, token) for token in (answer["token"], bob)] == [401, 200]


def test_a_caller_with_a_token_reads_its_scopes(api: Api) -> None:
    found = api.http.get("/v1/session").json()
    assert (found["name"], found["role"], found["credential"]) == ("ada", "admin", "token")
    assert (found["scopes"], found["expires_at"]) == (None, None)
    problem(api.http.delete("/v1/session"), 409, "conflict")


def test_each_answer_to_a_token_has_its_end(api: Api, bob: str) -> None:
    made = api.http.post("/v1/tokens", json={"days": 3}).json()
    for path in ("/v1/session", "/v1/jobs/unknown"):
        answer = api.http.get(path, headers=bearer(made["secret"]))
        assert answer.headers["Lockstep-Token-Expires"][:19] == made["token"]["expires_at"][:19]
    # Neither a token without an end nor a session that is renewed by a sign-in.
    for headers in ({}, bearer(bob)):
        found = api.http.get("/v1/session", headers=headers)
        assert "Lockstep-Token-Expires" not in found.headers


def test_the_account_names_the_rights_and_if_there_are_other_people(api: Api, bob: str) -> None:
    def account(token: str | None = None) -> dict[str, Any]:
        headers = None if token is None else bearer(token)
        found: dict[str, Any] = api.http.get("/v1/session", headers=headers).json()
        return found

    found = account(bob)
    assert (found["title"], found["has_password"], found["is_alone"]) == ("", True, False)
    assert found["rights"] == [
        *("job.read", "job.submit", "job.control_own", "checkpoint.read"),
        *("node.read", "user.read", "token.write"),
    ]
    # Each person reads default.
    in_projects = {"nlp": found["rights"][:4], "default": ["job.read"]}
    assert (found["rights_everywhere"], found["rights_in"]) == ([], in_projects)
    assert {"audit.read", "user.write", "token.write"} < set(account()["rights"])
    assert {"job.submit", "audit.read"} < set(account()["rights_everywhere"])
    # A right that belongs to no project is in none.
    assert "user.write" not in account()["rights_everywhere"]
    for change in ({"title": "Bob B.", "active": True}, {"active": False}):
        assert api.http.patch("/v1/users/bob", json=change).status_code == 200
        assert account()["is_alone"] is (change["active"] is False)
    assert account()["has_password"] is False
    # A program and a person who has not signed in yet are no company.
    api.http.post("/v1/users", json={"name": "ci", "service": True})
    api.http.post("/v1/users", json={"name": "lea", "title": "Lea"})
    assert account()["is_alone"] is True


def test_a_person_lists_and_ends_own_sessions_without_secrets(api: Api, bob: str) -> None:
    other = sign_in(api).json()["token"]
    listed = api.http.get("/v1/sessions", headers=bearer(bob))
    mine = {row["is_own"]: row for row in listed.json()["items"]}
    assert mine[False]["address"] == "10.0.0.1"
    assert mine[False]["id"] == credentials.digest(other)[:16]
    assert mine[True]["id"] == credentials.digest(bob)[:16]
    for secret in (bob, other, credentials.digest(bob), credentials.digest(other)):
        assert secret not in listed.text
    # Of another person, the session does not exist.
    path = f"/v1/sessions/{mine[False]['id']}"
    assert api.http.delete(path).status_code == 404
    assert api.http.delete(path, headers=bearer(bob)).status_code == 204
    assert api.http.delete(path, headers=bearer(bob)).status_code == 404
    assert [status_of(api, token) for token in (other, bob)] == [401, 200]


def test_a_planted_and_an_old_session_token_are_refused(api: Api, bob: str) -> None:
    planted = credentials.make(credentials.SESSION)
    assert status_of(api, planted) == 401
    answer = api.http.post(
        "/v1/session", json={"name": "bob", "password": PASSWORD}, headers=bearer(planted)
    )
    assert answer.json()["token"] != planted
    assert status_of(api, planted) == 401
    assert api.http.delete("/v1/session", headers=bearer(bob)).status_code == 204
    assert status_of(api, bob) == 401


def with_code(api: Api, code: str) -> httpx2.Response:
    return api.http.post("/v1/session/code", json={"code": code})


def test_a_code_starts_one_session_with_the_rights_of_its_token(api: Api) -> None:
    with api.database.jobs() as writing:
        projects.ensure(writing, "nlp")
    narrow = {"scopes": ["jobs:read"], "projects": ["nlp"]}
    made = api.http.post("/v1/tokens", json=narrow).json()
    answer = api.http.post("/v1/sign-in-codes", headers=bearer(made["secret"]))
    assert (answer.status_code, answer.headers["Cache-Control"]) == (201, "no-store")
    code = answer.json()["code"]
    session = with_code(api, f" {code} ").json()["token"]
    problem(with_code(api, code), 401, "unauthenticated")
    found = api.http.get("/v1/session", headers=bearer(session)).json()
    assert (found["name"], found["credential"]) == ("ada", "session")
    assert (found["scopes"], found["projects"]) == (["jobs:read"], {})
    # Neither is the way to more rights.
    assert api.http.post("/v1/tokens", json={}, headers=bearer(session)).status_code == 403
    again = api.http.post("/v1/sign-in-codes", headers=bearer(session)).json()["code"]
    second = with_code(api, again).json()["token"]
    assert api.http.get("/v1/users", headers=bearer(second)).status_code == 200
    assert (
        api.http.post("/v1/users", json={"name": "eve"}, headers=bearer(second)).status_code == 403
    )
    # Both end with the token.
    assert api.http.delete(f"/v1/tokens/{made['token']['id']}").is_success
    assert [status_of(api, token) for token in (session, second)] == [401, 401]


def test_a_code_of_a_session_gives_all_rights_of_its_person(api: Api, bob: str) -> None:
    code = api.http.post("/v1/sign-in-codes", headers=bearer(bob)).json()["code"]
    token = with_code(api, code).json()["token"]
    found = api.http.get("/v1/session", headers=bearer(token)).json()
    assert (found["name"], found["scopes"]) == ("bob", None)


@pytest.mark.parametrize("end", ["time", "off", "off and on", "password", "other form"])
def test_a_code_that_is_over_starts_no_session(api: Api, bob: str, end: str) -> None:
    code = api.http.post("/v1/sign-in-codes", headers=bearer(bob)).json()["code"]
    with api.database.jobs() as session:
        if end == "time":
            session.execute(update(SignInCodeRow).values(expires_at=db_now()))
    for active in {"off": [False], "off and on": [False, True]}.get(end, []):
        assert api.http.patch("/v1/users/bob", json={"active": active}).is_success
    if end == "password":
        body = {"old": PASSWORD, "new": "another " + PASSWORD}
        assert api.http.post("/v1/session/password", json=body, headers=bearer(bob)).is_success
    text = code.upper() if end == "other form" else code
    refusal = problem(with_code(api, text), 401, "unauthenticated")
    assert refusal["next_step"] == "run lockstep open again"


def test_of_many_requests_with_one_code_one_gets_a_session(api: Api, bob: str) -> None:
    code = api.http.post("/v1/sign-in-codes", headers=bearer(bob)).json()["code"]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: with_code(api, code).status_code, range(8)))
    assert answers.count(200) == 1
    assert set(answers) <= {200, 401, 429}


@pytest.mark.parametrize("idle", [True, False])
def test_a_session_ends_by_time_alone(api: Api, bob: str, idle: bool) -> None:
    over = {"seen_at": db_now() - 12 * 3600} if idle else {"expires_at": db_now()}
    with api.database.jobs() as session:
        session.execute(update(SessionRow).values(**over))
    assert status_of(api, bob) == 401


def test_deactivation_ends_a_session_within_seconds_in_each_process(api: Api, bob: str) -> None:
    now = [0.0]
    elsewhere = Guard(api.database, required=True, clock=lambda: now[0])
    assert elsewhere.look_up(f"Bearer {bob}").name == "bob"
    with api.database.jobs() as session:
        session.execute(update(UserRow).where(UserRow.name == "bob").values(state=UserState.OFF))
    now[0] = 10.0
    assert elsewhere.remembered(f"Bearer {bob}") is None
    with pytest.raises(LockstepError, match="is of a session that is over"):
        elsewhere.look_up(f"Bearer {bob}")
    problem(sign_in(api), 401, "unauthenticated")


def test_a_remembered_caller_is_forgotten_at_the_end_of_its_token(api: Api) -> None:
    moment = [0.0]
    guard = Guard(api.database, required=True, clock=lambda: moment[0])
    secret = api.http.post("/v1/tokens", json={"days": 1}).json()["secret"]
    with api.database.jobs() as session:
        session.execute(update(TokenRow).values(expires_at=db_now() + 3))
    assert guard.look_up(f"Bearer {secret}").name == "ada"
    moment[0] = 2.0
    assert guard.remembered(f"Bearer {secret}") is not None
    moment[0] = 3.0
    assert guard.remembered(f"Bearer {secret}") is None


def test_the_last_request_of_a_session_is_noted(api: Api, bob: str) -> None:
    with api.database.jobs() as session:
        session.execute(update(SessionRow).values(seen_at=db_now() - 3600))
    assert status_of(api, bob) == 200
    with api.database.read_jobs() as session:
        seen_at = session.scalar(select(func.max(SessionRow.seen_at)))
        assert seen_at is not None
        assert seen_at > session.scalar(select(db_now() - 60))


def test_a_code_is_used_once_by_one_of_many_requests(api: Api) -> None:
    code = invited(api)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda number: accept(api, code, f"{PASSWORD}{number}"), range(4)))
    statuses = sorted(answer.status_code for answer in answers)
    assert statuses == [200, 401, 401, 401]
    winner = next(number for number, answer in enumerate(answers) if answer.status_code == 200)
    assert sign_in(api, password=f"{PASSWORD}{winner}").status_code == 200
    problem(accept(api, code), 401, "unauthenticated")


def test_expired_replaced_and_invented_codes_get_the_same_words(api: Api) -> None:
    replaced = invited(api)
    expired = invited(api, life_seconds=-1)
    invented = credentials.make(credentials.INVITATION)
    details = {
        problem(accept(api, code), 401, "unauthenticated")["detail"]
        for code in (replaced, expired, invented, "x", "")
    }
    assert details == {"the invitation code is unknown, used or expired; nothing was written"}


def test_an_invitation_ends_older_sessions(api: Api, bob: str) -> None:
    new = accept(api, invited(api), "another password").json()["token"]
    assert [status_of(api, token) for token in (bob, new)] == [401, 200]
    problem(sign_in(api), 401, "unauthenticated")


def test_a_new_password_ends_all_other_sessions(api: Api, bob: str) -> None:
    other = sign_in(api).json()["token"]

    def change(old: str, new: str) -> httpx2.Response:
        body = {"old": old, "new": new}
        return api.http.post("/v1/session/password", json=body, headers=bearer(bob))

    assert problem(change("wrong password", "x" * 12), 422, "invalid")["errors"][0] == {
        "pointer": "/old",
        "message": "is not the present password",
        "value": None,
        "next_step": "see /docs for the expected values",
    }
    assert change(PASSWORD, "x" * 12).status_code == 429
    parts: AppState = api.http.app.state.parts  # type: ignore[attr-defined]
    parts.delays.right("bob", "testclient")
    assert change(PASSWORD, "x" * 12).status_code == 204
    assert [status_of(api, token) for token in (bob, other)] == [200, 401]
    assert sign_in(api, password="x" * 12).status_code == 200
    problem(sign_in(api, address="10.0.0.2"), 401, "unauthenticated")


@pytest.mark.parametrize(
    ("password", "status"),
    [
        *[("x" * 11, 422), ("x" * 12, 200), ("пароль-🔑-ключ", 200), ("x" * 1_024, 200)],
        *[("x" * 1_025, 422), ("x" * 12 + "\0", 422), ("x" * 12 + "\ud800", 422)],
    ],
)
def test_a_password_is_limited_in_length_only_and_not_repeated(
    api: Api, password: str, status: int
) -> None:
    body = json.dumps({"code": invited(api), "password": password})
    answer = api.http.post(
        "/v1/invitation", content=body, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == status, answer.text
    if status == 200:
        assert sign_in(api, password=password).status_code == 200
        problem(sign_in(api, password=password[:-1]), 401, "unauthenticated")
    else:
        assert problem(answer, 422, "invalid")["errors"][0]["pointer"] == "/password"
        assert password[:11] not in answer.text


@pytest.mark.parametrize(
    "body", [[], {}, {"name": "bob"}, {"name": 1, "password": "secret"}, {"password": "secret"}]
)
def test_a_wrong_body_is_refused_without_its_values(api: Api, body: Any) -> None:
    answer = api.http.post("/v1/session", json=body)
    assert "secret" not in answer.text
    # No route but those of jobs takes a spec.
    assert "spec" not in problem(answer, 422, "invalid")["detail"]


def test_a_body_that_is_too_large_is_not_called_a_spec(api: Api) -> None:
    answer = api.http.post("/v1/session", json={"name": "bob", "password": "x" * 300_000})
    said = problem(answer, 413, "too_large")
    assert said["detail"].startswith("the body is at most 262144 bytes, got 3000")
    assert said["next_step"] == "send a smaller body"


class _Counting:
    """Hasher that counts."""

    def __init__(self) -> None:
        self.inner = passwords.argon2id()
        self.checks: list[str] = []

    def hash(self, password: str) -> str:
        return self.inner.hash(password)

    def verify_and_update(self, password: str, stored: str) -> tuple[bool, str | None]:
        self.checks.append(stored)
        return self.inner.verify_and_update(password, stored)


def counted(api: Api) -> _Counting:
    hasher = _Counting()
    parts: AppState = api.http.app.state.parts  # type: ignore[attr-defined]
    parts.passwords._hasher = hasher
    return hasher


def test_an_unknown_name_and_a_wrong_password_get_the_same_words_and_work(
    api: Api, bob: str
) -> None:
    hasher = counted(api)
    invited(api, "cy")
    answers = [sign_in(api, name, "wrong password") for name in ("bob", "cy", "unknown", "x" * 255)]
    refused = [problem(answer, 401, "unauthenticated") for answer in answers]
    assert {each["detail"] for each in refused} == {
        "the name or the password is wrong; nothing was written"
    }
    assert len(hasher.checks) == 4
    assert {stored.rpartition("p=1$")[0] for stored in hasher.checks} == {
        "$argon2id$v=19$m=19456,t=2,"
    }


def test_a_thousand_wrong_passwords_cost_few_hashes_and_lock_no_one_out(api: Api, bob: str) -> None:
    hasher = counted(api)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda n: sign_in(api, password=f"guess {n}"), range(1_000)))
    statuses = {answer.status_code for answer in answers}
    assert statuses == {401, 429}
    assert len(hasher.checks) <= passwords.WRONG_PER_ADDRESS
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert sign_in(api, address="10.0.0.2").status_code == 200


def test_an_address_that_guesses_many_names_is_refused(api: Api, bob: str) -> None:
    hasher = counted(api)
    statuses = [sign_in(api, f"name-{n}", "guess").status_code for n in range(25)]
    assert statuses == [401] * 20 + [429] * 5
    assert len(hasher.checks) == 20
    assert sign_in(api).status_code == 429
    assert sign_in(api, address="10.0.0.2").status_code == 200


def test_a_password_with_older_parameters_is_hashed_again(api: Api, bob: str) -> None:
    old = PasswordHash((Argon2Hasher(1, 1024, 1),)).hash(PASSWORD)
    with api.database.jobs() as session:
        session.execute(update(UserRow).where(UserRow.name == "bob").values(password=old))
    assert sign_in(api).status_code == 200
    with api.database.read_jobs() as session:
        assert (users.password_of(session, "bob") or "").startswith("$argon2id$v=19$m=19456")
    assert sign_in(api).status_code == 200


def test_a_sign_in_that_meets_a_new_password_starts_no_session(
    api: Api, bob: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasher = counted(api)

    def changed(password: str, stored: str) -> tuple[bool, str | None]:
        with api.database.jobs() as session:
            assert users.set_password(session, "bob", "another hash", before=stored)
        return True, None

    monkeypatch.setattr(hasher, "verify_and_update", changed)
    problem(sign_in(api), 401, "unauthenticated")
    with api.database.read_jobs() as session:
        assert [row.address for row in sessions.of_user(session, "bob")] == ["testclient"]


def test_no_file_of_the_databases_contains_an_issued_secret(
    api: Api, bob: str, tmp_path: Path
) -> None:
    secrets = [bob, sign_in(api).json()["token"], invited(api, "cy"), PASSWORD, TOKEN]
    url = api.urls[0]
    if url.startswith("sqlite"):
        files = {path.name: path.read_bytes() for path in tmp_path.glob("*.db*")}
        assert {"jobs.db", "series.db"} <= files.keys()
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            files["dump"] = "\n".join(connection.iterdump()).encode()
    else:
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            row = connection.execute("SHOW data_directory").fetchone()
            assert row is not None
            folder = Path(row[0])
            files = {str(p): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert any(credentials.digest(bob).encode() in content for content in files.values())
    for secret in secrets:
        assert [name for name, content in files.items() if secret.encode() in content] == []
