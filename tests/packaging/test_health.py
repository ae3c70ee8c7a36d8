"""The containers' health check: it asks for work that was done, not for a process that exists."""

from __future__ import annotations

import http.server
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage import nodes, passes
from storage.clock import now
from storage.database import Database
from storage.migrate import upgrade
from storage.settings import default_series_url
from storage.tables import NodeRow, PassRow

SCRIPT = Path(__file__).parents[2] / "docker" / "health.py"


@pytest.fixture
def url(tmp_path: Path) -> str:
    made = f"sqlite:///{tmp_path}/jobs.db"
    upgrade(made, default_series_url(made))
    return made


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    opened = Database(url, default_series_url(url))
    yield opened
    opened.close()


def check(program: str, url: str, **more: str) -> tuple[int, str]:
    environment = {
        "PATH": "/usr/bin:/bin",
        "LOCKSTEP_DATABASE_URL": url,
        "LOCKSTEP_BROKER_URL": "redis://localhost:1/0",
        "LOCKSTEP_STORE": "/nowhere",
        "LOCKSTEP_NODE_DIR": "/nowhere",
        "LOCKSTEP_NODE_NAME": "n1",
        **more,
    }
    argv = [sys.executable, str(SCRIPT), program]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_a_scheduler_is_healthy_until_its_last_pass_is_too_long_ago(url: str, database: Database) -> None:
    with database.jobs() as session:
        assert passes.take(session, "me", ttl_seconds=5)
        passes.give_back(session, "me")
    assert check("scheduler", url) == (0, "")
    with database.jobs() as session:
        row = session.get(PassRow, passes.ONLY)
        assert row is not None
        row.finished_at = now(session) - 32
    code, reason = check("scheduler", url)
    assert code == 1
    assert re.fullmatch(r"the last pass ended 3\d s ago; at most 30 s are expected\n", reason)


def test_an_agent_is_healthy_while_its_heartbeats_arrive(url: str, database: Database) -> None:
    assert check("agent", url) == (1, "node n1 has not registered\n")
    with database.jobs() as session:
        nodes.register(session, "n1", [], version="1", boot_id="b")
    assert check("agent", url) == (0, "")
    with database.jobs() as session:
        row = session.get(NodeRow, "n1")
        assert row is not None
        row.seen_at = now(session) - 61
    assert check("agent", url)[0] == 1


def test_an_api_is_healthy_while_it_answers(url: str) -> None:
    server = http.server.HTTPServer(("127.0.0.1", 0), _Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    port = str(server.server_port)
    try:
        assert check("api", url, LOCKSTEP_PORT=port) == (0, "")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    code, reason = check("api", url, LOCKSTEP_PORT=port)
    assert code == 1
    assert f"http://127.0.0.1:{port}/livez does not answer" in reason


def test_an_unknown_program_is_not_healthy(url: str) -> None:
    assert check("cashier", url) == (1, "no program is named 'cashier'; expected api, scheduler or agent\n")


class _Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert self.path == "/livez"
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing: the test's output is for failures."""
