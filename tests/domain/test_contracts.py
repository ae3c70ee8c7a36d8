"""Schemas that programs exchange: views, files of an attempt, errors, arguments of tasks, limits."""

from __future__ import annotations

import inspect
import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from lockstep.domain import limits, series_views, views
from lockstep.domain.errors import ErrorCode, LockstepError, pointer_of
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import (
    AssignmentFile,
    EngineEvent,
    FenceFile,
    StopFile,
    segment_name,
)
from lockstep.domain.life.lifecycle import AttemptState, JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.spec import tasks
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.plan import plan_of
from tests.domain.documents import train_document

NOW = datetime(2026, 11, 20, 12, 30, tzinfo=UTC)


def _view() -> dict[str, Any]:
    return {
        "id": "0192", "name": "a", "project": "default", "kind": "train", "state": "failed", (
            "reason"): None,
        "spec": {}, "plan": None, "plan_sentence": None, "progress": None, "attempt": None, (
            "queue"): None,
        "intent": None, "outcome": None, "priority": 50, "labels": {}, "created_at": NOW, (
            "started_at"): None,
        "finished_at": None, "version": 3,
    }  # fmt: skip


def test_a_job_reads_back_from_its_json_as_it_was() -> None:
    outcome = Outcome.of(Reason.USER_ERROR, "rank 0 raised ValueError", rank=0)
    newest = views.AttemptView(
        number=1, state=AttemptState.ENDED, nodes=["n1"], world_size=2, outcome=outcome, created_at=NOW,
        running_at=NOW, ended_at=NOW,
    )  # fmt: skip
    plan = plan_of(read_spec(train_document()))
    view = views.JobView.model_validate(
        {**_view(), "attempt": newest, "outcome": outcome, "plan": plan}
    )
    assert views.JobView.model_validate_json(view.model_dump_json()) == view
    assert view.state is JobState.FAILED


def test_times_are_rfc_3339_in_utc() -> None:
    document = json.loads(views.JobView.model_validate(_view()).model_dump_json())
    assert document["created_at"] == "2026-11-20T12:30:00Z"


def test_a_series_carries_non_finite_values_as_text() -> None:
    series = series_views.SeriesView(
        name="train/loss",
        unit="loss",
        attempt=1,
        count=1,
        step=[1],
        time=[0.0],
        value=["NaN"],
        min=["NaN"],
        max=["NaN"],
    )
    json.loads(
        series.model_dump_json(), parse_constant=lambda name: pytest.fail(f"{name} is not JSON")
    )


def test_progress_refuses_a_text_that_is_no_number() -> None:
    numbers = {"step": 1, "steps": None, "samples": None, "fraction": None, "eta_seconds": None}
    progress = views.Progress.model_validate({**numbers, "latest": {"a": "NaN", "b": "-Infinity"}})
    assert math.isnan(progress.latest["a"])
    assert json.loads(progress.model_dump_json())["latest"] == {"a": "NaN", "b": "-Infinity"}
    with pytest.raises(ValidationError):
        views.Progress.model_validate({**numbers, "latest": {"a": "high"}})


@pytest.mark.parametrize(
    "view",
    [
        view
        for _, view in inspect.getmembers(views, inspect.isclass)
        if view.__module__ == "lockstep.domain.views"
    ],
)
def test_no_view_can_be_changed_after_it_was_made(view: Any) -> None:
    if issubclass(view, BaseModel):
        assert view.model_config["frozen"] is True


def test_a_problem_is_an_rfc_9457_document() -> None:
    problem = views.Problem(title="Invalid", status=422, detail="x", code=ErrorCode.INVALID.value)
    assert {"type", "title", "status", "detail", "instance"} <= set(problem.model_dump())
    assert problem.type == "about:blank"


