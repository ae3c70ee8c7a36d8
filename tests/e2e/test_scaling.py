"""``lockstep scaling``: the same batch on one device and on two, run by the real service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.harness.builders import digits, script
from tests.harness.service import Service

pytestmark = pytest.mark.e2e


def test_scaling_runs_one_batch_on_each_number_of_devices(
    lockstep: Service, tmp_path: Path
) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(digits(epochs=3, steps=None, checkpoint={"every_steps": 1})))
    done = lockstep.run(
        "scaling", str(file), "--gpus", "2,1", "--steps", "6", "-o", "json", timeout=240
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [run["world_size"] for run in found["runs"]] == [1, 2]
    assert (found["runs"][0]["speedup"], found["runs"][0]["efficiency"]) == (1.0, 1.0)
    assert found["runs"][1]["efficiency"] == pytest.approx(found["runs"][1]["speedup"] / 2)
    for run in found["runs"]:
        assert run["samples_per_second"] == pytest.approx(64 / run["step_seconds"])
        assert {"data", "forward", "backward", "optimizer"} <= run["parts"].keys()
    assert found["runs"][1]["parts"]["communication"] > 0
    assert found["buckets"] == []
    assert found["advice"]

    jobs = lockstep.http.get("/v1/jobs", params={"label": "scaling=digits"}).json()["items"]
    assert sorted(job["name"] for job in jobs) == ["digits-on-1", "digits-on-2"]
    for job in jobs:
        assert job["plan"]["batch_size"] == 64
        assert job["progress"]["step"] == 11


def test_scaling_refuses_a_script(lockstep: Service, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(script("own", ["train.py"], upload="0" * 64)))
    done = lockstep.run("scaling", str(file))
    assert done.returncode == 2
    assert "scaling needs a job of kind: train" in done.stderr
