"""``show`` and ``events``: one job in full.

Not here: its numbers (``cli.jobs.metrics``) and its lines (``cli.jobs.logs``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Final

from cyclopts import Parameter

from lockstep.cli.common import Connection, JobName, Output, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode, UsageError
from lockstep.domain.life.lifecycle import TERMINAL

if TYPE_CHECKING:
    from datetime import datetime

    from lockstep.domain.file_views import KeptFilesPage
    from lockstep.domain.views import CheckpointView, EventView, JobView, Progress

EVENTS_SHOWN: Final = 50
"""Events that ``show`` prints: more would push the summary off the screen."""
LATEST: Final = ("train/loss", "loss", "eval/loss", "throughput/samples_per_second")


def show(
    job: JobName, /, *, output: Output = Output(), connection: Connection = Connection()
) -> ExitCode:
    """Show one job: plan, progress, outcome, checkpoints, files and events."""
    form = output.format
    with connection.client() as client:
        found = client.job(job)
        if form == "json":
            out.print_json(found)
            return ExitCode.OK
        if form == "name":
            print(found.id)
            return ExitCode.OK
        # One more than shown, to detect that there are more.
        events = list(client.events(found.id, tail=EVENTS_SHOWN + 1))
        checkpoints = client.checkpoints(found.id)
        files = client.files_page(found.id, limit=1)
    out.print_facts(_facts(found, checkpoints, files))
    if events:
        print()
        _print_events(events[-EVENTS_SHOWN:])
    if len(events) > EVENTS_SHOWN:
        say(
            f"only the newest {EVENTS_SHOWN} events are shown: lockstep events "
            f"{out.short_id(found.id)} shows all"
        )
    if form == "wide":
        print()
        print(json.dumps(found.spec, indent=2, ensure_ascii=False))
    return ExitCode.OK


def events(
    job: JobName,
    /,
    *,
    tail: Annotated[int | None, Parameter(name=["--tail", "-n"])] = None,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """List a job's events, oldest first.

    Parameters
    ----------
    tail
        Only the last N.
    """
    if tail is not None and tail < 1:
        raise UsageError(f"--tail {tail}: expected 1 or more")
    form = output.format
    with connection.client() as client:
        found = list(client.events(client.job(job).id, tail=tail))
    if form == "json":
        out.print_json(found)
    elif form == "name":
        for event in found:
            print(event.kind)
    else:
        _print_events(found)
    return ExitCode.OK


def _print_events(found: Iterable[EventView]) -> None:
    rows = [
        [
            f"{event.at.astimezone():%Y-%m-%d %H:%M:%S}",
            str(event.attempt) if event.attempt is not None else "-",
            event.kind,
            event.actor,
            out.harmless(event.message),
        ]
        for event in found
    ]
    out.print_table(["WHEN", "ATTEMPT", "EVENT", "WHO", "WHAT"], rows, right=("ATTEMPT",))


def _facts(
    job: JobView, checkpoints: list[CheckpointView], files: KeptFilesPage
) -> Iterator[tuple[str, str]]:
    from lockstep.cli.text.closing import files_facts, outcome_facts

    yield "job", job.name
    yield "id", job.id
    yield "state", out.styled(out.state_of(job))
    if job.queue is not None:
        yield "waits", out.turn(job.queue)
    if job.limit is not None:
        yield "limit", out.time_limit(job.limit)
    yield "what", out.activity(job.spec)
    if job.plan_sentence:
        yield "batch", job.plan_sentence
    if job.plan is not None and job.plan.memory is not None:
        yield "memory", job.plan.memory.sentence()
    if job.attempt is not None:
        ranks = f"{job.attempt.world_size} rank{'s' if job.attempt.world_size != 1 else ''}"
        yield (
            "attempt",
            f"{job.attempt.number}, {job.attempt.state}, {ranks} on {', '.join(job.attempt.nodes)}",
        )
    if job.progress is not None:
        yield from _progress(job, job.progress)
    yield "project", f"{job.project}, priority {job.priority}"
    if job.labels:
        yield "labels", ", ".join(f"{key}={value}" for key, value in sorted(job.labels.items()))
    yield from _moments(job)
    for checkpoint in sorted(checkpoints, key=lambda each: -each.step):
        yield (
            "checkpoint",
            f"step {checkpoint.step}, {out.size(checkpoint.bytes)}, {checkpoint.location}",
        )
    yield from files_facts(job, files)
    if job.outcome is not None and job.state in TERMINAL:
        yield from outcome_facts(job.outcome)
    elif job.outcome is not None:
        yield "before", f"an attempt ended: {job.outcome.reason}: {job.outcome.message}"


def _progress(job: JobView, progress: Progress) -> Iterator[tuple[str, str]]:
    total = f" of {progress.steps}" if progress.steps else ""
    share = f" ({100 * progress.fraction:.0f} %)" if progress.fraction is not None else ""
    left = (
        f", {out.duration(progress.eta_seconds)} left"
        if progress.eta_seconds and not job.finished_at
        else ""
    )
    yield "progress", f"step {progress.step}{total}{share}{left}"
    latest = [name for name in LATEST if name in progress.latest]
    if latest:
        yield "latest", " · ".join(f"{name} {out.number(progress.latest[name])}" for name in latest)


def _moments(job: JobView) -> Iterator[tuple[str, str]]:
    from datetime import UTC, datetime

    yield "created", _moment(job.created_at) + (f" by {job.owner}" if job.owner else "")
    if job.started_at is not None:
        yield "started", _moment(job.started_at)
    if job.finished_at is not None:
        took = out.took(job, datetime.now(UTC))
        yield (
            "ended",
            _moment(job.finished_at)
            + (f", after {out.duration(took)}" if took is not None else ""),
        )
    if job.deleting:
        yield "deleting", "a request deletes its data; no job can begin from it any more"


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