def test_an_assignment_survives_its_file() -> None:
    spec = read_spec(train_document())
    assignment = AssignmentFile(
        job_id="j", attempt_number=1, assignment_id="a", spec=spec, plan=plan_of(spec), node_name=(
            "n"), ranks_here=1,
        world_size=1, devices=[0], device_kind="cpu", rendezvous_port=29_500, stop_grace_seconds=5.0,
        exit_stall_seconds=30.0,
    )  # fmt: skip
    assert AssignmentFile.model_validate_json(assignment.model_dump_json()) == assignment


def test_an_attempts_folder_contains_no_credential() -> None:
    models = [
        model
        for _, model in inspect.getmembers(attempt, inspect.isclass)
        if model.__module__ == "lockstep.domain.life.attempt"
    ]
    names = {name for model in models for name in model.model_fields}
    assert names
    assert not {
        name for name in names if "token" in name or "password" in name or name.endswith("_url")
    }


@pytest.mark.parametrize(
    ("model", "document"),
    [
        (StopFile, {"reason": "because", "grace_seconds": 5}),
        (StopFile, {"reason": "cancelled"}),
        (FenceFile, {}),
        (EngineEvent, {"kind": "surprise", "time": 0.0}),
    ],
)
def test_a_file_that_breaks_the_contract_is_not_read(
    model: type[BaseModel], document: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(document)


def test_log_segments_sort_by_name_as_by_number() -> None:
    numbers = [0, 1, 9, 10, 99, 100, 99_999]
    assert sorted(map(segment_name, numbers)) == [segment_name(number) for number in numbers]


@pytest.mark.parametrize(
    ("location", "pointer"),
    [((), ""), (("a", 0, "b"), "/a/0/b"), (("a/b", "c~d"), "/a~1b/c~0d"), (("~1",), "/~01")],
)
def test_a_pointer_is_escaped_according_to_rfc_6901(
    location: tuple[int | str, ...], pointer: str
) -> None:
    assert pointer_of(location) == pointer


def test_an_error_reads_as_its_message() -> None:
    error = LockstepError(ErrorCode.CONFLICT, "the job has ended", next_step="submit it again")
    assert str(error) == error.message == "the job has ended"
    assert (error.code, error.next_step, error.fields) == ("conflict", "submit it again", ())


@pytest.mark.parametrize("name", ["causal_lm", "image_classification"])
def test_a_built_in_task_runs_without_arguments(name: str) -> None:
    assert tasks.parse_args(name, {}).model_dump()


@pytest.mark.parametrize("name", tasks.BUILT_IN)
def test_a_built_in_task_is_nobodys_own(name: str) -> None:
    assert not tasks.is_own_task(name)


@pytest.mark.parametrize(
    ("task", "args"),
    [
        ("causal_lm", {"context": 7}),
        ("causal_lm", {"max_bytes": 999}),
        ("causal_lm", {"heads": 3, "width": 128}),
        ("causal_lm", {"layers": True}),
        ("causal_lm", {"dropout": 1.0}),
        ("hf_causal_lm", {"path": "text.txt"}),
        ("image_classification", {"width": 3}),
        ("image_classification", {"eval_fraction": 1}),
        ("image_classification", {"eval_fraction": 0}),
    ],
)
def test_arguments_out_of_range_are_refused(task: str, args: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        tasks.parse_args(task, args)


def test_an_unknown_task_has_no_arguments() -> None:
    with pytest.raises(KeyError):
        tasks.parse_args("nothing", {})


def test_every_limit_is_a_positive_whole_number() -> None:
    values = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert values
    for name, value in values.items():
        assert type(value) is int, name
        assert value > 0, name


def test_limits_that_hold_one_another_are_in_order() -> None:
    assert limits.LOG_LINE_BYTES_MAX < limits.LOG_SEGMENT_BYTES < limits.LOG_BACKLOG_BYTES_MAX
    assert limits.UPLOAD_BYTES_MAX < limits.UPLOAD_UNPACKED_BYTES_MAX
    assert limits.PAGE_SIZE_DEFAULT < limits.PAGE_SIZE_MAX
