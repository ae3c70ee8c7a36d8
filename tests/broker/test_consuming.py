"""A consumer with its supervisor, as a process, against a real broker with every kind of fault."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.broker.messages import StartAssignment, WakeScheduler
from lockstep.broker.publisher import Publisher
from tests.harness.processes import Broker, running_broker, until

BACK_SECONDS = 60.0
"""Limit from the return of the broker to a consumed notification."""
END_SECONDS_MAX = 60.0
"""Two seconds are promised. The rest is for a machine that runs other tests in parallel."""


class Listener:
    def __init__(self, url: str, out: Path) -> None:
        self.out = out
        with out.open("wb") as handle:
            script = Path(__file__).with_name("listener.py")
            self.process = subprocess.Popen(
                [sys.executable, str(script), url], stdout=handle, stderr=subprocess.STDOUT
            )

    def lines(self, text: str) -> int:
        return self.out.read_text().splitlines().count(text)

    def hears(self, publisher: Publisher, seconds: float) -> None:
        """Check that a notification is received that is sent repeatedly, as by a cycle."""
        before = self.lines("received")

        def heard() -> bool:
            publisher.publish(WakeScheduler())
            return self.lines("received") > before

        until(heard, seconds, "a notification")

    def wait_for_heartbeats(self, seconds: float = 60.0) -> None:
        before = self.lines("heartbeat")
        until(
            lambda: self.lines("heartbeat") >= before + 5,
            seconds,
            "five heartbeats of the supervisor",
        )

    def end(self) -> float:
        """Send SIGTERM and return the seconds until the end."""
        start = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.out.read_text()[-3000:]
        return time.monotonic() - start


@pytest.fixture
def listener(broker: Broker, tmp_path: Path) -> Iterator[Listener]:
    started = Listener(broker.url, tmp_path / "out")
    yield started
    started.process.kill()
    started.process.wait()


@pytest.fixture
def publisher(broker: Broker) -> Iterator[Publisher]:
    made = Publisher(broker.url)
    yield made
    made.close()


def test_a_message_reaches_its_queue_and_carries_only_the_id(
    broker: Broker, listener: Listener, publisher: Publisher
) -> None:
    listener.hears(publisher, 60)
    publisher.publish(StartAssignment("a-1", "some-node"))
    with broker.client() as client:
        (raw,) = until(
            lambda: client.lrange("lockstep:node.some-node", 0, -1),
            60,
            "the message in the node's queue",
        )
    assert listener.lines("start a-1") == 0  # of another queue
    assert b"some-node" not in raw.replace(b"node.some-node", b"")


def test_notifications_arrive_soon_after_each_restart_of_a_killed_broker(
    broker: Broker, listener: Listener, publisher: Publisher
) -> None:
    listener.hears(publisher, 60)
    for _cycle in range(4):  # with acknowledgements, a third would lose some
        broker.kill()
        listener.wait_for_heartbeats()
        broker.start()
        listener.hears(publisher, BACK_SECONDS)


def test_a_notification_arrives_soon_after_a_frozen_broker_resumes(
    broker: Broker, listener: Listener, publisher: Publisher
) -> None:
    listener.hears(publisher, 60)
    broker.freeze()
    listener.wait_for_heartbeats()
    time.sleep(
        3
        # long enough that the publisher has given up, and that the consumer is in the middle of a
        # wait
    )
    broker.thaw()
    listener.hears(publisher, BACK_SECONDS)


def test_a_consumed_notification_leaves_no_data_in_the_broker(
    broker: Broker, listener: Listener, publisher: Publisher
) -> None:
    listener.hears(publisher, 60)
    with broker.client() as client:
        until(
            lambda: not [key for key in client.scan_iter() if b"_kombu.binding" not in key],
            60,
            "an empty broker",
        )


def test_a_flushed_broker_continues_delivery(
    broker: Broker, listener: Listener, publisher: Publisher
) -> None:
    listener.hears(publisher, 60)
    with broker.client() as client:
        client.flushall()
    listener.hears(publisher, BACK_SECONDS)


def test_the_supervisor_works_without_broker_and_connects_to_a_late_one(
    tmp_path: Path,
) -> None:
    with running_broker(started=False) as broker:
        listener = Listener(broker.url, tmp_path / "out")
        publisher = Publisher(broker.url)
        try:
            until(lambda: listener.lines("heartbeat") > 10, 60, "heartbeats without a broker")
            broker.start()
            listener.hears(publisher, BACK_SECONDS)
            assert listener.end() < END_SECONDS_MAX
        finally:
            publisher.close()
            listener.process.kill()
            listener.process.wait()


def test_sigterm_ends_in_order(listener: Listener, publisher: Publisher) -> None:
    listener.hears(publisher, 60)
    assert listener.end() < END_SECONDS_MAX
    assert listener.lines("supervisor ended") == 1


@pytest.mark.parametrize("fault", ["away", "frozen"])
def test_sigterm_ends_in_order_in_any_state_of_the_broker(
    fault: str, broker: Broker, listener: Listener, publisher: Publisher
) -> None:
    listener.hears(publisher, 60)
    broker.kill() if fault == "away" else broker.freeze()
    listener.wait_for_heartbeats()
    assert listener.end() < END_SECONDS_MAX
    assert listener.lines("supervisor ended") == 1


def test_reconnecting_leaks_no_file_descriptors(
    broker: Broker, listener: Listener, publisher: Publisher
) -> None:
    def descriptors() -> int:
        return sum(1 for _ in Path(f"/proc/{listener.process.pid}/fd").iterdir())

    counts = []
    for _cycle in range(3):
        listener.hears(publisher, 60)
        counts.append(descriptors())
        broker.kill()
        broker.start()
    listener.hears(publisher, 60)
    assert descriptors() <= counts[1], counts
