"""Resources of an agent do not grow with its work: files, threads, memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.node import Node
from tests.harness.processes import until

SLOTS = 4
"""Devices of the node, which is the number of concurrent attempts."""
GROWTH_BYTES_MAX = 24 * 1024 * 1024
"""Caches fill, and the allocator keeps the memory of the peak.

A leak of one stream's buffers is ten times as much.
"""


class Held:
    """Resources of a process at one moment."""

    def __init__(self, pid: int) -> None:
        proc = Path(f"/proc/{pid}")
        self.descriptors = len(list((proc / "fd").iterdir()))
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        self.threads = int(status["Threads"])
        self.bytes = int(status["VmRSS"].split()[0]) * 1024


def _run(node: Node, count: int) -> None:
    """Run attempts, as many at a time as the node has devices.

    Each has metrics, a log and an event.
    """
    source = (
        "ranks(); event('running'); log('a line'); [metric({'step': s, 'loss': 1.0}) for s in "
        "range(1, 50)]; finish()"
    )
    waiting: list[str] = []
    for _ in range(count):
        if len(waiting) == SLOTS:
            node.wait(waiting.pop(0), "succeeded")
        waiting.append(node.submit(source))
    for job_id in waiting:
        node.wait(job_id, "succeeded")
        node.released(job_id)


@pytest.mark.parametrize("attempts", [40, pytest.param(200, marks=pytest.mark.drill)])
def test_resources_of_an_agent_do_not_grow_with_attempts(own_node: Node, attempts: int) -> None:
    node = own_node
    node.start()
    assert node.agent is not None
    pid = node.agent.pid
    _run(node, 2 * SLOTS)
    until(
        lambda: not any(path.name[0] != "." for path in node.dir.iterdir()),
        what="the folders are gone",
    )
    before = Held(pid)
    _run(node, attempts - 2 * SLOTS)
    until(
        lambda: not any(path.name[0] != "." for path in node.dir.iterdir()),
        what="the folders are gone",
    )
    until(lambda: Held(pid).threads <= before.threads, what=f"threads are back at {before.threads}")
    # The pool of connections may have opened one more for each concurrent attempt: two files each,
    # and their -shm.
    until(
        lambda: Held(pid).descriptors <= before.descriptors + 6 * SLOTS, what="descriptors are back"
    )
    after = Held(pid)
    assert after.bytes - before.bytes < GROWTH_BYTES_MAX, (before.bytes, after.bytes)
