"""Options and output shared by all commands: server, token, format, messages.

Not here: the tables (``cli.text.output``).
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

from cyclopts import Group, Parameter

from lockstep.client.config import Server, find_server
from lockstep.client.errors import UsageError
from lockstep.client.local.home import Home
from lockstep.domain.life.lifecycle import JobState

if TYPE_CHECKING:
    from lockstep.client.api import Client

SERVER_GROUP = Group("Server", sort_key=90)
OUTPUT_GROUP = Group("Output", sort_key=80)

SUPERVISED_PATIENCE_SECONDS: Final = 30.0
"""For the service that runs on this machine: if its api does not answer, it is being started
again."""
Format = Literal["table", "wide", "json", "name"]
JobName = Annotated[str, Parameter(help='Id, unique prefix or suffix of an id, name, or "last".')]
"""Argument that names a job."""
Flag = Annotated[bool, Parameter(negative="", show_default=False)]
"""A switch without its ``--no-`` twin."""
Detach = Annotated[Flag, Parameter(name=["--detach", "-d"])]
Follow = Annotated[Flag, Parameter(name=["--follow", "-f"])]
Quiet = Annotated[Flag, Parameter(name=["--quiet", "-q"])]
Verbose = Annotated[Flag, Parameter(name=["--verbose", "-v"])]
Yes = Annotated[Flag, Parameter(name=["--yes", "-y"])]
Many = Parameter(negative="", show_default=False)
"""An option that may be given several times."""
Names = Annotated[list[str] | None, Many]
Settings = Annotated[Names, Parameter(name="--set")]
States = Annotated[list[JobState] | None, Many]


def _refuse_option(_: type, value: str) -> None:
    if value.startswith("-") and value != "-":
        raise UsageError(
            f"unknown option: {value.partition('=')[0]}",
            next_step="lockstep COMMAND --help lists the options; a file of such a name is ./-FILE",
        )


File = Annotated[str, Parameter(allow_leading_hyphen=True, validator=_refuse_option)]
"""A job spec; - is stdin."""
Code = Annotated[Path | None, Parameter(show_default=False)]
"""Folder with a job's code."""


@Parameter(name="*", group=SERVER_GROUP)
@dataclass(frozen=True)
class Connection:
    """Options for the server and for errors."""

    url: str | None = None
    """Address of the server."""
    token: str | None = None
    """Bearer token. Better kept in LOCKSTEP_TOKEN or a file: others on this machine can read a
    command line."""
    debug: Flag = False
    """On an error, print the trace too."""

    def server(self) -> Server:
        return find_server(
            url=self.url, token=self.token, environment=os.environ, folder=Path.cwd()
        )

    def client(self) -> Client:
        """Connect to the server that flags, environment and files name."""
        from lockstep.client import api

        server = self.server()
        if server.withheld is not None:
            say(server.withheld)
        patience = SUPERVISED_PATIENCE_SECONDS if _is_supervised(server) else api.PATIENCE_SECONDS
        return api.Client(server.url, server.token, patience_seconds=patience, say=say)


@Parameter(name="*", group=OUTPUT_GROUP)
@dataclass(frozen=True)
class Output:
    """Format of the data on stdout."""

    output: Annotated[Format, Parameter(name=["--output", "-o"])] = "table"
    """table; wide: with more columns; json: the API's own objects; name: ids or names alone, one
    per line."""
    json: Flag = False
    """Short for -o json."""

    @property
    def format(self) -> Format:
        return "json" if self.json else self.output


def moment(option: str, given: str | None) -> str | None:
    """Return a time for the server: one without a zone is of this machine's zone, as printed ones.

    Raises
    ------
    UsageError
        If it is neither a time nor a number of seconds.
    """
    if given is None or re.fullmatch(r"\d+(\.\d+)?", given):
        return given
    try:
        return datetime.fromisoformat(given).astimezone().isoformat()
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option} {given}: expected a time, such as 2026-02-01T12:00:00 (of this machine's "
            f"zone), 2026-02-01T12:00:00Z or 2026-02-01T13:00:00+01:00, or seconds since the epoch"
        ) from None


def names_in(given: list[str] | None) -> list[str]:
    """Names of an option that may be repeated, each time with several between commas."""
    return [name.strip() for words in given or () for name in words.split(",") if name.strip()]


def _is_supervised(server: Server) -> bool:
    """Return whether the server is the one of ``lockstep up`` on this machine."""
    home = Home.of(os.environ)
    return server.origin == str(home.run_file) and home.is_locked()


def say(line: str) -> None:
    """Print a message for the user to stderr; never data."""
    print(line, file=sys.stderr, flush=True)


def require_terminal(command: str) -> None:
    """Refuse a deletion that cannot be confirmed.

    Raises
    ------
    UsageError
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"{command}: stdin is not a terminal, so the deletion cannot be confirmed",
            next_step="pass --yes to delete without a prompt",
        )


def confirmed(question: str, *, otherwise: bool) -> bool:
    """Ask the user at the terminal; ``otherwise`` is the meaning of an empty line."""
    print(f"{question} [{'Y/n' if otherwise else 'y/N'}] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline().strip().lower()
    return answer in ("y", "yes") or (otherwise and not answer)
