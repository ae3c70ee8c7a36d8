"""``drill``: end one process of the service, or of a small job, on purpose, and report the result.

Not here: the drill itself (``client.drills``), and the drills of every fault, many times (``make
drill``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lockstep.cli.common import Connection, Output, Yes, confirmed, say
from lockstep.cli.text import output as out
from lockstep.client.drills.report import PROGRAMS, Fault
from lockstep.client.errors import ClientError, ExitCode, UsageError

if TYPE_CHECKING:
    from lockstep.client.drills.report import DrillReport
    from lockstep.domain.views import JobView

STEPS_MIN: Final = 24
STEPS_MAX: Final = 10_000
"""So that no step is left out of an answer."""


def drill(
    fault: Fault,
    /,
    *,
    steps: int = 400,
    within_seconds: float = 60.0,
    wait_seconds: float = 600.0,
    yes: Yes = False,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """End one process on purpose, and report the detection, the recovery, and any loss.

    It submits a small job of two ranks twice, named drill-..., kills the process while the second
    one trains, and compares both runs: each step once, no process left over, final weights bitwise
    equal. Exit code 0: all of it held.

    It works on the machine, and with the LOCKSTEP_HOME, of a `lockstep up`. rank and launcher touch
    only the drill's own job. agent, scheduler, api and broker are the whole service's: other users'
    jobs must survive their end, too, and the command asks first.

    Parameters
    ----------
    fault
        The process to kill: a rank or the launcher of the drill's own job, this node's agent, the
        scheduler, the api, or the bundled broker.
    steps
        Optimizer steps of each of the two runs, 24 to 10000.
    within_seconds
        Limit for the detection of the fault, and for the recovery.
    wait_seconds
        Time limit of one run, including its time in the queue, after which it is cancelled.
    yes
        Do not ask, also while other users' jobs run.
    """
    from lockstep.client.drills.running import Drill, others
    from lockstep.client.local.home import Home
    from lockstep.client.local.machine import Machine

    if not STEPS_MIN <= steps <= STEPS_MAX:
        raise UsageError(
            f"--steps: expected a whole number from {STEPS_MIN} to {STEPS_MAX}, got {steps}"
        )
    machine = Machine(Home.of(os.environ))
    machine.check(connection.server().url)
    with connection.client() as client:
        running = others(client) if fault in PROGRAMS else []
        if running and not yes and not _confirmed(fault, running):
            say("no process was started or killed")
            return ExitCode.FAILED
        report = Drill(
            client,
            machine,
            fault,
            steps=steps,
            within_seconds=within_seconds,
            wait_seconds=wait_seconds,
            sparing=not (yes or running),
            say=say,
        ).run()
    _print(report, output.format)
    return ExitCode.OK if report.held else ExitCode.FAILED


def _confirmed(fault: Fault, running: list[JobView]) -> bool:
    """Ask whether a program that others' jobs depend on may be killed.

    Only a user at a terminal can agree.
    """
    named = ", ".join(job.name for job in running[:3]) + (" …" if len(running) > 3 else "")
    jobs = f"{len(running)} job{'s' if len(running) > 1 else ''} of others ({named})"
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ClientError(
            f"the {fault} is the whole service's, and {jobs} run{'s' if len(running) == 1 else ''}",
            next_step="these jobs must survive it; pass --yes to run the drill now",
        )
    return confirmed(
        f"the {fault} is the whole service's; kill it while {jobs} run?", otherwise=False
    )


def _print(report: DrillReport, form: str) -> None:
    if form == "json":
        out.print_json(report)
    elif form == "name":
        print(report.disturbed)
    else:
        out.print_facts(_facts(report, wide=form == "wide"))


def _facts(report: DrillReport, *, wide: bool) -> Iterator[tuple[str, str]]:
    held = "passed: no step was lost or doubled, and the weights are equal"
    yield "drill", out.Word(held, "green") if report.held else out.Word("did not hold", "red")
    for problem in report.problems:
        yield "", problem
    yield "killed", f"{report.killed} with SIGKILL, after step {report.at_step}"
    if report.gone_seconds is not None:
        yield "ranks gone", f"after {out.duration(report.gone_seconds)}"
    yield (
        "noticed",
        "not seen"
        if report.noticed_seconds is None
        else f"after {out.duration(report.noticed_seconds)}",
    )
    if report.recovered_seconds is not None:
        yield "recovered", f"after {out.duration(report.recovered_seconds)}: {report.went_on}"
    else:
        yield "recovered", f"not seen: {report.went_on}"
    longest = f"the longest pause between two steps was {out.duration(report.pause_seconds)}"
    undisturbed = f"{out.duration(report.undisturbed_pause_seconds)} in the undisturbed run"
    attempts = f"{report.attempts} attempt{'s' if report.attempts != 1 else ''}"
    yield "training", f"{attempts}; {longest} ({undisturbed})"
    again = (
        f"; {report.steps_again} repeated from the checkpoint, reported once"
        if report.steps_again
        else ""
    )
    yield (
        "steps",
        f"{report.steps}: {report.steps_lost} lost, {report.steps_doubled} doubled{again}",
    )
    yield "processes", f"{report.processes_left} left over"
    if report.different or not report.tensors:
        yield (
            "weights",
            f"{len(report.different)} of {report.tensors} tensors differ from the undisturbed "
            f"run's",
        )
        if wide:
            yield "", ", ".join(report.different)
    else:
        yield (
            "weights",
            f"{report.tensors} tensors, {report.numbers:,} numbers: bitwise the undisturbed run's",
        )
    yield "jobs", f"{report.undisturbed} undisturbed, {report.disturbed} disturbed"
