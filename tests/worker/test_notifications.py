"""The agent and a real broker: notifications make it fast, and it needs none of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.broker.messages import StartAssignment, StopAssignment
from lockstep.broker.publisher import Publisher
from lockstep.broker.queues import CONTROL, node_queue
from lockstep.storage.db.database import Database
from tests.harness.databases import Urls
from tests.harness.node import RARE, Node
from tests.harness.processes import Broker, until


@pytest.fixture
def node(
    request: pytest.FixtureRequest, tmp_path: Path, sqlite_urls: Urls, broker: Broker
) -> Iterator[Node]:
    """Return an agent with a broker; ``scale`` of its timings is ``RARE`` by default."""
    database = Database(*sqlite_urls)
    made = Node(tmp_path, database, sqlite_urls, broker.url, scale=getattr(request, "param", RARE))
    made.start()
    until(lambda: _consumers(broker) >= 1, what="the agent consumes its queue")
    yield made
    made.close()
    database.close()


def _consumers(broker: Broker) -> int:
    """Return the connections that wait in BRPOP."""
    with broker.client() as client:
        return sum(1 for each in client.client_list() if each["cmd"] == "brpop")


def test_notifications_start_and_stop_a_job_before_the_next_heartbeat(
    node: Node, broker: Broker
) -> None:
    publisher = Publisher(broker.url)
    job_id = node.submit("ranks(); until_told()", place=False)
    assignment_id = node.place(job_id)
    for _ in range(3):
        publisher.publish(StartAssignment(assignment_id, node.name))
    node.wait(job_id, "running")
    with broker.client() as client:
        client.flushdb()
    node.cancel(job_id)
    publisher.publish(StopAssignment(assignment_id, node.name))
    node.wait(job_id, "cancelled")
    with broker.client() as client:
        until(lambda: client.llen(f"lockstep:{CONTROL}") == 1, 60, "the scheduler's notification")
    publisher.close()
    assert len(node.attempts(job_id)) == 1


def test_an_agent_drops_invalid_messages_and_receives_the_next(node: Node, broker: Broker) -> None:
    assert node.agent is not None
    before = node.agent.pid
    with broker.client() as client:
        client.lpush(f"lockstep:{node_queue(node.name)}", b"\0", b'{"headers": 1}', b"[]")
    job_id = node.submit("ranks(); finish()", place=False)
    assignment_id = node.place(job_id)
    publisher = Publisher(broker.url)
    publisher.publish(StartAssignment(assignment_id, node.name))
    node.wait(job_id, "succeeded")
    publisher.close()
    assert node.agent.poll() is None
    assert node.agent.pid == before
    assert node.said("a broker message was dropped") == 1
    assert node.said("registered") == 1


@pytest.mark.parametrize("node", [0.3], indirect=True)
def test_an_agent_survives_a_broker_outage_and_receives_notifications_again(
    node: Node, broker: Broker
) -> None:
    broker.kill()
    job_id = node.submit("ranks(); finish()")
    node.wait(job_id, "succeeded")
    broker.start()
    until(lambda: _consumers(broker) >= 1, 60, "the agent consumes again")
    publisher = Publisher(broker.url)
    job_id = node.submit("ranks(); finish()", place=False)
    publisher.publish(StartAssignment(node.place(job_id), node.name))
    publisher.close()
    with broker.client() as client:
        # No other program takes a message from this queue.
        until(
            lambda: client.llen(f"lockstep:{node_queue(node.name)}") == 0,
            what="the agent takes the notification",
        )
    node.wait(job_id, "succeeded")


def test_sigterm_ends_the_agent_although_the_broker_is_frozen(node: Node, broker: Broker) -> None:
    broker.freeze()
    try:
        assert node.terminate(seconds=60) == 0
    finally:
        broker.thaw()
