"""What a person sees when a job goes wrong, is cancelled, or loses a rank."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pytest
import torch

from tests.e2e.service import Service, kill, until
from tests.e2e.specs import digits, script, slow

pytestmark = pytest.mark.e2e


def test_user_code_that_raises_is_named_with_rank_exception_and_step(lockstep: Service, tmp_path: Path) -> None:
    spec = slow(lockstep, tmp_path, args={"fail_at": 20}, steps=50)
    (tmp_path / "job.json").write_text(json.dumps(spec))
    done = lockstep.run("submit", str(tmp_path / "job.json"), "-y", "--code", str(tmp_path))
    assert done.returncode == 1, done.stdout + done.stderr
    shown = done.stdout + done.stderr
    for word in ("user_error", "rank 1", "RuntimeError", "the labels of shard 7 are damaged", "task.py"):
        assert word in shown
    outcome = lockstep.job("slow")["outcome"]
    assert outcome["rank"] == 1
    assert outcome["exception"] == "RuntimeError: the labels of shard 7 are damaged"
    assert "in loss" in outcome["traceback"]
    # Each step has 16 / 2 / 4 = 2 slots; warm-up passes count too, so only the order of magnitude is fixed here.
    assert 5 <= outcome["last_step"] <= 10


def test_a_failed_task_is_not_tried_again(lockstep: Service, tmp_path: Path) -> None:
    job = lockstep.submit(slow(lockstep, tmp_path, "once", args={"fail_at": 0}, steps=5))
    assert lockstep.ended(job["id"])["attempt"]["number"] == 1


def test_cancel_leaves_no_process_ten_seconds_after_its_response(lockstep: Service, tmp_path: Path) -> None:
    args = {"pause": 0.01, "stubborn_child": True}
    job = lockstep.submit(slow(lockstep, tmp_path, "cancelled", args=args, steps=10_000, loader={"workers": 2}))
    lockstep.at_step(job["id"], 2)
    assert len(lockstep.processes_of(job["id"])) >= 2 + 2 * 2 + 2
    answer = lockstep.http.post(f"/v1/jobs/{job['id']}/cancel")
    responded = time.monotonic()
    assert answer.status_code == 202, answer.text
    until(lambda: not lockstep.processes_of(job["id"]), 10, "end of every process")
    assert time.monotonic() - responded < 10
    assert lockstep.ended(job["id"], 10)["state"] == "cancelled"


def test_cancelling_a_queued_job_takes_one_request(lockstep: Service) -> None:
    holders = [lockstep.submit(script("holder", ["sleep", "60"], gpus=4))]
    until(lambda: lockstep.job(holders[0]["id"])["state"] == "running", 30, "holder running")
    waiting = lockstep.submit(script("waiting", ["true"], gpus=1))
    shown = until(lambda: lockstep.job(waiting["id"])["queue"], 10, "queue place")
    assert shown["position"] == 1
    assert "free" in shown["reason"]
    assert lockstep.http.post(f"/v1/jobs/{waiting['id']}/cancel").json()["state"] == "cancelled"
    assert lockstep.run("cancel", holders[0]["id"]).returncode == 0
    assert lockstep.ended(holders[0]["id"], 20)["state"] == "cancelled"


def weights(service: Service, job_id: str) -> dict[str, torch.Tensor]:
    """The tensors of a job's final checkpoint's model, flattened by name."""
    items = service.http.get(f"/v1/jobs/{job_id}/checkpoints").json()["items"]
    folder = Path(next(item for item in items if item["final"])["location"].removeprefix("file://"))
    state = torch.load(folder / "state.pt", weights_only=True)
    return {name: value for name, value in state["model"].items() if isinstance(value, torch.Tensor)}


def test_a_killed_rank_takes_its_gang_down_and_the_resumed_job_ends_bitwise_equal(
    lockstep: Service, tmp_path: Path
) -> None:
    options = {"pause": 0.002}, 60
    undisturbed = lockstep.submit(
        slow(lockstep, tmp_path, "calm", args=options[0], steps=options[1], checkpoint={"every_steps": 10})
    )
    assert lockstep.ended(undisturbed["id"])["state"] == "succeeded"

    job = lockstep.submit(
        slow(lockstep, tmp_path, "hit", args=options[0], steps=options[1], checkpoint={"every_steps": 10})
    )
    lockstep.at_step(job["id"], 12)
    gang = [psutil.Process(pid) for pid in lockstep.rank_pids(job["id"]).values()]
    kill(gang[1])
    killed = time.monotonic()
    until(lambda: not any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in gang), 5, "gang down")
    assert time.monotonic() - killed < 5

    ended = lockstep.ended(job["id"])
    assert ended["state"] == "succeeded", ended
    assert ended["attempt"]["number"] == 2
    events = lockstep.events(job["id"])
    assert any(event["kind"] == "resumed" and event["data"]["step"] >= 10 for event in events)
    assert any("SIGKILL" in event["message"] for event in events)

    calm, hit = weights(lockstep, undisturbed["id"]), weights(lockstep, job["id"])
    assert calm.keys() == hit.keys()
    assert calm
    for name, tensor in calm.items():
        assert torch.equal(tensor, hit[name]), name
    # The chart shows each step once: what the first attempt did beyond its checkpoint is hidden, not lost.
    assert sorted(lockstep.series(job["id"])["train/loss"]) == list(range(1, 61))


def test_a_task_that_cannot_be_built_says_so_without_a_retry(lockstep: Service, tmp_path: Path) -> None:
    job = lockstep.submit(slow(lockstep, tmp_path, "wrong-args", args={"colour": "red"}, steps=5))
    ended = lockstep.ended(job["id"])
    assert ended["outcome"]["reason"] == "bad_spec"
    assert "colour" in ended["outcome"]["message"] + (ended["outcome"]["exception"] or "")


def test_the_command_follows_a_job_to_its_closing_table(lockstep: Service, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps(digits("followed", steps=8)))
    done = lockstep.run("submit", str(tmp_path / "job.json"), "-y")
    shown = done.stdout + done.stderr
    assert done.returncode == 0, shown
    for word in ("64 = 2 ranks × 8 samples × 4 accumulation steps", "succeeded", "loss", "checkpoint"):
        assert word in shown
