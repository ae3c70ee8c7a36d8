"""``token``: make, list, rotate and revoke tokens.

Not here: the token that this machine uses (``cli.service.config``).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from lockstep.cli.common import Connection, Output, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode

if TYPE_CHECKING:
    from lockstep.domain.people_views import TokenSecretView, TokenView

app = App(
    name="token",
    help="Make, list, rotate and revoke tokens.",
    help_epilogue="",
    help_format="plaintext",
)


@app.command
def ls(
    *,
    owner: str | None = None,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """List the own tokens.

    Parameters
    ----------
    owner
        Another owner, for an admin of the service.
    """
    with connection.client() as client:
        found = client.tokens(owner)
    if output.format == "json":
        out.print_json(found)
    elif output.format == "name":
        for token in found:
            print(token.id)
    else:
        now = datetime.now(UTC)
        rows = [_row(token, now) for token in found]
        out.print_table(["ID", "NAME", "SECRET", "SCOPES", "PROJECTS", "USED", "STATE"], rows)
    return ExitCode.OK


@app.command
def create(
    name: str = "token",
    /,
    *,
    owner: str | None = None,
    scope: Annotated[list[str] | None, Parameter(negative=())] = None,
    project: Annotated[list[str] | None, Parameter(negative=())] = None,
    days: int = 90,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Make a token. Its secret is printed once, on stdout.

    Parameters
    ----------
    name
        Label of the token.
    owner
        A program, for an admin of the service; else the caller.
    scope
        jobs:read, jobs:write, nodes:write, projects:write or service:admin; may be repeated.
        Without it, the token has all rights of its owner.
    project
        Project of the token; may be repeated. Without it, all projects of its owner.
    days
        Days until it expires, at most 366.
    """
    fields: dict[str, Any] = {"days": days, "scopes": scope, "projects": project, "owner": owner}
    with connection.client() as client:
        _print_secret(client.create_token(name, **fields), output.format)
    return ExitCode.OK


@app.command
def rotate(
    token: str,
    /,
    *,
    overlap_hours: int = 24,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Give a token a new secret, which is printed once, on stdout.

    Parameters
    ----------
    token
        Id of the token.
    overlap_hours
        Hours for which the old secret stays valid, at most 168. Until then, only 0 is accepted:
        it ends both old secrets at once.
    """
    with connection.client() as client:
        _print_secret(client.rotate_token(token, overlap_hours=overlap_hours), output.format)
    return ExitCode.OK


@app.command
def revoke(token: str, /, *, connection: Connection = Connection()) -> ExitCode:
    """Revoke a token: it is refused within seconds.

    Parameters
    ----------
    token
        Id of the token.
    """
    with connection.client() as client:
        found = client.revoke_token(token)
    say(f"token {found.name} of {found.owner} is revoked")
    return ExitCode.OK


def _print_secret(made: TokenSecretView, form: str) -> None:
    if form == "json":
        out.print_json(made)
        return
    expires = made.token.expires_at
    until = "never expires" if expires is None else f"expires on {expires:%Y-%m-%d}"
    say(f"token {made.token.name} ({made.token.id}) of {made.token.owner} {until}; its secret:")
    print(made.secret)


def _row(token: TokenView, now: datetime) -> list[str]:
    if token.revoked_at is not None:
        state = "revoked"
    elif token.expires_at is not None and token.expires_at <= now:
        state = "expired"
    else:
        state = "valid"
    return [
        token.id,
        token.name,
        f"{token.prefix}…",
        "all" if token.scopes is None else ", ".join(token.scopes),
        "all" if token.projects is None else ", ".join(token.projects),
        "never" if token.used_at is None else f"{out.age(token.used_at, now)} ago",
        state,
    ]
