"""The main job: submitted over HTTP, trained on two ranks, followed, and its result downloaded."""

from __future__ import annotations

import json
import math
import re
import time
from pathlib import Path

import pytest

from lockstep.domain.training import metrics
from lockstep.domain.training.series import METRICS
from tests.harness.builders import digits, script
from tests.harness.service import Service

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def trained(lockstep: Service) -> dict:
    """A finished training job."""
    spec = digits(steps=12, checkpoint={"every_steps": 5}, eval={"every_steps": 6})
    job = lockstep.submit(spec)
    assert job["spec"] == spec
    return lockstep.ended(job["id"])


def test_a_training_job_succeeds_and_returns_the_submitted_body(
    lockstep: Service, trained: dict
) -> None:
    assert trained["state"] == "succeeded", trained["outcome"]
    assert trained["spec"] == digits(
        steps=12, checkpoint={"every_steps": 5}, eval={"every_steps": 6}
    )
    assert trained["progress"]["step"] == 12
    assert trained["progress"]["fraction"] == 1


def test_the_plans_numbers_are_the_ones_the_engine_logs(lockstep: Service, trained: dict) -> None:
    plan = {"batch_size": 64, "micro_batch_size": 8, "accumulation_steps": 4, "world_size": 2}
    assert plan.items() <= trained["plan"].items()
    assert trained["plan_sentence"] == "64 = 2 ranks × 8 samples × 4 accumulation steps"
    events = (lockstep.folders(trained["id"])[0] / "spool/events.jsonl").read_text().splitlines()
    done = next(event["data"] for event in map(json.loads, events) if event["kind"] == "plan")
    assert plan.items() <= done.items()
    assert done["steps"] == 12


def test_the_plan_of_an_example_prints_its_memory_forecast(lockstep: Service) -> None:
    said = lockstep.run("plan", "examples/gpt.yaml")
    assert said.returncode == 0, said.stderr
    memory = re.search(
        r"  memory about 16\.\d MiB per rank \((.+)\) with micro-batches of 8", said.stdout
    )
    assert memory is not None, said.stdout
    assert {"activations", "optimizer", "weights", "gradients"} <= set(
        re.findall("[a-z]+", memory[1])
    )
    assert re.search(r"  of     .+ GiB on each cpu: micro-batches of up to 32 fit", said.stdout), (
        said.stdout
    )


def test_a_job_took_as_much_memory_as_its_plan_predicted(lockstep: Service, trained: dict) -> None:
    document = {**trained["spec"], "name": "again"}
    answer: dict = {}
    while answer.get("state", "computing") == "computing":
        answer = (
            lockstep.http.post("/v1/jobs/plan", json=document).raise_for_status().json()["memory"]
        )
    events = (lockstep.folders(trained["id"])[0] / "spool/events.jsonl").read_text().splitlines()
    found = next(event["data"] for event in map(json.loads, events) if event["kind"] == "memory")
    assert found["measure"] == "tensors"
    assert 0.9 <= answer["forecast"]["peak"] / found["measured_bytes"] <= 1.1


def test_metrics_over_http_equal_the_spool_line_by_line(lockstep: Service, trained: dict) -> None:
    series = {
        name: steps
        for name, steps in lockstep.series(trained["id"]).items()
        if not name.startswith(metrics.SYSTEM)
    }
    spool = lockstep.folders(trained["id"])[0] / "spool/metrics.jsonl"
    lines = spool.read_text().splitlines()
    assert len(lines) >= 12
    points = 0
    for line in lines:
        record = json.loads(line)
        for name, value in record["values"].items():
            assert series[name][record["step"]] == value
            points += 1
    assert points == sum(len(steps) for steps in series.values())


def test_each_step_has_its_times_by_part(lockstep: Service, trained: dict) -> None:
    series = lockstep.series(trained["id"])
    parts = [
        metric.name
        for metric in METRICS
        if metric.name.startswith("time/") and metric.name != "time/step_seconds"
    ]
    for step, whole in series["time/step_seconds"].items():
        assert math.isclose(
            sum(series.get(name, {}).get(step, 0.0) for name in parts), whole, rel_tol=0.02
        )


def test_the_loss_falls_and_evaluation_is_logged(lockstep: Service, trained: dict) -> None:
    series = lockstep.series(trained["id"])
    loss = series["train/loss"]
    assert sorted(loss) == list(range(1, 13))
    assert loss[1] == pytest.approx(math.log(10), rel=0.25)
    assert loss[12] < loss[1]
    assert set(series["eval/loss"]) == {6, 12}


