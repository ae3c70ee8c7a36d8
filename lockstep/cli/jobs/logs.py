"""``logs``: output of a job's ranks.

Not here: storage and order of the lines (``storage.logs.logs``).
"""

from __future__ import annotations

import sys
from typing import Annotated, Literal

from cyclopts import Parameter

from lockstep.cli.common import Connection, Flag, Follow, JobName, Output, moment
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode

RANK_COLOURS = ("cyan", "green", "yellow", "magenta", "blue", "red")


def logs(
    job: JobName,
    /,
    *,
    follow: Follow = False,
    attempt: int | None = None,
    rank: int | None = None,
    stream: Literal["stdout", "stderr", "launcher"] | None = None,
    tail: Annotated[int | None, Parameter(name=["--tail", "-n"])] = None,
    search: str | None = None,
    since: str | None = None,
    until: str | None = None,
    timestamps: Flag = False,
    raw: Flag = False,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Print the lines that a job's ranks wrote, each after its rank.

    Parameters
    ----------
    follow
        Print new lines until the job has ended.
    attempt
        Only this attempt, counted from 1.
    rank
        Only this rank; -1 is the launcher.
    stream
        Only lines of this stream.
    tail
        Only the last N lines, and new ones.
    search
        Only lines that contain this text.
    since
        Only lines written then or later: 2026-02-01T12:00:00Z, or seconds since the
        epoch. A time without a zone is of this machine's zone.
    until
        Only lines written before that.
    timestamps
        Print the time of each line.
    raw
        Print the lines without their rank.
    """
    form = output.format
    is_terminal = sys.stdout.isatty()
    console = out.console() if is_terminal else None
    with connection.client() as client:
        for line in client.logs(
            job,
            follow=follow,
            attempt=attempt,
            rank=rank,
            stream=stream,
            search=search,
            since=moment("--since", since),
            until=moment("--until", until),
            tail=tail,
        ):
            if form == "json":
                print(out.one_line_each(line.model_dump_json()), flush=follow)
                continue
            when = f"{line.time.astimezone():%H:%M:%S} " if timestamps or form == "wide" else ""
            who = "" if raw else f"{out.writer(line.rank)} "
            if console is None:
                print(f"{when}{who}{line.text}", flush=follow)
            else:
                from rich.text import Text

                colour = (
                    RANK_COLOURS[line.rank % len(RANK_COLOURS)]
                    if line.rank >= 0
                    else "bright_black"
                )
                text = Text.from_ansi(out.harmless(line.text))
                console.print(Text.assemble(when, (who, colour), text), soft_wrap=True)
    return ExitCode.OK
