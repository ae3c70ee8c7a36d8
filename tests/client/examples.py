"""Objects of ``domain.views`` as possible answers of a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from lockstep.domain.file_views import KeptFilesPage
from lockstep.domain.life.lifecycle import AttemptState, JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.list_views import JobPage
from lockstep.domain.series_views import MetricsView, SeriesView
from lockstep.domain.training.plan import BatchPlan
from lockstep.domain.views import (
    AttemptView,
    CallerView,
    CheckpointView,
    EventView,
    JobView,
    LogLine,
    LogPage,
    NodeView,
    Page,
    PlanView,
    Progress,
    QueuePlace,
)

ID = "01990000-0000-7000-8000-0123456789ab"
T0 = datetime(2026, 11, 20, 12, 0, 0, tzinfo=UTC)
PLAN = BatchPlan(batch_size=64, micro_batch_size=8, accumulation_steps=4, world_size=2, steps=200)
SPEC: dict[str, Any] = {
    "name": "tiny",
    "kind": "train",
    "resources": {"gpus": 2},
    "train": {"task": "causal_lm", "batch": {"size": 64, "micro_size": 8}, "steps": 200},
}
YAML = """\
name: tiny
kind: train
resources: {gpus: 2}
train:
  task: causal_lm
  batch: {size: 64, micro_size: 8}
  steps: 200
"""


def listed(items: Sequence[JobView], next_cursor: str | None = None) -> JobPage:
    """Return a page of a list of jobs."""
    return JobPage.model_validate(
        {
            "items": [job.model_dump(mode="json") for job in items],
            "next_cursor": next_cursor,
            "total": len(items),
        }
    )


def job(state: JobState = JobState.QUEUED, **changes: Any) -> JobView:
    started = state is not JobState.QUEUED
    ended = state in (JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED)
    values: dict[str, Any] = {
        "id": ID,
        "name": "tiny",
        "project": "default",
        "kind": "train",
        "state": state,
        "reason": None,
        "spec": SPEC,
        "plan": PLAN,
        "plan_sentence": PLAN.sentence(),
        "progress": None,
        "attempt": attempt() if started else None,
        "queue": QueuePlace(position=1, reason="waits for 2 free devices") if not started else None,
        "intent": None,
        "outcome": None,
        "priority": 50,
        "labels": {},
        "created_at": T0,
        "started_at": T0 + timedelta(seconds=2) if started else None,
        "finished_at": T0 + timedelta(seconds=67) if ended else None,
        "version": 1,
    }
    return JobView.model_validate({**values, **changes})


def attempt(number: int = 1, **changes: Any) -> AttemptView:
    values: dict[str, Any] = {
        "number": number,
        "state": AttemptState.RUNNING,
        "nodes": ["node-1"],
        "world_size": 2,
        "outcome": None,
        "created_at": T0,
        "running_at": T0,
        "ended_at": None,
    }
    return AttemptView.model_validate({**values, **changes})


def progress(step: int, loss: float | str = 2.5) -> Progress:
    return Progress(
        step=step,
        steps=200,
        samples=step * 64,
        fraction=step / 200,
        eta_seconds=float(200 - step),
        latest={"train/loss": loss, "throughput/samples_per_second": 231.0},
    )


def succeeded() -> JobView:
    outcome = Outcome.of(Reason.SUCCEEDED, "all 2 ranks succeeded", last_step=200)
    return job(JobState.SUCCEEDED, progress=progress(200, 2.4), outcome=outcome)


def failed() -> JobView:
    outcome = Outcome.of(
        Reason.USER_ERROR,
        "rank 1 raised ValueError",
        rank=1,
        node="node-1",
        exit_code=1,
        exception="ValueError: the data is bad",
        traceback='File "task.py", line 7, in loss\nValueError: the data is bad',
        last_step=17,
    )
    return job(JobState.FAILED, progress=progress(17), outcome=outcome, reason="user_error")


def series(
    name: str, values: list[float | str], *, attempt: int = 1, count: int | None = None
) -> SeriesView:
    steps = list(range(1, len(values) + 1))
    return SeriesView(
        name=name,
        unit="s" if name.startswith("time/") else "loss",
        direction="lower" if name.endswith("loss") else "none",
        attempt=attempt,
        count=len(values) if count is None else count,
        step=steps,
        time=[1000.0 + step for step in steps],
        value=values,
        min=values,
        max=values,
    )


def metrics(*found: SeriesView) -> MetricsView:
    return MetricsView(job_id=ID, series=list(found), cursor="AAAA", complete=True)


def run_metrics() -> MetricsView:
    return metrics(
        series("train/loss", [5.545, 3.0, 2.4]),
        series("time/step_seconds", [1.0, 1.0, 2.0]),
        series("time/backward_seconds", [0.5, 0.5, 1.0]),
        series("time/forward_seconds", [0.25, 0.25, 0.5]),
        series("time/checkpoint_seconds", [1.0]),
    )


def plan_view() -> PlanView:
    return PlanView(
        plan=PLAN, sentence=PLAN.sentence(), spec=SPEC, placement=["node-1"], queue=None
    )


def checkpoints() -> Page[CheckpointView]:
    checkpoint = CheckpointView(
        step=200,
        attempt=1,
        bytes=3 * 2**20,
        sha256="0" * 64,
        final=True,
        created_at=T0,
        location="/store/jobs/x/1/step-00000200",
    )
    return Page[CheckpointView](items=[checkpoint])


def files(total: int = 0) -> KeptFilesPage:
    """Return a page without its files."""
    return KeptFilesPage(
        items=[], next_cursor=None, total=total, total_bytes=total * 2**20, as_of=None
    )


def events() -> Page[EventView]:
    return Page[EventView](
        items=[
            EventView(
                id=1, at=T0, kind="submitted", attempt=None, actor="ada", message="submitted"
            ),
            EventView(
                id=2, at=T0, kind="placed", attempt=1, actor="scheduler", message="placed on node-1"
            ),
        ]
    )


def log_page(*texts: str, start: int = 0, complete: bool = True) -> LogPage:
    lines = [
        LogLine(
            line=start + number, attempt=1, time=T0, rank=number % 2, stream="stdout", text=text
        )
        for number, text in enumerate(texts)
    ]
    return LogPage(lines=lines, next_cursor=f"c{start + len(lines)}", complete=complete)


def node() -> NodeView:
    return NodeView.model_validate(
        {
            "name": "node-1",
            "state": "ready",
            "seen_at": T0,
            "devices": [
                {"index": index, "kind": "cpu", "type": "cpu", "memory_bytes": None}
                | {"job_id": job_id, "held": job_id is not None}
                for index, job_id in enumerate((ID, None))
            ],
            "devices_free": 1,
            "version": "0.1.0",
        }
    )


def caller(**changes: Any) -> CallerView:
    """Return the caller of a service of one person."""
    values: dict[str, Any] = {
        "name": "ada",
        "title": "",
        "role": None,
        "projects": {},
        "rights": [],
        "rights_everywhere": [],
        "rights_in": {},
        "credential": "session",
        "scopes": None,
        "expires_at": None,
        "has_password": True,
        "is_alone": True,
    }
    return CallerView(**values | changes)
