"""The bundled broker: its addresses, its refusals, and its lack of persistence."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pydantic import ValidationError

from lockstep.broker import server
from lockstep.broker.settings import BrokerSettings
from lockstep.domain.errors import LockstepError
from tests.harness.processes import Broker


def test_it_listens_on_a_socket_of_this_user_and_on_no_port(broker: Broker) -> None:
    assert broker.process is not None
    assert stat.S_IMODE(broker.socket.stat().st_mode) == 0o700
    assert psutil.Process(broker.process.pid).net_connections("inet") == []


def test_the_server_is_the_started_process_and_gets_its_signals(
    broker: Broker,
) -> None:
    assert broker.process is not None
    process = psutil.Process(broker.process.pid)
    assert "valkey-server" in process.name() or "redis-server" in process.name()
    assert process.children() == []


def test_it_takes_over_the_socket_of_one_that_was_killed(broker: Broker) -> None:
    broker.kill()
    assert broker.socket.exists()
    broker.start()
    assert broker.answers()


def test_it_keeps_nothing_on_disk(broker: Broker) -> None:
    with broker.client() as client:
        client.lpush("notifications", "one")
    broker.kill()
    broker.start()
    with broker.client() as client:
        assert client.keys() == []
    assert list((broker.folder / "data").iterdir()) == []


def test_a_socket_path_that_the_kernel_would_refuse_is_refused_in_words(tmp_path: Path) -> None:
    socket = tmp_path / ("x" * 100) / "b.sock"
    done = subprocess.run(
        [sys.executable, "-m", "lockstep.broker", "--socket", str(socket), "--dir", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"has {len(str(socket))} bytes; the limit is 107: {socket}" in done.stderr
    assert "choose a shorter folder" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_longest_socket_path_is_accepted_and_one_byte_more_is_not() -> None:
    server.check_socket(Path("/" + "x" * 106))
    with pytest.raises(LockstepError, match="has 108 bytes"):
        server.check_socket(Path("/" + "x" * 107))


def test_a_server_on_path_goes_before_the_wheels_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "valkey-server", "Valkey server v=8.0.1 sha=00000000:0 bits=64")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert server.find_server() == tmp_path / "valkey-server"


def test_a_server_on_path_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "redis-server", "Redis server v=6.0.16 sha=00000000:0 bits=64")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert server.find_server().parent != tmp_path


def program(path: Path, says: str) -> None:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    "url", ["redis://localhost:6379/0", "rediss://h:1", "redis+socket:///tmp/b.sock"]
)
def test_urls_of_a_redis_are_accepted(url: str) -> None:
    assert BrokerSettings(broker_url=url).broker_url == url


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("amqp://user:secret@host", "not amqp://"),
        ("localhost:6379", "not a URL without ://"),
        ("redis+socket://tmp/b.sock", "three slashes"),
    ],
)
def test_other_urls_are_refused_without_repeating_a_password(url: str, says: str) -> None:
    with pytest.raises(ValidationError) as refused:
        BrokerSettings(broker_url=url)
    assert says in refused.value.errors()[0]["msg"]
    assert "secret" not in refused.value.errors()[0]["msg"]
