"""Resources of an api do not grow with its answers, nor with clients that disconnect early."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.api.conftest import SCRIPT
from tests.api.test_server import Program
from tests.harness.processes import until

GROWTH_BYTES_MAX = 24 * 1024 * 1024


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    made = Program(tmp_path)
    yield made
    made.end(9)


def _held(pid: int) -> tuple[int, int, int]:
    """Return the numbers of descriptors and threads, and the bytes of memory."""
    proc = Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines())
    return (
        len(list((proc / "fd").iterdir())),
        int(status["Threads"]),
        int(status["VmRSS"].split()[0]) * 1024,
    )


def _leave_early(program: Program, turn: int) -> None:
    """Send a request, or a part of one, and reset the connection.

    The reset comes at once or after the first bytes of the answer.
    """
    url = urlsplit(program.url)
    body = json.dumps(SCRIPT).encode() if turn % 2 else b""
    method = "POST" if turn % 2 else "GET"
    head = f"{method} /v1/jobs HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {program.token}\r\n"
    request = (
        f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        + body
    )
    with socket.create_connection((str(url.hostname), int(url.port or 0)), timeout=60) as client:
        client.sendall(request[: len(request) * (turn % 7 + 1) // 7])
        if turn % 7 == 6 and turn % 3 == 0:
            client.recv(16)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("requests", [300, pytest.param(2_000, marks=pytest.mark.drill)])
def test_resources_do_not_grow_with_clients_that_disconnect(
    program: Program, requests: int
) -> None:
    program.start()
    assert program.process is not None
    pid = program.process.pid
    for turn in range(100):
        _leave_early(program, turn)
    with program.client() as http:
        assert http.get("/v1/jobs").status_code == 200
    before = _held(pid)
    for turn in range(requests):
        _leave_early(program, turn)
    with program.client() as http:
        assert http.get("/v1/jobs").status_code == 200, "it still answers"
    until(lambda: _held(pid)[0] <= before[0] + 8, 60, f"descriptors are back near {before[0]}")
    after = _held(pid)
    # Request threads are created on demand, 40 at most, and kept.
    assert after[1] <= max(before[1], 40) + 5, (before, after)
    assert after[2] - before[2] < GROWTH_BYTES_MAX, (before, after)
    assert not [line for line in program.lines if line.get("level") == "error"]
