"""The agent and a real broker: bells make it quick, and it needs none of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.messages import StartAssignment, StopAssignment
from broker.publisher import Publisher
from broker.queues import CONTROL, node_queue
from storage import nodes
from storage.database import Database
from tests.brokers import Broker, running_broker
from tests.databases import Urls
from tests.worker.node import Node, until

HEARTBEAT_SECONDS = 5.0
"""Of the real timings, which these tests use: what happens sooner was a bell's doing."""
SOON_SECONDS = 2.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with running_broker() as running:
        yield running


@pytest.fixture
def node(tmp_path: Path, sqlite_urls: Urls, broker: Broker) -> Iterator[Node]:
    database = Database(*sqlite_urls)
    made = Node(tmp_path, database, sqlite_urls, broker.url, scale=1.0)
    made.start()
    until(lambda: _consumers(broker) >= 1, what="the agent consumes its queue")
    yield made
    made.close()
    database.close()


def _consumers(broker: Broker) -> int:
    """Connections that wait in BRPOP."""
    with broker.client() as client:
        return sum(1 for each in client.client_list() if each["cmd"] == "brpop")


def test_bells_start_and_stop_a_job_before_the_next_heartbeat_and_devices_that_come_free_ring_back(
    node: Node, broker: Broker
) -> None:
    publisher = Publisher(broker.url)
    job_id = node.submit("ranks(); until_told()", place=False)
    _after_a_heartbeat(node)
    assignment_id = node.place(job_id)
    for _ in range(3):
        publisher.publish(StartAssignment(assignment_id, node.name))
    node.wait(job_id, "running", seconds=SOON_SECONDS)
    _after_a_heartbeat(node)
    with broker.client() as client:
        client.flushdb()
    node.cancel(job_id)
    publisher.publish(StopAssignment(assignment_id, node.name))
    node.wait(job_id, "cancelled", seconds=SOON_SECONDS)
    with broker.client() as client:
        until(lambda: client.llen(f"lockstep:{CONTROL}") == 1, 3, "the scheduler's bell")
    publisher.close()
    assert len(node.attempts(job_id)) == 1


def test_an_agent_drops_what_is_no_bell_and_hears_the_next_one(node: Node, broker: Broker) -> None:
    assert node.agent is not None
    before = node.agent.pid
    with broker.client() as client:
        client.lpush(f"lockstep:{node_queue(node.name)}", b"\0", b'{"headers": 1}', b"[]")
    job_id = node.submit("ranks(); finish()", place=False)
    _after_a_heartbeat(node)
    assignment_id = node.place(job_id)
    publisher = Publisher(broker.url)
    publisher.publish(StartAssignment(assignment_id, node.name))
    node.wait(job_id, "succeeded")
    publisher.close()
    assert node.agent.poll() is None
    assert node.agent.pid == before
    assert node.said("a broker message was dropped") == 1
    assert node.said("registered") == 1


def _after_a_heartbeat(node: Node) -> None:
    """Return right after one, so that the next is five seconds away."""

    def seen_at() -> float:
        with node.database.read_jobs() as session:
            return nodes.all_nodes(session)[0].seen_at

    before = seen_at()
    until(lambda: seen_at() > before, HEARTBEAT_SECONDS + 2)


def test_an_agent_without_its_broker_goes_on_and_hears_bells_again_when_it_is_back(node: Node, broker: Broker) -> None:
    broker.kill()
    job_id = node.submit("ranks(); finish()")
    node.wait(job_id, "succeeded")
    broker.start()
    until(lambda: _consumers(broker) >= 1, 10, "the agent consumes again")
    publisher = Publisher(broker.url)
    job_id = node.submit("ranks(); finish()", place=False)
    _after_a_heartbeat(node)
    publisher.publish(StartAssignment(node.place(job_id), node.name))
    node.wait(job_id, "succeeded", seconds=SOON_SECONDS)
    publisher.close()


def test_sigterm_ends_the_agent_although_the_broker_is_frozen(node: Node, broker: Broker) -> None:
    broker.freeze()
    try:
        assert node.terminate(seconds=15) == 0
    finally:
        broker.thaw()
