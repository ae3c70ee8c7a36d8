"""``files``: the files that a job keeps: list, download, print and delete.

Not here: the places of downloaded files (``client.files.kept``).
"""

from __future__ import annotations

import codecs
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import App, Parameter

from lockstep.cli.common import Connection, JobName, Output, Yes, confirmed, require_terminal, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode, NotFoundError, UsageError
from lockstep.domain import limits
from lockstep.domain.life.lifecycle import TERMINAL
from lockstep.domain.views import Problem

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.file_views import KeptFilesPage, KeptFileView
    from lockstep.domain.views import JobView

app = App(
    name="files",
    help="List, download, print and delete the files that a job keeps.",
    help_epilogue="",
    help_format="plaintext",
)

ANNOUNCED_BYTES: Final = 64 * 2**20
"""Size from which a file is named before its download, too."""
NAMED_MAX: Final = 10

Glob = Annotated[str, Parameter(help="Path, or pattern as in .gitignore: *.pt, out/, /train.log.")]


@app.command
def ls(
    job: JobName, /, *glob: Glob, output: Output = Output(), connection: Connection = Connection()
) -> ExitCode:
    """List the files that a job keeps, also while it runs."""
    form = output.format
    with connection.client() as client:
        found = client.job(job)
        page = _listed(client, found, glob)
    if form == "json":
        out.print_json(page.items)
        return ExitCode.OK
    if form == "name":
        for file in page.items:
            print(out.escaped(file.path))
        return ExitCode.OK
    now = datetime.now(UTC)
    if page.items:
        wide = ["SHA256"] if form == "wide" else []
        rows = [_row(file, now, wide=bool(wide)) for file in page.items]
        columns = ["PATH", "SIZE", "AGE", "ATTEMPT", *wide]
        out.print_table(columns, rows, right=("SIZE", "ATTEMPT"))
    say(_closing(found, page, now))
    return ExitCode.OK


@app.command
def get(
    job: JobName,
    /,
    *glob: Glob,
    folder: Annotated[Path | None, Parameter(name=["--folder", "-o"], show_default=False)] = None,
    connection: Connection = Connection(),
) -> ExitCode:
    """Download files, and check each on the way.

    A file that is there with the same contents is not downloaded again, so the same command
    continues where another one stopped. A file with other contents is replaced.

    Parameters
    ----------
    folder
        Where to put them; by default a folder named after the job.
    """
    from lockstep.client.files import kept

    with connection.client() as client:
        found = client.job(job)
        page = _listed(client, found, glob)
        target = folder if folder is not None else kept.place_of(Path(), found.name)
        if not page.items:
            say(_closing(found, page, datetime.now(UTC)))
            return ExitCode.OK
        done = kept.fetch(client, found.id, glob, target, begins=_announce, wrote=_print_path)
    same = f"; {_files(done.unchanged)} already there" if done.unchanged else ""
    say(f"{_files(done.written)} downloaded to {target}{same}")
    return ExitCode.OK


@app.command
def cat(job: JobName, /, *glob: Glob, connection: Connection = Connection()) -> ExitCode:
    """Print one file to stdout."""
    from lockstep.client.files import kept

    _check_given("cat", glob)
    with connection.client() as client:
        found = client.job(job)
        files = _listed(client, found, glob).items
        # A path is also the pattern of the same name in each folder.
        files = [file for file in files if file.path in glob] or files
        if len(files) > 1:
            raise UsageError(
                f"cat prints one file; {len(files)} files of {found.name} match {_words(glob)}",
                next_step=f"name one of them: {_some(files)}",
            )
        name = out.escaped(files[0].path)
        instead = f"lockstep files get {out.short_id(found.id)} {shlex.quote(name)} downloads it"
        sink = _Screen(name, instead) if sys.stdout.isatty() else sys.stdout.buffer
        kept.verified(client, found.id, files[0], sink.write)
    return ExitCode.OK


