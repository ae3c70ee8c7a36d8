"""``audit``: list and export changes and refused requests.

Not here: the events of a job (``cli.jobs.show``).
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from lockstep.cli.common import Connection, Output, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode, UsageError
from lockstep.system.files import replacing

if TYPE_CHECKING:
    from lockstep.domain.views import AuditView


app = App(
    name="audit",
    help="List and export changes and refused requests.",
    help_epilogue="",
    help_format="plaintext",
)
Wanted = Annotated[str | None, Parameter(show_default=False)]


@app.command
def ls(
    *,
    actor: Wanted = None,
    action: Wanted = None,
    project: Wanted = None,
    limit: Annotated[int, Parameter(name=["--limit", "-n"])] = 50,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """List changes and refused requests, newest first.

    Parameters
    ----------
    actor
        Only those of this person.
    action
        Only this action, such as job.cancel; of a refusal, the missing right.
    project
        Only those of this project.
    limit
        At most so many.
    """
    if limit < 1:
        raise UsageError(f"--limit {limit}: expected 1 or more")
    with connection.client() as client:
        rows = client.audit(actor=actor, action=action, project=project, limit=limit)
        found = list(islice(rows, limit))
    if output.format == "json":
        out.print_json(found)
    elif output.format == "name":
        for row in found:
            print(row.id)
    else:
        _print_table(found, wide=output.format == "wide")
    return ExitCode.OK


@app.command
def export(
    file: Path | None = None,
    /,
    *,
    actor: Wanted = None,
    action: Wanted = None,
    project: Wanted = None,
    connection: Connection = Connection(),
) -> ExitCode:
    """Write all rows as JSON, one per line, newest first.

    Parameters
    ----------
    file
        File to write or replace; without it, stdout.
    actor
        Only those of this person.
    action
        Only this action, such as job.cancel; of a refusal, the missing right.
    project
        Only those of this project.
    """
    with connection.client() as client:
        rows = client.audit(actor=actor, action=action, project=project)
        if file is None:
            for row in rows:
                print(row.model_dump_json())
            return ExitCode.OK
        count = 0
        with replacing(file) as draft, draft.open("w", encoding="utf-8") as lines:
            for row in rows:
                lines.write(f"{row.model_dump_json()}\n")
                count += 1
    say(f"{count:,} rows")
    print(file)
    return ExitCode.OK


def _print_table(found: list[AuditView], *, wide: bool) -> None:
    columns = ["TIME", "WHO", "ACTION", "TARGET", "PROJECT", "OUTCOME"]
    more = ["ADDRESS", "TOKEN", "REQUEST"] if wide else []
    rows = [
        [
            f"{row.at.astimezone():%Y-%m-%d %H:%M:%S}",
            row.actor,
            row.action,
            out.harmless(row.target),
            row.project or "-",
            row.outcome,
            *[word or "-" for word in (row.address, row.token, row.request_id) if wide],
        ]
        for row in found
    ]
    out.print_table([*columns, *more], rows)
