"""Resumes with other training fields than the checkpoint's run had."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.checkpoints.changes import (
    Change,
    affect_weights,
    changes,
    sentence,
    training_fields,
)
from tests.engine import cases
from tests.engine.checkpoints.test_resume import OPTIONS
from tests.engine.spool import events
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

STEP = 4
BASE: dict[str, Any] = OPTIONS | {"steps": STEP, "schedule": {"name": "constant"}}
ADAMW = BASE["optimizer"]


def resumed(pool: Pool, folder: Path, **options: Any) -> dict[str, Any]:
    """Return the event of a run that resumes a checkpoint of ``BASE`` with other options."""
    toy = Toy(items=33)
    pool.run(cases.train, toy, BASE, folder / "first", world_size=1)
    shutil.copytree(folder / f"first/checkpoints/step-{STEP:08}", folder / "again/resume")
    pool.run(cases.train, toy, BASE | {"steps": STEP + 2} | options, folder / "again", world_size=1)
    (event,) = events(folder / "again", "resumed")
    return event


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"optimizer": ADAMW | {"lr": 5e-3}}, "optimizer.lr 0.01 → 0.005"),
        ({"clip_grad_norm": None}, "clip_grad_norm 0.5 → none"),
        (
            {"schedule": {"name": "linear", "warmup_steps": 1}},
            'schedule.name "constant" → "linear"',
        ),
        ({"precision": "bf16"}, 'precision "fp32" → "bf16"'),
        ({"non_finite": "skip"}, 'non_finite "stop" → "skip"'),
    ],
    ids=["lr", "clip", "schedule", "precision", "non_finite"],
)
def test_a_changed_field_is_reported(
    pool: Pool, tmp_path: Path, options: dict[str, Any], changed: str
) -> None:
    event = resumed(pool, tmp_path, **options)
    assert changed in event["changed"].split("; ")
    assert event["exact"] is False


def test_fields_that_do_not_change_the_weights_are_not_reported(pool: Pool, tmp_path: Path) -> None:
    event = resumed(
        pool, tmp_path, steps=STEP, log_every_steps=2, checkpoint={"every_steps": 2}, eval={}
    )
    assert ("changed" in event, event["exact"]) == (False, True)


def test_more_steps_under_a_constant_rate_stay_exact(pool: Pool, tmp_path: Path) -> None:
    event = resumed(pool, tmp_path)
    assert (event["changed"], event["exact"]) == (f"steps {STEP} → {STEP + 2}", True)


def test_more_steps_under_a_decay_are_not_exact() -> None:
    _, before = cases.planned(OPTIONS, 1)
    _, now = cases.planned(OPTIONS | {"steps": 20}, 1)
    found = changes(training_fields(before), now)
    assert found == [Change("steps", str(OPTIONS["steps"]), "20")]
    assert affect_weights(found, now)


def test_a_document_of_another_version_is_read() -> None:
    _, train = cases.planned(OPTIONS, 1)
    document = training_fields(train)
    assert changes(None, train) == []
    assert changes({"from": "the future"}, train) == []
    del document["tf32"]  # As written by a version without the field.
    assert changes(document, train) == []


def test_the_message_has_a_bounded_length() -> None:
    own = {"task": "task.py:Fit"}
    _, before = cases.planned(
        OPTIONS | own | {"task_args": {f"a{i}": "x" * 1000 for i in range(20)}}, 1
    )
    _, now = cases.planned(OPTIONS | own, 1)
    found = changes(training_fields(before), now)
    assert len(found) == 20
    assert sentence(found).endswith("; and 12 more")
    assert len(sentence(found)) < 1000


def test_the_fields_are_in_the_checkpoint(pool: Pool, tmp_path: Path) -> None:
    pool.run(cases.train, Toy(items=33), BASE, tmp_path, world_size=1)
    stored = checkpoint.load(tmp_path / f"checkpoints/step-{STEP:08}")["train"]
    assert stored["optimizer"]["lr"] == ADAMW["lr"]
