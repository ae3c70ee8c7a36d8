"""One training job over two nodes: the weights of one node, also after a killed rank.

The service runs as usual. The second node is another agent on this machine, with a name and a
folder of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.harness.builders import SLOW_TASK
from tests.harness.processes import alive, kill, until
from tests.harness.service import Service, service, weights

pytestmark = pytest.mark.e2e
STEPS = 16
PREPARED = '''

class Prepared(Slow):
    """Says which ranks prepared it."""

    def __init__(self, folder, pause):
        super().__init__(pause=pause)
        self.folder = folder

    def prepare(self):
        names = ("LOCKSTEP_JOB_ID", "LOCKSTEP_ATTEMPT", "RANK")
        open(os.path.join(self.folder, "-".join(os.environ[name] for name in names)), "w").close()
'''


@pytest.fixture(scope="module")
def lockstep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Return the service, whose own node is node rank 0 of every gang because of its name."""
    yield from service(tmp_path_factory.mktemp("lockstep"), LOCKSTEP_NODE_NAME="first")


@pytest.fixture(scope="module")
def second(lockstep: Service) -> Iterator[Path]:
    """Return the folder of a second node with two CPU slots."""
    agent = lockstep.another_node("second", LOCKSTEP_CPU_SLOTS="2")
    try:
        until(
            lambda: len(lockstep.http.get("/v1/nodes").json()["items"]) == 2, 60, "the second node"
        )
        yield lockstep.home / "second-node"
    finally:
        agent.terminate()
        agent.wait(60)


def job(running: Service, folder: Path, name: str, *, nodes: int, pause: float) -> dict[str, Any]:
    """Return four ranks on this number of nodes, with a pause before each sample."""
    code = folder / "code"
    code.mkdir(exist_ok=True)
    (code / "task.py").write_text(SLOW_TASK + PREPARED)
    return running.submit(
        {
            "name": name,
            "kind": "train",
            "resources": {"gpus": 4, "nodes": nodes},
            "code": {"upload": running.upload(code)},
            "train": {
                "task": "task.py:Prepared",
                "task_args": {"folder": str(folder), "pause": pause},
                "batch": {"size": 32, "micro_size": 4},
                "steps": STEPS,
                "optimizer": {"name": "adamw", "lr": 0.01},
                "checkpoint": {"every_steps": 4},
            },
        }
    )


def prepared_by(folder: Path, job_id: str, attempt: int) -> list[int]:
    return sorted(
        int(path.name.rpartition("-")[2]) for path in folder.glob(f"{job_id}-{attempt}-*")
    )


def test_two_nodes_train_the_weights_of_one_despite_a_killed_rank(
    lockstep: Service, second: Path, tmp_path: Path
) -> None:
    alone = job(lockstep, tmp_path, "alone", nodes=1, pause=0.0)
    assert lockstep.ended(alone["id"])["state"] == "succeeded"
    hit = job(lockstep, tmp_path, "hit", nodes=2, pause=0.03)
    lockstep.at_step(hit["id"], 5)
    [theirs] = [path.parent for path in second.glob("*/ranks.json")]
    pids = {
        one["rank"]: one["pid"] for one in json.loads((theirs / "ranks.json").read_text())["ranks"]
    }
    gang = [
        psutil.Process(pid) for pid in (*pids.values(), *lockstep.rank_pids(hit["id"]).values())
    ]
    # Forked: a rank that imports torch by itself takes seconds of a core.
    assert {each.name() for each in gang} == {f"lockstep-rank{rank}" for rank in range(4)}
    kill(psutil.Process(pids[3]))
    # Five seconds, and a heartbeat of five.
    until(lambda: not any(map(alive, gang)), 60, "gang down")

    ended = lockstep.ended(hit["id"])
    assert (ended["state"], ended["attempt"]["number"]) == ("succeeded", 2), ended
    events = lockstep.events(hit["id"])
    requeued = next(event for event in events if event["kind"] == "requeued")
    assert "rank 3 was killed by SIGKILL" in requeued["message"]
    assert any(event["kind"] == "resumed" and event["data"]["step"] >= 4 for event in events)
    assert [prepared_by(tmp_path, hit["id"], attempt) for attempt in (1, 2)] == [[0, 2], [0, 2]]
    assert prepared_by(tmp_path, alone["id"], 1) == [0]

    one, two = weights(lockstep, alone["id"]), weights(lockstep, hit["id"])
    assert one.keys() == two.keys()
    for name, tensor in one.items():
        assert tensor.equal(two[name]), name
    curves = [lockstep.series(each["id"])["train/loss"] for each in (alone, hit)]
    assert sorted(curves[1]) == list(range(1, STEPS + 1))
    assert curves[0] == curves[1]
