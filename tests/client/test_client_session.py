"""``login``, ``logout``, ``whoami`` and ``user restore``."""

from __future__ import annotations

import getpass
import io
import stat
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockstep.client.config import read_file, user_config_file
from lockstep.domain.rights import ProjectRole, Scope
from lockstep.domain.views import Page, SessionView, SignedIn
from tests.client import examples
from tests.client.server import Answer, ReplayServer, problem
from tests.client.terminal import CommandLine
from tests.client.test_client_up import lockstep as lockstep_in

AT = datetime(2026, 3, 2, tzinfo=UTC)
SIGNED_IN = SignedIn(token="lst_new", name="ada", expires_at=AT)
ADA = examples.caller(
    projects={"nlp": ProjectRole.MEMBER, "vision": ProjectRole.VIEWER},
    is_alone=False,
    expires_at=AT,
)


class Typing(io.StringIO):
    """Terminal with these lines, the hidden ones included."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *lines: str, hidden: tuple[str, ...] = ()):
        super().__init__("\n".join(lines) + "\n")
        secrets: Iterator[str] = iter(hidden)
        monkeypatch.setattr(sys, "stdin", self)
        monkeypatch.setattr(getpass, "getpass", lambda _prompt: next(secrets))

    def isatty(self) -> bool:
        return True


def kept() -> dict[str, str]:
    file = user_config_file()
    if not file.is_file():
        return {}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    return read_file(file)


def test_a_login_keeps_the_token_of_its_session_for_other_commands(
    lockstep: CommandLine, server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("POST", "/v1/session", SIGNED_IN)
    server.on("GET", "/v1/session", ADA)
    monkeypatch.delenv("LOCKSTEP_URL")
    Typing(monkeypatch, server.url, "ada", hidden=("correct horse battery",))
    said = lockstep("login")
    assert said.code == 0, said.err
    assert "correct horse" not in said.out + said.err
    assert kept() == {"url": server.url, "token": "lst_new"}
    (asked,) = server.requests("POST", "/v1/session")
    assert asked.json() == {"name": "ada", "password": "correct horse battery"}
    assert lockstep("whoami", "-o", "name").out == "ada\n"
    assert server.requests("GET", "/v1/session")[0].headers["authorization"] == "Bearer lst_new"


def test_an_invitation_asks_for_a_new_password_twice(
    lockstep: CommandLine, server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("POST", "/v1/invitation", SIGNED_IN)
    Typing(monkeypatch, hidden=("lsi_code", "x" * 12, "y" * 12))
    said = lockstep("login", server.url, "--invitation")
    assert (said.code, "the two passwords differ" in said.err) == (2, True)
    assert (server.asked, kept()) == ([], {})
    Typing(monkeypatch, hidden=("lsi_code", "x" * 12, "x" * 12))
    assert lockstep("login", server.url, "--invitation").code == 0
    assert server.asked[0].json() == {"code": "lsi_code", "password": "x" * 12}
    assert kept()["token"] == "lst_new"


def test_a_token_from_stdin_is_checked_and_kept(
    lockstep: CommandLine, server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("GET", "/v1/session", problem(401, "unauthenticated", "is unknown"), ADA)
    for code, expected in ((4, None), (0, "lockstep_given")):
        monkeypatch.setattr(sys, "stdin", io.StringIO("lockstep_given\n"))
        assert lockstep("login", server.url, "--token").code == code
        assert kept().get("token") == expected
    assert server.asked[0].headers["authorization"] == "Bearer lockstep_given"


def test_a_refused_sign_in_changes_nothing(
    lockstep: CommandLine, server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("POST", "/v1/session", problem(401, "unauthenticated", "the name or …"))
    Typing(monkeypatch, "ada", hidden=("wrong",))
    assert lockstep("login", server.url).code == 4
    assert lockstep("login", "ftp://x").code == 2
    monkeypatch.setattr(sys, "stdin", io.StringIO("ada\nsecret\n"))
    said = lockstep("login", server.url)
    assert (said.code, "read from a terminal" in said.err) == (2, True)
    assert kept() == {}


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (Answer(204), "signed out"),
        (problem(401, "unauthenticated", "over"), "the session was over already"),
        (problem(409, "conflict", "no session"), "stays valid"),
    ],
)
def test_a_logout_ends_the_session_and_removes_the_token(
    lockstep: CommandLine, server: ReplayServer, answer: Answer, line: str
) -> None:
    server.on("DELETE", "/v1/session", answer)
    lockstep("config", "set", "url", server.url)
    lockstep("config", "set", "token", "lst_old")
    said = lockstep("logout")
    assert said.code == 0
    assert line in said.err
    assert server.asked[-1].headers["authorization"] == "Bearer lst_old"
    assert kept() == {"url": server.url}
    assert lockstep("logout").code == 1


def test_a_logout_that_does_not_reach_the_server_keeps_the_token(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("DELETE", "/v1/session", problem(500, "internal", "a defect"))
    lockstep("config", "set", "url", server.url)
    lockstep("config", "set", "token", "lst_old")
    assert lockstep("logout").code == 1
    assert kept()["token"] == "lst_old"


def test_whoami_shows_roles_and_credential(lockstep: CommandLine, server: ReplayServer) -> None:
    narrow = ADA.model_copy(update={"scopes": [Scope.JOBS_READ], "expires_at": None})
    server.on("GET", "/v1/session", ADA, narrow, narrow)
    said = lockstep("whoami").out
    assert "member of nlp, viewer of vision" in said
    assert "2026-03-02 00:00" in said
    assert "jobs:read" in lockstep("whoami").out
    assert '"credential": "session"' in lockstep("whoami", "--json").out


def test_a_person_lists_and_ends_sessions(lockstep: CommandLine, server: ReplayServer) -> None:
    own, other = (
        SessionView(
            id=digit * 16,
            address="::1",
            agent="a browser",
            created_at=AT,
            seen_at=AT,
            expires_at=AT,
            is_own=digit == "0",
        )
        for digit in "01"
    )
    server.on("GET", "/v1/sessions", Page[SessionView](items=[own, other]))
    for each in (own, other):
        server.on("DELETE", f"/v1/sessions/{each.id}", Answer(204))
    lines = lockstep("session", "ls").out.splitlines()
    assert ["this one" in line for line in lines] == [False, True, False]
    assert lockstep("session", "ls", "-o", "name").out == f"{own.id}\n{other.id}\n"
    assert lockstep("session", "end", own.id, other.id).code == 0
    assert lockstep("session", "end", "--others").code == 0
    ended = [asked.path[-16:] for asked in server.asked if asked.method == "DELETE"]
    assert ended == [own.id, other.id, other.id]
    assert lockstep("session", "end").code == 2
    assert lockstep("session", "end", own.id, "--others").code == 2


def test_a_password_is_changed_after_the_new_one_was_entered_twice(
    lockstep: CommandLine, server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.on("POST", "/v1/session/password", Answer(204))
    old, new = "o" * 12, "n" * 12
    Typing(monkeypatch, hidden=(old, new, "x" * 12))
    assert (lockstep("password").code, server.asked) == (2, [])
    Typing(monkeypatch, hidden=(old, new, new))
    said = lockstep("password")
    assert (said.code, old in said.err, new in said.err) == (0, False, False)
    assert server.asked[0].json() == {"old": old, "new": new}


def test_a_person_is_restored_on_the_machine_of_the_service(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert lockstep_in(home, "user", "restore", "ada").returncode == 1
    assert lockstep_in(home, "migrate").returncode == 0
    done = lockstep_in(home, "user", "restore", "ada")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lsi_")
    refused = lockstep_in(home, "user", "restore", "Ada B")
    assert (refused.returncode, "is no name" in refused.stderr) == (1, True)
