"""``session``: list and end the own sessions.

Not here: the session of this machine's commands (``cli.service.session``).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from cyclopts import App, Parameter

from lockstep.cli.common import Connection, Flag, Output, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode, UsageError

app = App(
    name="session",
    help="List and end your sessions.",
    help_epilogue="",
    help_format="plaintext",
)


@app.command
def ls(*, output: Output = Output(), connection: Connection = Connection()) -> ExitCode:
    """List your sessions, newest first."""
    with connection.client() as client:
        found = client.sessions()
    if output.format == "json":
        out.print_json(found)
    elif output.format == "name":
        for session in found:
            print(session.id)
    else:
        now = datetime.now(UTC)
        rows = [
            [
                session.id,
                out.age(session.created_at, now),
                out.age(session.seen_at, now),
                session.address,
                session.agent[:60],
                "this one" if session.is_own else "",
            ]
            for session in found
        ]
        out.print_table(["ID", "AGE", "SEEN", "ADDRESS", "PROGRAM", ""], rows)
    return ExitCode.OK


@app.command
def end(
    sessions: Annotated[list[str] | None, Parameter(negative=())] = None,
    /,
    *,
    others: Flag = False,
    connection: Connection = Connection(),
) -> ExitCode:
    """End sessions: their tokens are refused within seconds.

    Parameters
    ----------
    sessions
        Ids of sessions.
    others
        All sessions except the one of this command.
    """
    if others is (sessions is not None):
        raise UsageError("expected ids of sessions, or --others")
    with connection.client() as client:
        chosen = sessions or [each.id for each in client.sessions() if not each.is_own]
        for each in chosen:
            client.end_session(each)
    say(f"ended: {len(chosen)}")
    return ExitCode.OK