def test_the_trained_model_is_published_as_a_checkpoint(lockstep: Service, trained: dict) -> None:
    checkpoints = lockstep.http.get(f"/v1/jobs/{trained['id']}/checkpoints").json()["items"]
    assert {5, 10, 12} == {checkpoint["step"] for checkpoint in checkpoints}
    final = next(checkpoint for checkpoint in checkpoints if checkpoint["final"])
    assert final["step"] == 12
    manifest = Path(final["location"].removeprefix("file://")) / "manifest.json"
    assert manifest.exists()


def test_the_events_describe_the_run(lockstep: Service, trained: dict) -> None:
    kinds = [event["kind"] for event in lockstep.events(trained["id"])]
    assert kinds[0] == "submitted"
    assert {"placed", "running", "checkpoint", "succeeded"} <= set(kinds)


def test_polling_an_unchanged_job_costs_a_304(lockstep: Service, trained: dict) -> None:
    first = lockstep.http.get(f"/v1/jobs/{trained['id']}")
    again = lockstep.http.get(
        f"/v1/jobs/{trained['id']}", headers={"If-None-Match": first.headers["ETag"]}
    )
    assert again.status_code == 304
    assert again.content == b""


def test_a_script_without_lockstep_runs_unchanged(lockstep: Service, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import sys, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "x = torch.tensor([float(dist.get_rank() + 1)])\n"
        "dist.all_reduce(x)\n"
        "for i in range(500): print('line', i, 'of', dist.get_rank())\n"
        "print('sum', x.item(), file=sys.stderr)\n"
        "dist.destroy_process_group()\n"
        "sys.stdout.write('last words without a newline')\n"
    )
    job = lockstep.submit(script("plain", ["train.py"], upload=lockstep.upload(tmp_path), gpus=2))
    ended = lockstep.ended(job["id"])
    assert ended["state"] == "succeeded", ended["outcome"]
    for rank in (0, 1):
        out = [line["text"] for line in lockstep.log_lines(job["id"], rank=rank, stream="stdout")]
        assert out == [f"line {i} of {rank}" for i in range(500)] + ["last words without a newline"]
        err = [line["text"] for line in lockstep.log_lines(job["id"], rank=rank, stream="stderr")]
        assert "sum 3.0" in err


def test_a_scripts_exit_code_decides_its_state(lockstep: Service, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "import sys; print('about to leave', file=sys.stderr); sys.exit(3)\n"
    )
    job = lockstep.submit(script("bad", ["bad.py"], upload=lockstep.upload(tmp_path)))
    ended = lockstep.ended(job["id"])
    assert ended["state"] == "failed"
    assert ended["outcome"]["reason"] == "user_error"
    assert ended["outcome"]["exit_code"] == 3
    assert "about to leave" in ended["outcome"]["traceback"]


def test_a_scripts_json_lines_become_series(lockstep: Service, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import json, os\n"
        "if os.environ['RANK'] == '0':\n"
        "    with open(os.environ['LOCKSTEP_METRICS'], 'a') as out:\n"
        "        for step in range(1, 101):\n"
        "            print(json.dumps({'step': step, 'loss': 1 / step, 'odd': float('nan')}), "
        "file=out)\n"
    )
    job = lockstep.submit(script("metrics", ["train.py"], upload=lockstep.upload(tmp_path), gpus=2))
    ended = lockstep.ended(job["id"])
    assert ended["state"] == "succeeded", ended["outcome"]
    series = lockstep.series(job["id"])
    assert series["loss"] == {step: 1 / step for step in range(1, 101)}
    assert set(series["odd"].values()) == {"NaN"}


def test_many_jobs_on_few_devices_all_end(lockstep: Service, tmp_path: Path) -> None:
    jobs = [lockstep.submit(script(f"true-{n}", ["true"], gpus=1 + n % 2)) for n in range(8)]
    assert {lockstep.ended(job["id"])["state"] for job in jobs} == {"succeeded"}
    # A job has ended before its devices are free, which waits for the end of all its processes.
    deadline = time.monotonic() + 60
    while (free := lockstep.http.get("/v1/nodes").json()["items"][0]["devices_free"]) != 4:
        assert time.monotonic() < deadline, free
        time.sleep(0.1)
