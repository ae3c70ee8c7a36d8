"""Authentication, and creation of the first token."""

from __future__ import annotations

import stat
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.routing import APIRoute
from sqlalchemy import update

from lockstep.api.app import create_app
from lockstep.api.auth.bearer import REMEMBER_SECONDS, Guard, ensure_token
from lockstep.domain.errors import LockstepError
from lockstep.domain.rights import ServiceRole
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import TokenRow
from lockstep.storage.people import tokens
from tests.api.conftest import TOKEN, Api, settings_for
from tests.harness.clients import Client

OPEN = {("POST", f"/v1/{name}") for name in ("session", "session/code", "invitation")}
"""Operations under /v1 that need no token."""


def test_every_address_under_v1_wants_a_token_and_the_others_do_not(api: Api) -> None:
    seen = 0
    for path, operations in api.http.get("/openapi.json").json()["paths"].items():
        for method in operations:
            address = path.format_map(defaultdict(lambda: "last", sha256="0" * 64, id="0" * 16))
            response = api.http.request(method.upper(), address, headers={"Authorization": ""})
            is_open = (method.upper(), path) in OPEN or not path.startswith("/v1")
            assert (response.status_code == 401) != is_open, (method, path)
            seen += 1
    assert seen >= 14
    assert api.http.get("/", headers={"Authorization": ""}).status_code == 200


def test_without_authentication_every_local_user_has_access(api: Api) -> None:
    app = create_app(
        settings_for(api.urls, api.store, auth="off"), api.database, api.blobs, api.notifications
    )
    with Client(app, base_url="http://localhost") as http:
        assert http.get("/v1/jobs").status_code == 200


def test_a_revoked_token_stops_working_within_seconds(database: Database) -> None:
    now = [0.0]
    guard = Guard(database, required=True, clock=lambda: now[0])
    with database.jobs() as session:
        tokens.ensure(session, TOKEN, name="t", actor="ada")
    assert guard.remembered(f"Bearer {TOKEN}") is None
    caller = guard.look_up(f"Bearer {TOKEN}")
    assert caller == guard.remembered(f"bearer  {TOKEN}")
    assert (caller.name, caller.rights.service) == ("ada", ServiceRole.ADMIN)
    with database.jobs() as session:
        session.execute(update(TokenRow).values(revoked_at=1_700_000_000.0))
    now[0] += REMEMBER_SECONDS
    assert guard.remembered(f"Bearer {TOKEN}") is None
    with pytest.raises(LockstepError, match="was revoked at 2023-11-14 22:13:20 UTC;"):
        guard.look_up(f"Bearer {TOKEN}")


def test_a_caller_who_was_read_before_a_change_is_not_kept_after_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    guard = Guard(database, required=True)
    with database.jobs() as session:
        tokens.ensure(session, TOKEN, name="t", actor="ada")
    rights = tokens.rights

    def changed_meanwhile(*arguments: Any) -> Any:
        found = rights(*arguments)
        guard.forget()
        return found

    monkeypatch.setattr(tokens, "rights", changed_meanwhile)
    assert guard.look_up(f"Bearer {TOKEN}").name == "ada"
    assert guard.remembered(f"Bearer {TOKEN}") is None
    monkeypatch.undo()
    guard.look_up(f"Bearer {TOKEN}")
    assert guard.remembered(f"Bearer {TOKEN}") is not None


def test_the_first_start_makes_a_token_that_only_its_owner_reads(
    database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "home" / "token"
    ensure_token(path, database)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    caller = Guard(database, required=True).look_up(f"Bearer {path.read_text().strip()}")
    assert caller.name == "admin"
    assert [file.name for file in path.parent.iterdir()] == ["token"]


def test_a_token_that_is_there_is_kept_and_made_valid(database: Database, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    path.chmod(0o600)
    for _ in range(2):
        ensure_token(path, database)
    assert path.read_text() == f"{TOKEN}\n"
    assert Guard(database, required=True).look_up(f"Bearer {TOKEN}")


def test_two_apis_that_start_at_once_agree_on_one_token(
    sqlite_urls: tuple[str, str], tmp_path: Path
) -> None:
    database = Database(*sqlite_urls)
    path = tmp_path / "token"
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: ensure_token(path, database), range(4)))
        assert Guard(database, required=True).look_up(f"Bearer {path.read_text().strip()}")
    finally:
        database.close()
    assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".token")] == []


def test_a_token_file_that_others_read_or_that_holds_none_is_refused(
    database: Database, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN)
    path.chmod(0o644)
    with pytest.raises(LockstepError, match="is readable by other users") as caught:
        ensure_token(path, database)
    assert caught.value.next_step == f"chmod 600 {path}"
    path.chmod(0o600)
    path.write_text("two words\n")
    with pytest.raises(LockstepError, match="contains no valid token"):
        ensure_token(path, database)


def test_a_refused_upload_is_refused_before_its_body_is_read(api: Api) -> None:
    path = f"/v1/uploads/{'0' * 64}"
    read, sent = [], []

    async def receive() -> dict[str, Any]:
        read.append(len(read))
        return {"type": "http.request", "body": b"x", "more_body": len(read) < 3}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    # Not through the test client, which reads the whole body before it calls the application.
    scope = {
        "type": "http",
        "method": "PUT",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(b"host", b"testserver"), (b"authorization", b"Bearer wrong-token")],
    }
    assert api.http.portal is not None
    api.http.portal.call(api.http.app, scope, receive, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 401
    assert read == []


def test_every_route_is_an_api_route_with_a_name_of_its_own(api: Api) -> None:
    app = api.http.app
    names = [
        route.operation_id
        for route in app.routes
        if isinstance(route, APIRoute) and route.include_in_schema
    ]  # type: ignore[attr-defined]
    assert names
    assert all(names)
    assert len(names) == len(set(names))
