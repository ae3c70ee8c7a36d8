"""``ckpt``: a job's checkpoints: which there are, fetching one, and checking one.

Not here: how a checkpoint is fetched and checked (``client.files.checkpoints``).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from lockstep.cli.common import Connection, Flag, JobName, Output, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ClientError, ExitCode, NotFoundError, UsageError

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.views import CheckpointView

app = App(
    name="ckpt",
    help="List, fetch and check a job's checkpoints.",
    help_epilogue="",
    help_format="plaintext",
)

Which = int | Literal["last", "best"]


@app.command
def ls(
    job: JobName, /, *, output: Output = Output(), connection: Connection = Connection()
) -> ExitCode:
    """List a job's checkpoints, newest first."""
    form = output.format
    with connection.client() as client:
        found = client.checkpoints(job)
    if form == "json":
        out.print_json(found)
    elif form == "name":
        for checkpoint in found:
            print(checkpoint.step)
    elif not found:
        say(f"no checkpoint of {job} yet; checkpoint.every_steps in its spec sets the interval")
    else:
        wide = ["SHA256", "WHERE"] if form == "wide" else []
        columns = ["STEP", "SIZE", "VALUE", "", "ATTEMPT", "AGE", *wide]
        rows = list(_rows(found, wide=form == "wide"))
        out.print_table(columns, rows, right=("STEP", "SIZE", "VALUE", "ATTEMPT"))
    return ExitCode.OK


@app.command
def get(
    job: JobName,
    /,
    *,
    step: int | None = None,
    best: Flag = False,
    last: Flag = False,
    model_only: Flag = False,
    folder: Annotated[Path, Parameter(name=["--folder", "-C"])] = Path(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Fetch a checkpoint into a folder of its own, step-00000050, and check it on the way.

    Parameters
    ----------
    step
        The checkpoint of this step.
    best
        The one with the lowest value of the metric that keep_best names.
    last
        The newest; also without any of these.
    model_only
        Only the exported model, which a run's last checkpoint has.
    folder
        Where to put it; by default the current folder.
    """
    from lockstep.client.files import checkpoints

    with connection.client() as client:
        found = client.checkpoint(job, _which(step, best=best, last=last))
        print(checkpoints.fetch(client, job, found, folder, model_only=model_only, say=say))
    return ExitCode.OK


@app.command
def verify(
    what: str,
    /,
    *,
    step: int | None = None,
    best: Flag = False,
    last: Flag = False,
    connection: Connection = Connection(),
) -> ExitCode:
    """Check a checkpoint's files against the digests in its manifest.

    Exit code 1 names the first that differs.

    Every checkpoint of a job is checked, also after one has failed.

    Parameters
    ----------
    what
        A checkpoint's folder on this machine, or a job: then all of its checkpoints are read from
        the server.
    step
        Of a job, only the checkpoint of this step.
    best
        Of a job, only the best one.
    last
        Of a job, only the newest one.
    """
    if Path(what).is_dir():
        from lockstep.client.files import checkpoints

        checked, files, size = checkpoints.verify(Path(what))
        _report(checked, files, size)
        return ExitCode.OK
    with connection.client() as client:
        if step is not None or best or last:
            found = [_listed(client, what, _which(step, best=best, last=last))]
        else:
            found = client.checkpoints(what)
        if not found:
            say(f"no checkpoint of {what} to check")
        failures = [
            failure for each in found if (failure := _check(client, what, each)) is not None
        ]
    if failures:
        raise failures[0]
    return ExitCode.OK


def _listed(client: Client, job: str, which: Which) -> CheckpointView:
    """Return a checkpoint from the list, which does not read the manifest: it may be damaged."""
    for each in client.checkpoints(job):
        if which == "last" or (each.best if which == "best" else each.step == which):
            return each
    return client.checkpoint(job, which)  # Refused, in the server's words.


def _check(client: Client, job: str, listed: CheckpointView) -> ClientError | None:
    """Check one checkpoint's files.

    A failure is printed at once, and the others are checked, too.
    """
    from lockstep.client.files import checkpoints

    step, attempt = listed.step, listed.attempt
    failure: ClientError
    try:
        checkpoint = client.checkpoint(job, step, attempt=attempt)
        for file in checkpoint.files:
            checkpoints.check_file(client, job, checkpoint, file)
    except checkpoints.DigestMismatchError as error:
        failure = error
    except NotFoundError as error:
        # Damaged in the store, or gone from it; a job that runs deletes its older ones, and forgets
        # them first.
        if (step, attempt) not in {(each.step, each.attempt) for each in client.checkpoints(job)}:
            print(f"step {step}: not checked, because it was pruned")
            return None
        failure = checkpoints.DigestMismatchError(error.message, next_step=checkpoints.TAKE_ANOTHER)
    else:
        _report(step, len(checkpoint.files) - 1, checkpoint.bytes)
        return None
    print(f"step {step}: {failure.message}")
    return failure


def _report(step: int, files: int, size: int) -> None:
    print(f"step {step}: {files} file{'s' if files != 1 else ''}, {out.size(size)}, unchanged")


def _which(step: int | None, *, best: bool, last: bool) -> Which:
    if (step is not None) + best + last > 1:
        raise UsageError(
            "--step, --best and --last exclude each other", next_step="give only one of them"
        )
    return step if step is not None else "best" if best else "last"


def _rows(found: list[CheckpointView], *, wide: bool) -> Iterator[list[str]]:
    now = datetime.now(UTC)
    for checkpoint in found:
        marks = [
            word
            for word, holds in (("best", checkpoint.best), ("final", checkpoint.final))
            if holds
        ]
        row = [
            str(checkpoint.step),
            out.size(checkpoint.bytes),
            out.number(checkpoint.value),
            ", ".join(marks),
            str(checkpoint.attempt),
            out.age(checkpoint.created_at, now),
        ]
        yield [*row, checkpoint.sha256, checkpoint.location] if wide else row
