"""``project``: make, list, change and archive projects; give and take roles in them.

Not here: jobs of a project (``lockstep ps --project``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter

from lockstep.cli.common import Connection, Output, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lockstep.domain.people_views import ProjectView

app = App(
    name="project",
    help="Make, list, change and archive projects; give and take roles in them.",
    help_epilogue="",
    help_format="plaintext",
)
Role = Literal["viewer", "member", "admin"]
Visibility = Literal["internal", "private"]


@app.command
def ls(*, output: Output = Output(), connection: Connection = Connection()) -> ExitCode:
    """List projects."""
    with connection.client() as client:
        _print(client.projects(), output.format)
    return ExitCode.OK


@app.command
def show(
    project: str, /, *, output: Output = Output(), connection: Connection = Connection()
) -> ExitCode:
    """Show a project with its members and limits.

    Parameters
    ----------
    project
        Name of the project.
    """
    with connection.client() as client:
        found = client.project(project)
    if output.format == "json":
        out.print_json(found)
        return ExitCode.OK
    limits = found.limits.model_dump(exclude_none=True)
    out.print_facts(
        [
            ("project", found.name),
            ("title", found.title or "-"),
            ("visibility", found.visibility),
            ("state", "archived" if found.archived_at else "in use"),
            ("weight", f"{found.weight:g}"),
            (
                "limits",
                ", ".join(f"{name} {_shown(value)}" for name, value in limits.items()) or "-",
            ),
            ("members", ", ".join(f"{each.user} ({each.role})" for each in found.members) or "-"),
        ]
    )
    return ExitCode.OK


@app.command
def create(
    project: str,
    /,
    *,
    title: str = "",
    visibility: Visibility = "private",
    connection: Connection = Connection(),
) -> ExitCode:
    """Make a project.

    Parameters
    ----------
    project
        Name of the project.
    title
        What it is about.
    visibility
        internal: each person may read its jobs; private: only its members.
    """
    with connection.client() as client:
        client.add_project(project, title=title, visibility=visibility)
    say(f"project {project} is made; add people with: lockstep project add {project} NAME")
    return ExitCode.OK


@app.command(name="set")
def set_(
    project: str,
    /,
    *,
    title: str | None = None,
    visibility: Visibility | None = None,
    weight: Annotated[float | None, Parameter(show_default=False)] = None,
    limit: Annotated[list[str] | None, Parameter(negative=())] = None,
    connection: Connection = Connection(),
) -> ExitCode:
    """Change a project.

    Parameters
    ----------
    project
        Name of the project.
    title
        What it is about.
    visibility
        internal: each person may read its jobs; private: only its members.
    weight
        Its part of the devices, compared with the weights of the other projects. A new project has
        1.
    limit
        NAME=VALUE, or NAME= to remove it; may be repeated. Names: gpus_max, gpus_per_user_max,
        gpus_per_job_max, queued_max, queued_per_user_max, priority_max, timeout_default_seconds,
        timeout_max_seconds, budget_gpu_hours (of 30 days), budget_action (warn or hold).
    """
    given = {"title": title, "visibility": visibility, "weight": weight}
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with connection.client() as client:
        if limit:
            changes["limits"] = _limits(limit)
        _print([client.change_project(project, **changes)], "table")
    return ExitCode.OK


@app.command
def archive(
    project: str,
    /,
    *,
    undo: Annotated[bool, Parameter(negative=())] = False,
    connection: Connection = Connection(),
) -> ExitCode:
    """Archive a project: it takes no new jobs, and stays readable.

    Parameters
    ----------
    project
        Name of the project.
    undo
        Restore it.
    """
    with connection.client() as client:
        client.change_project(project, archived=not undo)
    say(f"project {project} is {'in use again' if undo else 'archived'}")
    return ExitCode.OK


@app.command
def add(
    project: str, user: str, /, *, role: Role = "member", connection: Connection = Connection()
) -> ExitCode:
    """Give a person a role in a project.

    Parameters
    ----------
    project
        Name of the project.
    user
        Name of the person.
    role
        viewer reads jobs, member also submits, admin also controls all jobs and members.
    """
    with connection.client() as client:
        client.set_member(project, user, role)
    say(f"{user} is {role} of project {project}")
    return ExitCode.OK


@app.command
def remove(project: str, user: str, /, *, connection: Connection = Connection()) -> ExitCode:
    """Take the role of a person in a project away.

    Parameters
    ----------
    project
        Name of the project.
    user
        Name of the person.
    """
    with connection.client() as client:
        client.remove_member(project, user)
    say(f"{user} has no role in project {project} any more")
    return ExitCode.OK


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _limits(words: Sequence[str]) -> dict[str, float | str | None]:
    """Return the values by name. The service checks them: it owns names and ranges."""
    from lockstep.client.errors import UsageError

    found: dict[str, float | str | None] = {}
    for word in words:
        name, given, value = word.partition("=")
        if not given:
            raise UsageError(f"--limit {word!r} is not NAME=VALUE, such as queued_max=100")
        found[name] = _number(value) if value else None
    return found


def _number(text: str) -> float | str:
    """Return the number that a text is; another text as it is."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _print(found: Sequence[ProjectView], form: str) -> None:
    if form == "json":
        out.print_json(found)
        return
    if form == "name":
        for project in found:
            print(project.name)
        return
    rows = [
        [
            project.name,
            project.visibility,
            f"{project.weight:g}",
            project.role or "-",
            str(len(project.members)),
            "archived" if project.archived_at else "in use",
            project.title,
        ]
        for project in found
    ]
    columns = ["PROJECT", "VISIBILITY", "WEIGHT", "YOUR ROLE", "MEMBERS", "STATE", "TITLE"]
    out.print_table(columns, rows, right=("WEIGHT", "MEMBERS"))
