"""``verify``: one job in several layouts, with a kill and a resume, compared.

Not here: the runs and their verdict (``domain.verify``), a verification without the service
(``engine.verify``).
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from lockstep.cli.common import Code, Connection, File, Flag, Output, Settings, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.domain.verify.layouts import CopyCut, Layout
    from lockstep.domain.verify.session import Verification


def verify(
    file: File,
    /,
    *,
    steps: int = 20,
    layouts: Annotated[str | None, Parameter(show_default=False)] = None,
    code: Code = None,
    settings: Settings = None,
    wait_seconds: float = 1800.0,
    keep: Flag = False,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Run a job in several layouts, kill and resume it, and compare all numbers.

    Each run is a short job, one after the other. The first layout is the reference. It is also run
    with weights that start one unit in the last place away, which sets the tolerance; and with
    SIGKILL to all ranks after half of the steps, resumed in the same layout and in the next one.

    Exit code 0: all runs agree; 1: a run differs, or was refused or failed.

    Parameters
    ----------
    file
        The job spec, as YAML or JSON; - reads it from stdin.
    steps
        Optimizer steps of each run, at least 4.
    layouts
        Ranks x micro-batch, separated by commas. By default 1x8,2x4,3x2, with as many ranks as the
        largest node has devices. Of a model cut over N ranks (train.parallel) Nx8,2Nx4,1x8: ranks
        that complete copies keep the cut, and others have a whole model each.
    code
        Folder with the job's code.
    settings
        Change one value of the spec: --set train.optimizer.lr=0.01. May be given several times.
    wait_seconds
        Time limit of one run, including its time in the queue, after which it is cancelled.
    keep
        Keep the jobs of the runs; otherwise they are deleted at the end.
    """
    from lockstep.cli.jobs.submit import prepared, send, tell_left_out
    from lockstep.client.verifying import ServiceRuns
    from lockstep.domain.verify import report
    from lockstep.domain.verify.layouts import DEFAULT, CopyCut
    from lockstep.domain.verify.session import Verification

    given = _layouts(layouts or DEFAULT, steps)
    form = output.format
    with prepared(file, code, settings, connection) as (client, spec, archive):
        if spec.check().train is None:
            raise UsageError("verify needs a job of kind: train")
        if archive is not None:
            send(client, archive, say)
            tell_left_out(archive, say, verbose=False)
        chosen = given if layouts else _fitting(client, CopyCut.of(spec.document), steps)
        done = Verification(spec.document, chosen, steps)
        for run in done.layouts():
            client.plan(run.document)  # Refused now, not after minutes.
        try:
            with (
                tempfile.TemporaryDirectory(prefix="lockstep-verify-") as folder,
                ServiceRuns(
                    client, Path(folder), wait_seconds=wait_seconds, keep=keep, say=say
                ) as runs,
            ):
                done.perform(runs)
        finally:
            # Before the error of a run that failed or took too long: those before it took minutes.
            _print(done, form)
    return ExitCode.OK if report.agrees(done) else ExitCode.FAILED


def _layouts(text: str, steps: int) -> list[Layout]:
    from lockstep.domain.verify.layouts import read_layouts
    from lockstep.domain.verify.runs import STEPS_MIN

    if steps < STEPS_MIN:
        raise UsageError(f"--steps: expected at least {STEPS_MIN}, got {steps}")
    try:
        return read_layouts(text)
    except ValueError as error:
        raise UsageError(f"--layouts: {error}") from None


def _fitting(client: Client, cut: CopyCut, steps: int) -> list[Layout]:
    """The default layouts, with no more ranks than the largest node has devices."""
    from lockstep.domain.verify.layouts import fitting

    layouts = _layouts(cut.default, steps)
    most = max((len(node.devices) for node in client.nodes()), default=0)
    chosen = fitting(layouts, most, cut.unit) if most else layouts
    if chosen != layouts:
        say(
            f"the largest node has {most} devices, so the layouts are {', '.join(map(str, chosen))}"
        )
    return chosen


def _print(done: Verification, form: str) -> None:
    """All that was found."""
    from lockstep.domain.verify import report

    if not done.rows:
        return
    if form == "json":
        import json

        print(json.dumps(report.document(done), indent=2))
    else:
        out.print_table(report.COLUMNS, report.table(done), right=report.COLUMNS[1:-1])
        print("\n".join(report.sentences(done)))
    sys.stdout.flush()
