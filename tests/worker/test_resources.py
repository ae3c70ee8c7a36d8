"""What an agent holds does not grow with what it has done: files, threads, memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.worker.node import Node, until

SLOTS = 4
"""Devices of the node: so many attempts run at once."""
GROWTH_BYTES_MAX = 24 * 1024 * 1024
"""Caches fill and the allocator keeps what it had at the peak. A leak of one stream's buffers would
be ten times as much."""


class Held:
    """What a process holds at one moment."""

    def __init__(self, pid: int) -> None:
        proc = Path(f"/proc/{pid}")
        self.descriptors = len(list((proc / "fd").iterdir()))
        status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
        self.threads = int(status["Threads"])
        self.bytes = int(status["VmRSS"].split()[0]) * 1024


def _run(node: Node, count: int) -> None:
    """Attempts, as many at a time as the node has devices.

    Each with metrics, a log and an event.
    """
    source = (
        "ranks(); event('running'); log('a line'); [metric({'step': s, 'loss': 1.0}) for s in "
        "range(1, 50)]; finish()"
    )
    waiting: list[str] = []
    for _ in range(count):
        if len(waiting) == SLOTS:
            node.wait(waiting.pop(0), "succeeded", seconds=60)
        waiting.append(node.submit(source))
    for job_id in waiting:
        node.wait(job_id, "succeeded", seconds=60)
        node.released(job_id)


@pytest.mark.parametrize("attempts", [40, pytest.param(200, marks=pytest.mark.drill)])
def test_after_many_attempts_an_agent_holds_what_it_held_after_a_few(
    own_node: Node, attempts: int
) -> None:
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
    # The pool of connections may have opened one more for each attempt that ran at once: two files
    # each, and their -shm.
    until(
        lambda: Held(pid).descriptors <= before.descriptors + 6 * SLOTS, what="descriptors are back"
    )
    after = Held(pid)
    assert after.bytes - before.bytes < GROWTH_BYTES_MAX, (before.bytes, after.bytes)
