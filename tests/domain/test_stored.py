"""Documents of another version: neutral unknown fields are ignored, others are refused by name."""

from __future__ import annotations

import copy
import json
import logging
from typing import Annotated, Any, get_args, get_origin

import pytest
from pydantic import BaseModel, ValidationError

from lockstep.domain.errors import LockstepError
from lockstep.domain.life.attempt import AssignmentFile, StopFile
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.spec.stored import UnreadableSpecError, read_stored_spec

TRAIN: dict[str, Any] = {
    "name": "gpt",
    "kind": "train",
    "resources": {"gpus": 2},
    "train": {
        "task": "causal_lm",
        "task_args": {"layers": 2},
        "batch": {"size": 64},
        "steps": 200,
        "optimizer": {"name": "sgd", "lr": 0.1},
    },
    "code": {"path": "/code"},
}
STORED: dict[str, Any] = read_spec(TRAIN).model_dump(mode="json")
PLACES = [
    (),
    ("retry",),
    ("resources",),
    ("train",),
    ("train", "optimizer"),
    ("train", "strategy"),
    ("code",),
]
NEUTRAL: list[Any] = [None, False, 0, 0.0, "", [], {}, {"a": None, "b": {"c": []}}]
MEANT: list[Any] = [True, 1, -0.5, "x", [0], {"a": None, "b": 3}]


def changed(place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return the stored spec with the field ``novel`` of this value in the section at ``place``."""
    document = copy.deepcopy(STORED)
    section = document
    for part in place:
        section = section[part]
    section["novel"] = value
    return document


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", NEUTRAL)
def test_an_unknown_field_of_neutral_value_is_ignored_and_logged(
    place: tuple[str, ...], value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    document = changed(place, value)
    before = copy.deepcopy(document)
    with caplog.at_level(logging.WARNING):
        assert read_stored_spec(document) == read_spec(TRAIN)
    assert document == before
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == [
        ".".join((*place, "novel"))
    ]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("value", MEANT)
def test_an_unknown_field_with_an_effect_is_refused_by_name(
    place: tuple[str, ...], value: Any
) -> None:
    with pytest.raises(UnreadableSpecError) as refused:
        read_stored_spec(changed(place, value))
    assert f"unknown field {'.'.join((*place, 'novel'))} = " in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_unknown_choice_is_refused_by_name() -> None:
    document = copy.deepcopy(STORED)
    document["train"]["strategy"]["name"] = "pipeline"
    with pytest.raises(UnreadableSpecError, match=r"train\.strategy\.name: .*got 'pipeline'"):
        read_stored_spec(document)


@pytest.mark.parametrize("value", NEUTRAL + MEANT)
def test_unknown_fields_in_a_submit_are_still_refused(value: Any) -> None:
    with pytest.raises(LockstepError, match="unknown field"):
        read_spec({**TRAIN, "novel": value})


ASSIGNMENT: dict[str, Any] = {
    "job_id": "j",
    "attempt_number": 1,
    "assignment_id": "a",
    "spec": STORED,
    "plan": None,
    "node_name": "n",
    "ranks_here": 2,
    "world_size": 2,
    "devices": [0, 1],
    "device_kind": "cpu",
    "rendezvous_port": 1,
    "stop_grace_seconds": 5.0,
    "exit_stall_seconds": 30.0,
}


def test_an_assignment_of_another_version_is_read_alike() -> None:
    known = AssignmentFile.model_validate(ASSIGNMENT)
    for document in (
        {**ASSIGNMENT, "novel": None},
        {**ASSIGNMENT, "spec": changed(("retry",), [])},
    ):
        assert AssignmentFile.model_validate_json(json.dumps(document)) == known
    for document in ({**ASSIGNMENT, "novel": 7}, {**ASSIGNMENT, "spec": changed(("retry",), 7)}):
        with pytest.raises(ValidationError, match="novel"):
            AssignmentFile.model_validate_json(json.dumps(document))


def test_a_stop_with_unknown_fields_is_refused() -> None:
    stop = {"reason": "cancelled", "grace_seconds": 5.0}
    assert StopFile.model_validate_json(json.dumps({**stop, "novel": False})).reason == "cancelled"
    with pytest.raises(ValidationError, match="novel"):
        StopFile.model_validate_json(json.dumps({**stop, "novel": True}))


def test_an_outcome_of_a_newer_version_is_read() -> None:
    """It is a report: its message is worth more than the fields unknown to this version."""
    outcome = Outcome.stored({"reason": "novel", "message": "it ended so", "novel": 3})
    assert (outcome.reason, outcome.message) == (Reason.VERSION, "it ended so")
    assert Outcome.stored({"reason": "stall", "message": "x"}).reason is Reason.STALL


OLDEST = frozenset(
    "project train.batch.micro_size train.checkpoint.keep_last train.checkpoint.background"
    " train.clip_grad_norm train.log_every_steps train.memory_headroom train.non_finite"
    " train.optimizer.name train.optimizer.lr train.optimizer.betas train.optimizer.eps "
    "train.optimizer.weight_decay"
    " train.precision train.schedule.name train.seed"
    " train.stall.factor train.stall.first_step_seconds train.stall.min_seconds "
    "train.strategy.compression"
    " train.strategy.name code.ref priority retry.max".split()
)
"""Fields whose default requests something. Every program of a supported version has them."""


def test_the_default_of_a_new_field_of_the_spec_is_neutral() -> None:
    """Otherwise a program of the previous version would refuse the job, although it does not use
    the field.
    """
    assert {name for name, default in fields(JobSpec) if default} == OLDEST


def test_a_default_with_an_effect_is_omitted_from_stored_specs() -> None:
    """A program of the previous version ignores the field, and this version reads its default."""
    script = {"name": "s", "kind": "script", "script": {"command": ["a.py"]}}
    stored = read_spec(script).model_dump(mode="json")
    assert "silence_seconds" not in stored["script"]
    assert read_stored_spec(stored).script == read_spec(script).script
    stored["script"]["silence_seconds"] = None
    assert read_stored_spec(stored).model_dump(mode="json") == stored


def fields(model: type[BaseModel], prefix: str = "") -> list[tuple[str, Any]]:
    """Return names and defaults of all optional fields that are not sections."""
    found: list[tuple[str, Any]] = []
    for name, field in model.model_fields.items():
        if field.exclude_if is not None:
            continue
        sections = models(field.annotation)
        for section in sections:
            found += fields(section, f"{prefix}{name}.")
        if not sections and not field.is_required():
            found.append((prefix + name, field.get_default(call_default_factory=True)))
    return found


def models(annotation: Any) -> list[type[BaseModel]]:
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for argument in get_args(annotation) for model in models(argument)]
