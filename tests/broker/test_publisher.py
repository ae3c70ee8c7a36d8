"""A publisher never makes its caller wait, in any state of the broker."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator

import pytest

from lockstep.broker import publisher as publisher_module
from lockstep.broker.messages import Message, StartAssignment, StopAssignment, WakeScheduler
from lockstep.broker.publisher import REST_SECONDS, Publisher
from tests.harness.processes import Broker, running_broker, until

CONTROL_KEY = "lockstep:control"


@pytest.fixture
def publisher(broker: Broker) -> Iterator[Publisher]:
    made = Publisher(broker.url)
    yield made
    made.close()


def queued(broker: Broker, key: str = CONTROL_KEY) -> int:
    with broker.client() as client:
        return int(client.llen(key))


def publish_all(publisher: Publisher, messages: list[Message]) -> float:
    """Publish all of them; return the seconds that it took."""
    start = time.monotonic()
    for message in messages:
        publisher.publish(message)
    return time.monotonic() - start


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return a publisher that waits ten minutes for an answer.

    A caller that waits for it takes longer than the slowest machine.
    """
    monkeypatch.setattr(publisher_module, "SEND_SECONDS_MAX", 600.0)


def test_every_kind_of_message_arrives_in_its_queue(broker: Broker, publisher: Publisher) -> None:
    for message in (WakeScheduler(), StartAssignment("a", "n1"), StopAssignment("a", "n1")):
        publisher.publish(message)
    until(lambda: queued(broker) == 1, 60, "the scheduler's notification")
    until(lambda: queued(broker, "lockstep:node.n1") == 2, 60, "the node's notifications")


@pytest.mark.usefixtures("patient")
def test_publishing_to_a_frozen_broker_never_blocks_nor_raises(
    broker: Broker, publisher: Publisher
) -> None:
    publisher.publish(WakeScheduler())
    until(lambda: queued(broker) == 1, 60, "the first notification, so that a connection is open")
    broker.freeze()
    assert publish_all(publisher, [StartAssignment(str(number), "n") for number in range(200)]) < 60
    start = time.monotonic()
    publisher.close()
    assert time.monotonic() - start < 60


def test_a_resumed_broker_gets_notifications_again(broker: Broker, publisher: Publisher) -> None:
    publisher.publish(WakeScheduler())
    until(lambda: queued(broker) == 1, 60, "the first notification")
    broker.freeze()
    publisher.publish(StartAssignment("lost perhaps", "n"))
    time.sleep(2.5)  # after its tries: it has dropped this one
    broker.thaw()
    publisher.publish(StopAssignment("a", "m"))
    until(lambda: queued(broker, "lockstep:node.m") == 1, 60, "a notification after the thaw")


@pytest.mark.usefixtures("patient")
def test_publishing_without_a_broker_never_blocks_and_works_later() -> None:
    with running_broker(started=False) as broker:
        publisher = Publisher(broker.url)
        assert (
            publish_all(publisher, [StartAssignment(str(number), "n") for number in range(200)])
            < 60
        )
        broker.start()

        def arrives() -> bool:
            publisher.publish(WakeScheduler())
            return queued(broker) > 0

        until(arrives, 60, "a notification once there is a broker")
        publisher.close()


def test_a_waiting_notification_is_not_queued_twice(broker: Broker, publisher: Publisher) -> None:
    broker.freeze()
    for _again in range(500):
        publisher.publish(WakeScheduler())
    broker.thaw()
    publisher.publish(StopAssignment("last", "n"))
    until(lambda: queued(broker, "lockstep:node.n") == 1, 60, "the last message")
    assert queued(broker) <= 3  # one was being sent, perhaps twice, and one waited


def test_many_equal_notifications_are_sent_at_intervals_and_at_the_end(
    broker: Broker, publisher: Publisher
) -> None:
    began = time.monotonic()
    while time.monotonic() < began + 0.5:
        publisher.publish(WakeScheduler())
        time.sleep(0.001)
    # Another notification does not wait for it.
    publisher.publish(StopAssignment("a", "n"))
    until(lambda: queued(broker, "lockstep:node.n") == 1, 60, "the other notification")
    storm = time.monotonic() - began
    assert 2 <= queued(broker) <= storm / REST_SECONDS + 2
    with broker.client() as client:
        client.delete(CONTROL_KEY)
    publisher.publish(WakeScheduler())
    until(lambda: queued(broker) >= 1, 60, "what was sent last is heard")


def test_when_too_many_wait_the_oldest_is_dropped(broker: Broker) -> None:
    publisher = Publisher(broker.url, waiting_max=5)
    publisher.publish(WakeScheduler())
    until(lambda: queued(broker) == 1, 60, "the first notification")
    broker.freeze()
    for number in range(50):
        publisher.publish(StartAssignment(f"a{number}", "n"))
    broker.thaw()
    publisher.publish(StopAssignment("last", "m"))
    until(lambda: queued(broker, "lockstep:node.m") == 1, 60, "the newest message")
    assert queued(broker, "lockstep:node.n") <= 7
    publisher.close()


def test_close_sends_waiting_notifications(broker: Broker) -> None:
    publisher = Publisher(broker.url)
    publisher.publish(WakeScheduler())
    publisher.close()
    assert queued(broker) == 1


def test_a_closed_publisher_ignores_messages_without_an_error(broker: Broker) -> None:
    publisher = Publisher(broker.url)
    publisher.close()
    publisher.publish(WakeScheduler())
    assert queued(broker) == 0


def test_nothing_is_connected_nor_started_before_the_first_message() -> None:
    before = threading.active_count()
    publisher = Publisher("redis+socket:///nowhere/at/all.sock")
    assert threading.active_count() == before
    publisher.close()


def test_a_forked_child_publishes_by_itself(broker: Broker, publisher: Publisher) -> None:
    publisher.publish(WakeScheduler())
    until(lambda: queued(broker) == 1, 60, "the parent's notification")
    pid = os.fork()
    if pid == 0:
        publisher.publish(StopAssignment("from the child", "child"))
        publisher.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    until(lambda: queued(broker, "lockstep:node.child") == 1, 60, "the child's message")
    publisher.publish(StopAssignment("from the parent", "parent"))
    until(
        lambda: queued(broker, "lockstep:node.parent") == 1,
        60,
        "the parent's message after the fork",
    )
