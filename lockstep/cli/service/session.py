"""``login``, ``logout``, ``whoami`` and ``password``: the token of the user's own config.

Not here: the other settings of that file (``cli.service.config``), other sessions of the user
(``cli.service.sessions``), invitations of other people (``cli.service.users``).
"""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING

from lockstep.cli.common import Connection, Flag, Output, say
from lockstep.cli.service.config import TOKEN_BYTES_MAX, keep
from lockstep.cli.text import output as out
from lockstep.client.config import read_file, user_config_file
from lockstep.client.errors import (
    ClientError,
    ExitCode,
    NotAllowedError,
    RefusedError,
    UnreachableError,
    UsageError,
)
from lockstep.domain.errors import ErrorCode

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.views import SignedIn


def login(
    url: str | None = None, /, *, token: Flag = False, invitation: Flag = False, debug: Flag = False
) -> ExitCode:
    """Sign in, and keep the address and the token of the session in your own file.

    The name and the password are asked for. The file is readable to you alone.

    Parameters
    ----------
    url
        Address of the server; else the one that other commands use. Without one, it is asked for.
    token
        Read a token from stdin and keep it, instead of a sign-in.
    invitation
        Ask for an invitation code and a new password.
    debug
        On an error, print the trace, too.
    """
    del debug  # read by cli.app
    address = url or _known_address() or _ask("Address of the server (http://HOST:PORT): ")
    if not address.startswith(("http://", "https://")):
        raise UsageError(f"{address!r} is no address", next_step="write http://HOST:PORT")
    if token:
        given = sys.stdin.read(TOKEN_BYTES_MAX).strip()
        with _client(address, given) as client:
            name = client.whoami().name
    else:
        with _client(address, None) as client:
            found = _accept(client) if invitation else _sign_in(client)
        given, name = found.token, found.name
    say(f"signed in to {address} as {name}; kept in {keep({'url': address, 'token': given})}")
    return ExitCode.OK


def logout() -> ExitCode:
    """End the session of `lockstep login`, and remove its token from your own file."""
    file = user_config_file()
    kept = read_file(file) if file.is_file() else {}
    token, url = kept.get("token"), kept.get("url")
    if token is None:
        raise ClientError(f"{file} contains no token", next_step="lockstep whoami shows the caller")
    if url is not None:
        try:
            with _client(url, token) as client:
                client.sign_out()
        except NotAllowedError:
            say("the session was over already")
        except RefusedError as refused:
            if refused.problem.code != ErrorCode.CONFLICT:
                raise
            say("the token is not one of a session, and stays valid")
    keep({"token": None})
    say(f"signed out; the token was removed from {file}")
    return ExitCode.OK


def whoami(*, output: Output = Output(), connection: Connection = Connection()) -> ExitCode:
    """Show your name, your roles, and the credential that a command would send."""
    with connection.client() as client:
        found = client.whoami()
    form = output.format
    if form == "json":
        out.print_json(found)
    elif form == "name":
        print(found.name)
    else:
        end = found.expires_at
        roles = [f"{role} of {project}" for project, role in found.projects.items()]
        rows = [
            ["name", found.name],
            ["service", found.role or "-"],
            ["projects", ", ".join(roles) or "-"],
            ["credential", found.credential],
            ["scopes", "all" if found.scopes is None else ", ".join(found.scopes) or "-"],
            ["expires", f"{end.astimezone():%Y-%m-%d %H:%M}" if end else "never"],
        ]
        out.print_facts(rows)
    return ExitCode.OK


def password(*, connection: Connection = Connection()) -> ExitCode:
    """Change your password. All sessions end, except the one of this command.

    The old and the new password are asked for.
    """
    old, new = _ask_secret("Password: "), _ask_new()
    with connection.client() as client:
        client.change_password(old, new)
    say("the password is changed; your other sessions have ended")
    return ExitCode.OK


def _sign_in(client: Client) -> SignedIn:
    return client.sign_in(_ask("Name: "), _ask_secret("Password: "))


def _accept(client: Client) -> SignedIn:
    return client.accept_invitation(_ask_secret("Invitation code: "), _ask_new())


def _ask_new() -> str:
    new = _ask_secret("New password (12 characters or more): ")
    if _ask_secret("The same password again: ") != new:
        raise UsageError("the two passwords differ; nothing was sent")
    return new


def _client(url: str, token: str | None) -> Client:
    from lockstep.client import api

    return api.Client(url, token, say=say)


def _known_address() -> str | None:
    try:
        return Connection().server().url
    except UnreachableError:
        return None


def _ask(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line.strip():
        raise UsageError("nothing was entered", next_step="lockstep login --token reads stdin")
    return line.strip()


def _ask_secret(prompt: str) -> str:
    """Read a line from the terminal without showing it."""
    if not sys.stdin.isatty():
        raise UsageError(
            "a password is read from a terminal, and stdin is none",
            next_step="lockstep login --token reads a token from stdin",
        )
    return getpass.getpass(prompt)
