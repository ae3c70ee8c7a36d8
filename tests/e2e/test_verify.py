"""``lockstep verify`` by the real service: a correct job agrees, and its runs are deleted."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.harness.builders import digits, script, slow
from tests.harness.processes import LOCKSTEP, until
from tests.harness.service import Service

pytestmark = pytest.mark.e2e


def jobs(lockstep: Service) -> list[dict[str, str]]:
    return list(lockstep.http.get("/v1/jobs").json()["items"])


def test_a_right_job_agrees_over_layouts_a_kill_and_a_resume(
    lockstep: Service, tmp_path: Path
) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(slow(lockstep, tmp_path / "code", args={}, steps=400)))
    options = ("--steps", "6", "--layouts", "1x16,2x4", "-o", "json")
    done = lockstep.run("verify", str(file), *options, timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert found["sentences"] == ["all runs agree over 6 steps, within the tolerance"]
    kinds = [run["kind"] for run in found["runs"]]
    assert kinds == ["layout", "twin", "layout", "killed", "moved"]
    differences = [run["difference"] for run in found["runs"]]
    assert differences[0] is None
    assert all(differences[1].values())
    # The same layout, killed and resumed, is equal to the last bit.
    assert differences[3] == {"loss": 0.0, "gradient": 0.0, "weights": 0.0}
    assert 0 < differences[4]["weights"] < found["tolerance"]["weights"] < 1e-3
    assert jobs(lockstep) == []


def test_ctrl_c_deletes_the_running_job(lockstep: Service, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(digits()))
    command = [str(LOCKSTEP), "verify", str(file), "--steps", "100000"]
    with subprocess.Popen(
        command, env=lockstep.environment, stderr=subprocess.PIPE, text=True
    ) as process:
        # Before the first job, the service computes a plan for each layout.
        until(lambda: jobs(lockstep) or process.poll() is not None, 240, "a job")
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130, process.stderr and process.stderr.read()
    assert jobs(lockstep) == []


def test_verify_refuses_a_script(lockstep: Service, tmp_path: Path) -> None:
    file = tmp_path / "job.json"
    file.write_text(json.dumps(script("own", ["train.py"], upload="0" * 64)))
    done = lockstep.run("verify", str(file))
    assert done.returncode == 2
    assert "verify needs a job of kind: train" in done.stderr
