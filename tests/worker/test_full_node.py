"""A node whose disk is full while an attempt starts, or ends: it waits for space, or ends well.

Not here: a disk that stays full (``test_agent_faults``), and a full disk under running jobs
(``tests.faults.test_full_disk``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.domain.life.quarantine import to_quarantine
from lockstep.storage.attempts import nodes
from lockstep.worker.agent.starting import PREPARE_TRIES
from tests.harness import disks
from tests.harness.node import Node
from tests.harness.processes import until


@pytest.fixture
def small_node(own_node: Node) -> Iterator[Node]:
    """Return a node whose folder is a full file system."""
    with disks.small_disk(own_node.dir, "size=80m,mode=0700"):
        (own_node.dir / "filler").write_bytes(bytes(76 * 2**20))
        yield own_node
        own_node.close()


def waits(node: Node, job_id: str) -> list[str]:
    """Return the messages about waits for space."""
    return [message for kind, message in node.events(job_id) if kind == "warning"]


def test_a_disk_that_is_full_for_a_while_costs_no_attempt_and_no_node(small_node: Node) -> None:
    node = small_node
    node.start()
    waiting = [node.submit("ranks(); finish()", retry={"max": 0}) for _ in range(2)]
    until(
        lambda: node.said("a transition failed and is retried") > 2 * PREPARE_TRIES + 1,
        60,
        "more tries than a disk that fails has",
    )
    for job_id in waiting:
        (message,) = waits(node, job_id)
        assert message.startswith(
            f"the disk of node {node.name} is full: the attempt waits for space, at most 120 s "
            "([Errno 28] the disk has "
        )
    (node.dir / "filler").unlink()
    for job_id in waiting:
        assert node.wait(job_id, "succeeded").attempt_count == 1
    with node.database.read_jobs() as session:
        assert list(to_quarantine(nodes.failures(session), together_seconds=300.0)) == []


def test_an_attempt_that_waits_for_space_can_be_cancelled(small_node: Node) -> None:
    node = small_node
    node.start()
    job_id = node.submit("ranks(); finish()")
    until(lambda: waits(node, job_id), 60, "the wait")
    node.cancel(job_id)
    node.wait(job_id, "cancelled")
    node.released(job_id)


TRAPS = "trap 'echo saved; exit 0' TERM; echo began; while :; do sleep 0.1; done"
WAITS = "echo began; while [ ! -e {enough} ]; do sleep 0.1; done; echo done"


def test_jobs_end_on_a_full_disk_as_on_another(own_node: Node, tmp_path: Path) -> None:
    """The request to stop, the result, and the offsets of what was sent need no space then."""
    node, enough = own_node, tmp_path / "enough"
    node.store_timings(1.0)
    with disks.small_disk(node.dir, "size=80m,mode=0700"):
        node.start(launcher=[])
        stopped = node.submit_command(["bash", "-c", TRAPS], tmp_path)
        finished = node.submit_command(["bash", "-c", WAITS.format(enough=enough)], tmp_path)
        for job_id in (stopped, finished):
            until(lambda job_id=job_id: node.logs(job_id), 60, "the first line")
        with disks.kept_full(node.dir):
            enough.touch()
            node.cancel(stopped)
            node.wait(stopped, "cancelled")
            node.wait(finished, "succeeded")
            for job_id in (stopped, finished):
                node.released(job_id)
        assert "; the ranks ended in time" in node.job(stopped).outcome["message"]
        assert node.job(finished).attempt_count == 1
        node.close()
