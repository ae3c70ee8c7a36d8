"""``user``: people who use the service, and programs that do.

Not here: roles in projects (``cli.service.projects``), tokens (``cli.service.tokens``), the own
account (``cli.service.session``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from lockstep.cli.common import Connection, Output, say
from lockstep.cli.service.service import HomeFlag
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstep.domain.people_views import InvitationView, UserView

app = App(
    name="user",
    help="Add, list, invite, change and deactivate people.",
    help_epilogue="",
    help_format="plaintext",
)
Role = Literal["operator", "admin", "none"]


@app.command
def ls(*, output: Output = Output(), connection: Connection = Connection()) -> ExitCode:
    """List people and programs."""
    with connection.client() as client:
        _print(client.users(), output.format)
    return ExitCode.OK


@app.command
def show(
    user: str, /, *, output: Output = Output(), connection: Connection = Connection()
) -> ExitCode:
    """Show a person with the roles in projects.

    Parameters
    ----------
    user
        Name of the person.
    """
    with connection.client() as client:
        found = [each for each in client.users() if each.name == user]
        roles = [
            (project.name, member.role)
            for project in client.projects()
            for member in project.members
            if member.user == user
        ]
    if not found:
        say(f"there is no person {user!r}; list all with: lockstep user ls")
        return ExitCode.NOT_FOUND
    _print(found, output.format)
    if output.format != "json":
        for project, role in roles:
            print(f"{role} of project {project}")
    return ExitCode.OK


@app.command
def add(
    user: str,
    /,
    *,
    title: str = "",
    role: Role = "none",
    service: Annotated[bool, Parameter(negative=())] = False,
    connection: Connection = Connection(),
) -> ExitCode:
    """Add a person, or with --service a program that has tokens of its own.

    Parameters
    ----------
    user
        Name, which never changes and is never used again.
    title
        Full name.
    role
        Role in the whole service.
    service
        Add a program.
    """
    fields: dict[str, Any] = {"title": title, "service": service}
    if role != "none":
        fields["role"] = role
    with connection.client() as client:
        found = client.add_user(user, **fields)
        if not service:
            _print_invitation(client.invite_user(user), client.transport.url)
    if service:
        say(f"{user} is {found.state}; make a token with: lockstep token create --owner {user}")
    return ExitCode.OK


@app.command
def invite(user: str, /, *, connection: Connection = Connection()) -> ExitCode:
    """Print a new invitation code of a person, in place of the present one.

    Parameters
    ----------
    user
        Name of the person.
    """
    with connection.client() as client:
        _print_invitation(client.invite_user(user), client.transport.url)
    return ExitCode.OK


def _print_invitation(invitation: InvitationView, url: str) -> None:
    say(
        f"{invitation.name} signs in with: lockstep login {url} --invitation, and this code, until "
        f"{invitation.expires_at:%Y-%m-%d %H:%M} UTC:"
    )
    print(invitation.code)


@app.command(name="set")
def set_(
    user: str,
    /,
    *,
    title: str | None = None,
    role: Role | None = None,
    connection: Connection = Connection(),
) -> ExitCode:
    """Change the full name or the role of a person.

    Parameters
    ----------
    user
        Name of the person.
    title
        Full name.
    role
        Role in the whole service.
    """
    changes: dict[str, Any] = {} if title is None else {"title": title}
    if role is not None:
        changes["role"] = None if role == "none" else role
    with connection.client() as client:
        _print([client.change_user(user, **changes)], "table")
    return ExitCode.OK


@app.command
def off(user: str, /, *, connection: Connection = Connection()) -> ExitCode:
    """Deactivate a person: tokens and sessions end, jobs continue.

    Parameters
    ----------
    user
        Name of the person.
    """
    with connection.client() as client:
        client.change_user(user, active=False)
    say(f"{user} has no access any more; undo this with: lockstep user on {user}")
    return ExitCode.OK


@app.command
def on(user: str, /, *, connection: Connection = Connection()) -> ExitCode:
    """Activate a person again.

    Parameters
    ----------
    user
        Name of the person.
    """
    with connection.client() as client:
        found = client.change_user(user, active=True)
    say(f"{user} is {found.state}")
    return ExitCode.OK


@app.command
def restore(name: str, /, *, home: HomeFlag = None, database_url: str | None = None) -> int:
    """Make a person an active admin of the service, and print an invitation code of one hour.

    Runs on the service's machine and needs no token: use it for the first person, or if no admin
    can sign in. `lockstep login --invitation` asks for the code.

    Parameters
    ----------
    name
        Name of the person; a new one is added.
    home
        Where the service's data is kept; else LOCKSTEP_HOME, else the user's data folder.
    database_url
        The job database; else SQLite in the home.
    """
    from lockstep.client.local import required_packages
    from lockstep.client.local.home import Home
    from lockstep.client.local.settings import Options, service

    required_packages.require(required_packages.SERVER)
    place = Home.of(os.environ, home)
    settled = service(place, Options(database_url=database_url), os.environ)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lockstep.api", "welcome", name],
        env=settled.environment,
        cwd=place.folder if place.folder.is_dir() else Path.cwd(),
        check=False,
    )
    return ExitCode.OK if done.returncode == 0 else ExitCode.FAILED


def _print(found: Sequence[UserView], form: str) -> None:
    if form == "json":
        out.print_json(found)
        return
    if form == "name":
        for user in found:
            print(user.name)
        return
    rows = [
        [
            user.name,
            user.state,
            user.role or "-",
            "program" if user.service else "person",
            user.title,
        ]
        for user in found
    ]
    out.print_table(["NAME", "STATE", "ROLE", "KIND", "TITLE"], rows)