@app.command
def rm(
    job: JobName, /, *glob: Glob, yes: Yes = False, connection: Connection = Connection()
) -> ExitCode:
    """Delete files that a job keeps, once it has ended or is paused.

    It cannot be taken back.

    Parameters
    ----------
    yes
        Do not ask.
    """
    _check_given("rm", glob)
    if not yes:
        require_terminal("files rm")
    with connection.client() as client:
        found = client.job(job)
        page = _listed(client, found, glob)
        which = f"{_files(page.total)} of {found.name} ({found.id})"
        say(_some(page.items))
        if not yes and not confirmed(
            f"delete {which}, {out.size(page.total_bytes)}?", otherwise=False
        ):
            say("nothing was deleted")
            return ExitCode.OK
        deleted = client.delete_files(found.id, glob)
    print(f"{_files(deleted.files)} deleted, {out.size(deleted.bytes)}")
    return ExitCode.OK


class _Screen:
    """A terminal as a target of text: characters that could change it are escaped."""

    def __init__(self, path: str, instead: str):
        self._path = path
        self._instead = instead
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def write(self, block: bytes) -> None:
        if b"\0" in block:
            raise UsageError(
                f"{self._path} is binary, and stdout is a terminal", next_step=self._instead
            )
        sys.stdout.write(out.escaped(self._decoder.decode(block), but="\n\t"))


def _listed(client: Client, job: JobView, glob: Sequence[str]) -> KeptFilesPage:
    """Return the matching files; at least one if there is a pattern.

    Raises
    ------
    NotFoundError, UsageError
    """
    if "" in glob or len(glob) > limits.KEPT_PATTERNS_MAX:
        raise UsageError(
            f"files: {len(glob)} patterns are given, at most {limits.KEPT_PATTERNS_MAX} can be"
            if all(glob)
            else "files: an empty pattern selects nothing",
            next_step="quote patterns, so that the shell does not replace them: '*.pt'",
        )
    page = client.files(job.id, glob)
    if glob and not page.items:
        raise NotFoundError(
            Problem(
                title="Not found",
                status=404,
                detail=f"no file of {job.name} matches {_words(glob)}",
                code="not_found",
                next_step=f"lockstep files ls {out.short_id(job.id)} lists its files",
            )
        )
    return page


def _closing(job: JobView, page: KeptFilesPage, now: datetime) -> str:
    """Number and size of the files; of a live job also their age."""
    is_live = job.state not in TERMINAL
    as_of = f", as of {out.age(page.as_of, now)} ago" if is_live and page.as_of else ""
    if page.items:
        return f"{_files(page.total)}, {out.size(page.total_bytes)}{as_of}"
    if is_live:
        place = "what it writes below its working folder is stored every minute"
        return f"{job.name} has no files yet{as_of}; {place}"
    return (
        f"{job.name} has no files: it wrote none below its working folder, outputs.keep leaves them "
        "out, or they were deleted"
    )


def _row(file: KeptFileView, now: datetime, *, wide: bool) -> list[str]:
    row = [
        out.escaped(file.path),
        out.size(file.bytes),
        out.age(file.modified_at, now),
        str(file.attempt),
    ]
    return [*row, file.sha256] if wide else row


def _check_given(command: str, glob: Sequence[str]) -> None:
    if not glob:
        raise UsageError(
            f"files {command}: no file is given",
            next_step="name a path or a pattern; lockstep files ls JOB lists the files",
        )


def _announce(file: KeptFileView) -> None:
    if file.bytes >= ANNOUNCED_BYTES:
        say(f"downloading {out.escaped(file.path)}, {out.size(file.bytes)}")


def _print_path(path: Path) -> None:
    print(out.escaped(str(path)), flush=True)


def _files(count: int) -> str:
    return f"{count:,} file{'s' if count != 1 else ''}"


def _words(glob: Sequence[str]) -> str:
    return " ".join(map(out.escaped, glob))


def _some(files: Sequence[KeptFileView]) -> str:
    named = ", ".join(out.escaped(file.path) for file in files[:NAMED_MAX])
    more = len(files) - NAMED_MAX
    return f"{named} and {more:,} more" if more > 0 else named
