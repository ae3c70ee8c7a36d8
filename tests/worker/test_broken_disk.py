"""A node whose disk becomes read-only under a running job, while the database is elsewhere.

Not here: a full disk (``test_full_node``), and the database's disk (``tests.api.test_read_only``).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.storage.attempts import nodes
from tests.harness import disks
from tests.harness.node import SLOW, Node
from tests.harness.processes import until

WRITES = """
echo kept > $LOCKSTEP_OUTPUT/file
for step in $(seq 1 6000); do
    echo "{\\"step\\": $step, \\"loss\\": 1}" >> $LOCKSTEP_METRICS
    echo line $step
    sleep 0.1
done
"""
TRAIN = {
    "task": "image_classification",
    "task_args": {"width": 8},
    "batch": {"size": 8, "micro_size": 8},
    "steps": 1_000_000,
    "optimizer": {"name": "adamw", "lr": 3e-3},
    "checkpoint": {"every_steps": 50},
}


@pytest.mark.parametrize("kind", ["script", "train"])
def test_a_job_on_a_disk_that_became_read_only_is_tried_elsewhere(
    own_node: Node, tmp_path: Path, kind: str
) -> None:
    """Its fence cannot be renewed. The agent ends it without a result, and frees its device."""
    node = own_node
    node.store_timings(SLOW)
    with disks.ext4_disk(node.dir, mebibytes=128):
        node.start(launcher=[])
        if kind == "script":
            job_id = node.submit_command(["bash", "-c", WRITES], tmp_path)
            until(lambda: node.series(job_id), 60, "the first step")
        else:
            job_id = node.create(
                {"name": "t", "kind": kind, "resources": {"gpus": 1}, "train": TRAIN}
            )
            node.place(job_id)
            until(lambda: node.checkpoints(job_id), 60, "the first checkpoint")
        disks.abort(node.dir)
        outcome = node.wait(job_id, "queued").outcome
        assert outcome is not None
        assert outcome["reason"] == "storage"
        assert outcome["message"].startswith("the disk of the node fails or is read-only")
        assert node.job(job_id).avoid_nodes == [node.name]
        node.released(job_id)
        with node.database.read_jobs() as session:
            (failure,) = nodes.failures(session)
        assert failure.job_id == job_id
        until(lambda: node.said("of an ended attempt stays") == 1)
        node.close()
