"""The example of a model in stages with cut layers, through the service, and the death of a stage."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.harness.processes import gone, signalled
from tests.harness.service import (
    Service,
    event_at,
    gang_of,
    same,
    wait_for_checkpoint,
    weights,
)

pytestmark = pytest.mark.e2e
EXAMPLES = Path(__file__).parents[2] / "examples"
STEPS = 12
TEXT_BYTES = 500_000
"""A quarter of the examples' text, and of the batches of an evaluation."""


def submitted(lockstep: Service, example: str, name: str, **train: Any) -> str:
    """Submit a shorter form of an example, with changes in ``train``; return the job's id."""
    spec: dict[str, Any] = yaml.safe_load((EXAMPLES / example).read_text())
    spec["name"] = name
    spec["train"]["task_args"]["max_bytes"] = TEXT_BYTES
    spec["train"]["batch"]["size"] //= 2  # Still four micro-batches, for two stages.
    spec["train"] |= {"steps": STEPS, "checkpoint": {"every_steps": 2, "keep_last": 9}, **train}
    found: str = lockstep.submit(spec)["id"]
    return found


@pytest.mark.contract(2, 26)
def test_a_killed_stage_resumes_exactly_with_the_curve_of_one_copy(lockstep: Service) -> None:
    job_id = submitted(lockstep, "gpt_pipeline.yaml", "killed-stage")
    gang = gang_of(lockstep, job_id, 1)
    saved = wait_for_checkpoint(lockstep, job_id, 1)
    signalled([gang.ranks[-1]], signal.SIGKILL)  # Of the last stage.
    gone(gang.ranks, 60, "the gang")
    _, resumed = event_at(lockstep, job_id, "resumed", 2)
    assert resumed["data"]["step"] >= saved
    assert resumed["data"]["exact"]
    ended = lockstep.ended(job_id)
    assert (ended["state"], ended["attempt"]["number"]) == ("succeeded", 2), ended
    assert "tensor 2, pipeline 2" in ended["plan_sentence"]

    # An evaluation changes no weight, and that of this example has many batches.
    calm, whole = (
        submitted(lockstep, example, name, eval={})
        for example, name in (("gpt_pipeline.yaml", "calm-stages"), ("gpt.yaml", "one-copy"))
    )
    for each in (calm, whole):
        assert lockstep.ended(each)["state"] == "succeeded"
    assert same(weights(lockstep, job_id), weights(lockstep, calm))
    found, expected = (lockstep.series(each)["train/loss"] for each in (job_id, whole))
    assert len(found) == len(expected) == STEPS
    assert [*found.values()] == pytest.approx([*expected.values()], rel=1e-5)
