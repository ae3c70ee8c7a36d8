"""People, projects and tokens of the service, as methods of ``client.api.Client``.

Not here: jobs and nodes (``client.api``), requests and retries (``client.transport``).
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from lockstep.client.transport import Transport
from lockstep.domain.people_views import (
    InvitationView,
    ProjectView,
    TokenSecretView,
    TokenView,
    UsageView,
    UserView,
)
from lockstep.domain.views import Page

_USERS: Final = "look with: lockstep user ls"
_TOKENS: Final = "look with: lockstep token ls, and revoke one whose secret is lost"
_PROJECTS: Final = "look with: lockstep project ls"


class PeopleMethods:
    """Methods about people, projects and tokens. Fields are those of ``domain.people_views``."""

    transport: Transport

    def users(self) -> list[UserView]:
        """All people."""
        return self.transport.get("/v1/users", Page[UserView]).items

    def add_user(self, name: str, **fields: Any) -> UserView:
        """Add a person, or with ``service=True`` a program."""
        return self.transport.post("/v1/users", UserView, {"name": name, **fields}, once=_USERS)

    def change_user(self, name: str, **changes: Any) -> UserView:
        """Change the title or role of a person, or deactivate one with ``active=False``."""
        return self.transport.change("PATCH", f"/v1/users/{_in_path(name)}", UserView, changes)

    def invite_user(self, name: str) -> InvitationView:
        """Give a person a new invitation code, which is only in this answer."""
        path = f"/v1/users/{_in_path(name)}/invite"
        look = "invite again: a new code replaces the former one"
        return self.transport.post(path, InvitationView, once=look)

    def tokens(self, owner: str | None = None) -> list[TokenView]:
        """The own tokens, newest first; of another owner for an admin of the service."""
        asked = [] if owner is None else [("owner", owner)]
        return self.transport.get("/v1/tokens", Page[TokenView], asked).items

    def create_token(self, name: str, **fields: Any) -> TokenSecretView:
        """Make a token. Its secret is only in this answer."""
        body = {"name": name, **fields}
        return self.transport.post("/v1/tokens", TokenSecretView, body, once=_TOKENS)

    def rotate_token(self, token_id: str, *, overlap_hours: int) -> TokenSecretView:
        """Give a token a new secret; the old one stays valid for some hours."""
        path = f"/v1/tokens/{_in_path(token_id)}/rotate"
        body = {"overlap_hours": overlap_hours}
        return self.transport.post(path, TokenSecretView, body, once=_TOKENS)

    def revoke_token(self, token_id: str) -> TokenView:
        """Revoke a token."""
        return self.transport.change("DELETE", f"/v1/tokens/{_in_path(token_id)}", TokenView)

    def projects(self) -> list[ProjectView]:
        """The projects that the caller may read."""
        return self.transport.get("/v1/projects", Page[ProjectView]).items

    def project(self, name: str) -> ProjectView:
        """A project with its members and limits."""
        return self.transport.get(f"/v1/projects/{_in_path(name)}", ProjectView)

    def add_project(self, name: str, **fields: Any) -> ProjectView:
        """Make a project."""
        body = {"name": name, **fields}
        return self.transport.post("/v1/projects", ProjectView, body, once=_PROJECTS)

    def change_project(self, name: str, **changes: Any) -> ProjectView:
        """Change a project; ``archived`` archives or restores it."""
        path = f"/v1/projects/{_in_path(name)}"
        return self.transport.change("PATCH", path, ProjectView, changes)

    def set_member(self, project: str, user: str, role: str) -> ProjectView:
        """Give a person a role in a project."""
        path = f"/v1/projects/{_in_path(project)}/members/{_in_path(user)}"
        return self.transport.change("PUT", path, ProjectView, {"role": role})

    def remove_member(self, project: str, user: str) -> None:
        """Take the role of a person in a project away."""
        path = f"/v1/projects/{_in_path(project)}/members/{_in_path(user)}"
        self.transport.send("DELETE", path, headers={})

    def usage(
        self,
        *,
        by: str = "project",
        since: str | None = None,
        until: str | None = None,
        project: str | None = None,
    ) -> UsageView:
        """Return device-hours by ``project``, ``person`` or ``day``; by default of 30 days."""
        given = {"by": by, "from": since, "to": until, "project": project}
        asked = [(name, value) for name, value in given.items() if value is not None]
        return self.transport.get("/v1/usage", UsageView, asked)


def _in_path(name: str) -> str:
    return quote(name, safe="")
