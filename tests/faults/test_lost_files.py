"""An unchanged script that loses a rank, then its whole node, and goes on from its own files.

F36. The node's agent, launcher and ranks die at once, and another node continues.

Not here: the rounds in which files are stored (``tests.worker.kept``).
"""

from __future__ import annotations

import signal
import sys
from typing import Any

import psutil
import pytest
import torch

from tests.faults.test_node import Second, on_the_second
from tests.faults.test_node import lockstep as lockstep  # noqa: PLC0414 - a fixture
from tests.faults.test_node import second as second  # noqa: PLC0414 - a fixture
from tests.harness.drills import Drill
from tests.harness.processes import signalled, until
from tests.harness.service import Service, event_at

pytestmark = [pytest.mark.e2e, pytest.mark.drill, pytest.mark.timeout(600)]
STEPS, EVERY = 400, 10
LOOP = """
def new():
    torch.manual_seed(1337)
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)

def update(model, optimizer, step):
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(8, 4, generator=generator)
    loss = (model(x) - x.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
"""
SCRIPT = (
    """
import json, os, sys, time
import torch
torch.set_num_threads(1)
"""
    + LOOP
    + f"""
out_dir, enough, step = "out", sys.argv[1], 0
path = os.path.join(out_dir, "ckpt.pt")
model, optimizer = new()
if os.path.exists(path):  # --init_from=resume
    found = torch.load(path)
    step = found["step"]
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
print("begins at", step, flush=True)
while step < {STEPS}:
    loss = update(model, optimizer, step)
    step += 1
    with open(os.environ["LOCKSTEP_METRICS"], "a") as file:
        file.write(json.dumps({{"step": step, "loss": loss}}) + "\\n")
    if step % {EVERY} == 0:
        os.makedirs(out_dir, exist_ok=True)
        state = {{"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}}
        torch.save(state, path + ".part")
        os.replace(path + ".part", path)
    if not os.path.exists(enough):
        time.sleep(0.05)
"""
)


def expected() -> list[float]:
    """Return the losses of the same loop without Lockstep, in one run."""
    names: dict[str, Any] = {"torch": torch}
    exec(LOOP, names)
    model, optimizer = names["new"]()
    return [names["update"](model, optimizer, step) for step in range(STEPS)]


def kept(lockstep: Service, job_id: str) -> dict[str, dict[str, Any]]:
    found = lockstep.http.get(f"/v1/jobs/{job_id}/files").json()["items"]
    return {one["path"]: one for one in found}


def begins(lockstep: Service, job_id: str, attempt: int) -> int:
    """Return the step at which an attempt began."""

    def ask() -> int | None:
        found = [line["text"] for line in lockstep.log_lines(job_id, attempt=attempt)]
        return next((int(text.split()[-1]) for text in found if "begins at" in text), None)

    return until(ask, 60, "the attempt's first line")


def test_a_script_goes_on_from_its_files_on_another_node(
    lockstep: Service, second: Second, drill: Drill
) -> None:
    drill.begin("F36", "a script loses a rank, then its whole node", recovery=30.0)
    enough = lockstep.home / "script.enough"
    enough.unlink(missing_ok=True)
    spec = {
        "name": "script",
        "kind": "script",
        "script": {"command": [sys.executable, "-c", SCRIPT, str(enough)]},
        "resources": {"gpus": 1},
    }
    job_id = on_the_second(lockstep, spec)
    assert lockstep.http.post("/v1/nodes/first/drain").status_code == 200
    lockstep.at_step(job_id, 25)
    (rank,) = second.gang(job_id).ranks
    rank.send_signal(signal.SIGKILL)
    drill.injected += 1
    begun = begins(lockstep, job_id, 2)
    assert begun >= 20, "the last round stored everything"
    event_at(lockstep, job_id, "files_restored", 2)
    until(lambda: kept(lockstep, job_id)["out/ckpt.pt"]["attempt"] == 2, 60, "a round")
    assert lockstep.http.post("/v1/nodes/first/resume").status_code == 200
    processes = [psutil.Process(second.agent.pid), *second.gang(job_id).members]
    killed = signalled(processes, signal.SIGKILL)
    drill.injected += 1
    second.agent.wait()
    restored, event = event_at(lockstep, job_id, "files_restored", 3, 90)
    drill.recoveries.append(restored - killed)
    assert begins(lockstep, job_id, 3) > begun
    second.start()
    words = "s before the end of attempt 2; what it wrote later was not stored"
    assert words in event["message"]
    enough.touch()
    assert lockstep.ended(job_id)["state"] == "succeeded"
    found = lockstep.series(job_id)["loss"]
    drill.lost += STEPS - len(found)
    assert [*found] == [*range(1, STEPS + 1)]
    assert [*found.values()] == pytest.approx(expected(), rel=1e-6)
    assert kept(lockstep, job_id)["out/ckpt.pt"]["attempt"] == 3
