"""Commands about people, projects and tokens."""

from __future__ import annotations

import pytest

from lockstep.api.http.examples import ANSWERS
from lockstep.domain.people_views import ProjectView, TokenSecretView, TokenView, UserView
from lockstep.domain.views import Page
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine

USER, TOKEN, SECRET, PROJECT = (
    ANSWERS[kind.__name__] for kind in (UserView, TokenView, TokenSecretView, ProjectView)
)


@pytest.mark.parametrize(
    ("words", "path", "page", "shown"),
    [
        (
            "user ls",
            "/v1/users",
            Page[UserView](items=[USER]),
            "lea   active  -     person  Lea Weber",
        ),
        (
            "token ls",
            "/v1/tokens",
            Page[TokenView](items=[TOKEN]),
            "lsp_a1b2c…  jobs:read, jobs:write",
        ),
        (
            "project ls",
            "/v1/projects",
            Page[ProjectView](items=[PROJECT]),
            "nlp      private          2  admin            1  in use  Language models",
        ),
    ],
)
def test_lists_are_tables(
    lockstep: CommandLine,
    server: ReplayServer,
    words: str,
    path: str,
    page: Page[object],
    shown: str,
) -> None:
    server.on("GET", path, page)
    assert shown in lockstep(*words.split()).out
    assert '"name"' in lockstep(*words.split(), "-o", "json").out


def test_a_secret_is_all_of_stdout(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("POST", "/v1/tokens", SECRET)
    said = lockstep("token", "create", "laptop", "--scope", "jobs:read", "--days", "7")
    assert said.out == f"lsp_{'0' * 36}\n"
    assert "of lea expires on" in said.err


def test_one_limit_changes_and_the_others_stay(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("PATCH", "/v1/projects/nlp", PROJECT)
    lockstep("project", "set", "nlp", "--limit", "priority_max=60", "--limit", "queued_max=")
    # 60 is no 60.0, which a refusal would repeat.
    assert server.asked[-1].body == b'{"limits":{"priority_max":60,"queued_max":null}}'
    # The service knows which limits are words, and names a wrong one.
    lockstep("project", "set", "nlp", "--weight", "2", "--limit", "budget_action=hold")
    assert server.asked[-1].json() == {"weight": 2, "limits": {"budget_action": "hold"}}
    assert lockstep("project", "set", "nlp", "--limit", "queued_max").code == 2


@pytest.mark.parametrize("given", [("--weight", "nan"), ("--limit", "budget_gpu_hours=inf")])
def test_a_number_that_is_not_finite_is_no_defect(
    lockstep: CommandLine, server: ReplayServer, given: tuple[str, str]
) -> None:
    said = lockstep("project", "set", "nlp", *given)
    assert said.code == 2
    assert "expected finite numbers" in said.err
    assert server.asked == []


def test_a_role_of_none_is_taken_away(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("PATCH", "/v1/users/lea", USER)
    lockstep("user", "set", "lea", "--role", "none")
    assert server.asked[-1].json() == {"role": None}


def test_a_person_is_shown_with_the_roles_in_projects(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", "/v1/users", Page[UserView](items=[USER]))
    server.on("GET", "/v1/projects", Page[ProjectView](items=[PROJECT]))
    assert "member of project nlp" in lockstep("user", "show", "lea").out
    assert lockstep("user", "show", "bob").code == 3
