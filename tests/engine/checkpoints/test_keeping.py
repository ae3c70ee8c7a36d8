"""Retention of checkpoints: the newest, and the best by a metric of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine import cases
from tests.engine.spool import events, records
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

OPTIONS: dict[str, Any] = {
    "batch": {"size": 7, "micro_size": 3},
    "optimizer": {"name": "sgd", "lr": 0.5},
    "clip_grad_norm": None,
    "steps": 9,
    "eval": {"every_steps": 2},
}


def warnings(folder: Path) -> list[dict[str, Any]]:
    """Return the warnings about ``keep_best``. A slow disk adds warnings of its own."""
    return [
        found for found in events(folder, "warning") if found["message"].startswith("keep_best")
    ]


def steps_left(folder: Path) -> list[int]:
    return sorted(
        int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").iterdir()
    )


@pytest.mark.parametrize(("metric", "world_size"), [("train/loss", 1), ("eval/loss", 2)])
def test_the_best_by_a_metric_is_kept_beside_the_newest(
    pool: Pool, tmp_path: Path, metric: str, world_size: int
) -> None:
    options = OPTIONS | {"checkpoint": {"every_steps": 1, "keep_last": 1, "keep_best": metric}}
    pool.run(cases.train, Toy(items=20), options, tmp_path, world_size=world_size)
    measured = {
        step: values[metric] for step, values in records(tmp_path).items() if metric in values
    }
    best = min(measured, key=lambda step: (measured[step], step))
    assert best != 9, "the case would show nothing"
    assert steps_left(tmp_path) == [best, 9]
    for saved in events(tmp_path, "checkpoint"):
        assert saved["metric"] == {"name": metric, "value": measured.get(saved["step"])}
    manifest = json.loads((tmp_path / f"checkpoints/step-{best:08d}/manifest.json").read_text())
    assert manifest["metric"] == {"name": metric, "value": measured[best]}
    assert warnings(tmp_path) == []


@pytest.mark.parametrize("metric", ["eval/accuracy", "train/bleu"])
def test_a_metric_that_never_appears_is_reported_once(
    pool: Pool, tmp_path: Path, metric: str
) -> None:
    options = OPTIONS | {"checkpoint": {"every_steps": 1, "keep_last": 2, "keep_best": metric}}
    pool.run(cases.train, Toy(items=20), options, tmp_path, world_size=1)
    (warning,) = warnings(tmp_path)
    step = 2 if metric.startswith("eval/") else 1
    assert warning["message"].startswith(
        f"keep_best: step {step} has no {metric}, so its checkpoint cannot be the best; its metrics are "
    )
    assert "train/loss" in warning["message"]
    assert steps_left(tmp_path) == [8, 9]
