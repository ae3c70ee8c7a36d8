"""A consumer as a process, whose queue has messages that none of our programs has sent."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError
from structlog.testing import capture_logs

from lockstep.broker.incoming import (
    BURST_SECONDS,
    MESSAGE_CHARS_MAX,
    BadMessageError,
    Drops,
    arguments_of,
    rebuilt,
)
from lockstep.broker.messages import StartAssignment, WakeScheduler
from lockstep.broker.publisher import Publisher
from lockstep.broker.queues import CONTROL
from lockstep.broker.server import find_server
from lockstep.system.ports import quiet_port
from tests.broker.test_consuming import Listener
from tests.harness.processes import running_broker, until

KEY = f"lockstep:{CONTROL}"
TASK = WakeScheduler.task
DROPPED = "a broker message was dropped"


def encoded(document: object) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


def envelope(**changes: Any) -> dict[str, Any]:
    """Return the message of a notification with changes; a field that becomes None is omitted."""
    made = {**rebuilt(TASK, [], CONTROL), **changes}
    return {name: value for name, value in made.items() if value is not None}


def with_headers(**changes: Any) -> dict[str, Any]:
    return envelope(headers={**envelope()["headers"], **changes})


UNDECODABLE = [
    b"\0",
    b"",
    b"\xff\xfe",
    b"{",
    b"[" * 100_000,
    b"NaN",
    b'{"__type__": [], "__value__": 1}',
    b'{"__type__": "datetime", "__value__": "never"}',
    b"1" * 5_000,
]
HOSTILE = [
    None,
    17,
    "text",
    [],
    {},
    envelope(headers=None),
    envelope(headers="text"),
    envelope(headers=[TASK]),
    envelope(headers={}),
    with_headers(task=None),
    with_headers(task=["unhashable"]),
    with_headers(task="lockstep.no_such_task"),
    with_headers(task="celery.backend_cleanup"),
    with_headers(task=StartAssignment.task),
    envelope(body=None),
    envelope(body=5),
    envelope(body="not base64!"),
    envelope(body=base64.b64encode(b"\x80\x04N.").decode()),
    envelope(body=encoded({"task": TASK})),
    envelope(body=encoded([])),
    envelope(body=encoded([["unexpected"], {}, {}])),
    envelope(body=encoded(["text", {}, {}])),
    envelope(body="A" * 500_000),
]
CHANGED_BUT_READABLE = [
    envelope(properties=None),
    envelope(properties={}),
    envelope(properties="text"),
    envelope(**{"content-type": "application/x-python-serialize"}),
    envelope(**{"content-encoding": "no such"}),
    with_headers(eta="not a time", expires=[], id={}, compression="zlib", retries="x", timelimit=7),
    envelope(body=encoded([[], {}, {"callbacks": [7], "errbacks": 3, "chain": "x", "chord": 1}])),
    envelope(body=encoded([[], 5])),
]


class Tcp:
    """The bundled server on a port of loopback."""

    def __init__(self, folder: Path) -> None:
        self.port = quiet_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        words = [
            str(find_server()),
            "--port",
            str(self.port),
            "--bind",
            "127.0.0.1",
            "--dir",
            str(folder),
            "--save",
            "",
        ]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        until(self._answers, 60, "the broker's first answer")

    def client(self) -> Redis:
        return Redis(port=self.port, socket_timeout=60)

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except RedisError:
            return False


@pytest.fixture(scope="module", params=["unix", "tcp"])
def listening(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Any]:
    """Return a client of the broker, a listener and a publisher."""
    folder = tmp_path_factory.mktemp("hostile")
    with running_broker() as broker:
        served: Any = Tcp(folder) if request.param == "tcp" else broker
        listener = Listener(served.url, folder / "out")
        publisher = Publisher(served.url)
        try:
            listener.hears(publisher, 20)
            with served.client() as client:
                yield client, listener, publisher
        finally:
            publisher.close()
            listener.process.kill()
            listener.process.wait()
            if isinstance(served, Tcp):
                served.process.kill()
                served.process.wait()


def survives(listening: Any, messages: list[bytes]) -> Listener:
    """Check that each message is consumed, and that a later notification still arrives."""
    client, listener, publisher = listening
    for message in messages:
        client.lpush(KEY, message)
        listener.hears(publisher, 10)
        assert listener.process.poll() is None, (message[:200], listener.out.read_text()[-3000:])
    return listener


def test_a_consumer_survives_invalid_messages(listening: Any) -> None:
    survives(listening, UNDECODABLE)


def test_a_consumer_outlives_messages_of_no_program_of_ours(listening: Any) -> None:
    survives(listening, [json.dumps(one).encode() for one in HOSTILE])


def test_a_consumer_ignores_fields_that_no_notification_has(listening: Any) -> None:
    """Three of each, because two notifications from before may still arrive."""
    client, listener, _ = listening
    messages = [json.dumps(one).encode() for one in CHANGED_BUT_READABLE]
    survives(listening, messages)
    wanted = listener.lines("received") + 3 * len(messages)
    for message in 3 * messages:
        client.lpush(KEY, message)
    until(lambda: listener.lines("received") >= wanted, what="each message as a notification")


def test_a_burst_of_dropped_messages_is_logged_once_and_beside_the_supervisor(
    listening: Any,
) -> None:
    client, listener, publisher = listening
    client.lpush(KEY, b"\0")
    until(
        lambda: listener.out.read_text().count(DROPPED),
        60,
        "the first line about a dropped message",
    )
    before = listener.out.read_text().count(DROPPED)
    client.lpush(KEY, *[b"\0"] * 500)
    listener.hears(publisher, 20)
    assert listener.out.read_text().count(DROPPED) <= before + 1
    listener.wait_for_heartbeats(10.0)


def test_a_consumer_outlives_keys_of_another_type(listening: Any) -> None:
    client, listener, publisher = listening
    client.set("lockstep:unacked_mutex", "x")
    client.zadd("lockstep:unacked_index", {"x": 0})
    client.hset("lockstep:unacked", "x", "garbage")
    client.delete(KEY)
    client.set(KEY, "x")
    listener.hears(publisher, 20)
    assert listener.process.poll() is None, listener.out.read_text()[-3000:]


@pytest.mark.parametrize("payload", HOSTILE)
def test_hostile_messages_are_refused_by_name(payload: object) -> None:
    with pytest.raises(BadMessageError):
        arguments_of(payload, CONTROL)


@pytest.mark.parametrize("argument", ["", "a\0b", "a b", "x" * 101, 5, None, ["a"]])
def test_an_argument_that_is_no_id_is_refused(argument: object) -> None:
    payload = rebuilt(StartAssignment.task, ["a-1"], "node.n")
    assert arguments_of(payload, "node.n") == (StartAssignment.task, ["a-1"])
    payload["body"] = encoded([[argument], {}, {}])
    with pytest.raises(BadMessageError, match="is not an id"):
        arguments_of(payload, "node.n")


def test_a_long_body_is_refused_before_it_is_decoded() -> None:
    with pytest.raises(BadMessageError, match=f"at most {MESSAGE_CHARS_MAX} characters"):
        arguments_of(envelope(body="A" * (MESSAGE_CHARS_MAX + 4)), CONTROL)


def test_drops_are_counted_and_logged_once_per_burst() -> None:
    now = 0.0
    drops = Drops(clock=lambda: now)
    with capture_logs() as logs:
        for _ in range(1_000):
            drops.add("not JSON")
        now = BURST_SECONDS + 1
        drops.add("not JSON")
    assert drops.count == 1_001
    assert [line["dropped_in_all"] for line in logs] == [1, 1_001]
