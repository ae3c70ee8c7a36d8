"""Health check of the containers: it checks completed work, not the existence of a process."""

from __future__ import annotations

import http.server
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.storage.control import scheduler_lease
from lockstep.storage.db.clock import now
from lockstep.storage.db.database import Database
from lockstep.storage.db.migrate import upgrade
from lockstep.storage.db.settings import default_series_url
from lockstep.storage.db.tables import SchedulerLeaseRow
from lockstep.worker.health import HealthFile
from tests.harness.databases import Urls
from tests.harness.node import Node
from tests.harness.processes import until

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docker" / "health.py"


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
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    return done.returncode, done.stderr


def test_a_scheduler_is_healthy_until_its_last_cycle_is_too_old(
    url: str, database: Database
) -> None:
    with database.jobs() as session:
        assert scheduler_lease.take(session, "me", ttl_seconds=5)
        scheduler_lease.give_back(session, "me")
    assert check("scheduler", url) == (0, "")
    with database.jobs() as session:
        row = session.get(SchedulerLeaseRow, scheduler_lease.ONLY)
        assert row is not None
        row.finished_at = now(session) - 32
    code, reason = check("scheduler", url)
    assert code == 1
    said = re.fullmatch(r"the last pass ended (\d+) s ago; at most 30 s are expected\n", reason)
    assert said is not None
    assert int(said[1]) >= 32


def test_an_agent_is_healthy_while_its_heartbeats_arrive(url: str, tmp_path: Path) -> None:
    health = HealthFile(tmp_path, valid_seconds=60.0)
    missing = f"the agent has made no heartbeat yet: {tmp_path}/.health is not there\n"
    assert check("agent", url, LOCKSTEP_NODE_DIR=str(tmp_path)) == (1, missing)
    health.note_heartbeat()
    assert check("agent", url, LOCKSTEP_NODE_DIR=str(tmp_path)) == (0, "")
    for years, reason in (
        (-1, r"the last heartbeat was 315\d+ s ago; at most 60 s are expected\n"),
        (1, r".*-315\d+ s ago.*"),
    ):
        moment = time.time() + years * 31_536_000
        os.utime(tmp_path / ".health", (moment, moment))
        code, said = check("agent", url, LOCKSTEP_NODE_DIR=str(tmp_path))
        assert code == 1
        assert re.fullmatch(reason, said, re.DOTALL), said
    health.note_heartbeat()
    assert check("agent", url, LOCKSTEP_NODE_DIR=str(tmp_path)) == (0, "")
    health.remove()
    assert check("agent", url, LOCKSTEP_NODE_DIR=str(tmp_path)) == (1, missing)


def test_the_check_of_an_agent_needs_only_the_standard_library(
    tmp_path: Path,
) -> None:
    """With ``-S`` there is no site-packages with SQLAlchemy.

    With an empty environment there is no database.
    """
    HealthFile(tmp_path, valid_seconds=60.0).note_heartbeat()
    argv = [sys.executable, "-I", "-S", str(SCRIPT), "agent"]
    done = subprocess.run(
        argv, env={"LOCKSTEP_NODE_DIR": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        '["python", "-I", "-S", "/opt/lockstep/health.py", "agent"]'
        in (ROOT / "Dockerfile").read_text()
    )


def test_a_frozen_agent_is_unhealthy_and_so_is_one_that_was_stopped(
    sqlite_urls: Urls, tmp_path: Path
) -> None:
    database = Database(*sqlite_urls)
    node = Node(tmp_path, database, sqlite_urls, f"redis+socket://{tmp_path}/none.sock")

    def healthy() -> bool:
        return check("agent", sqlite_urls[0], LOCKSTEP_NODE_DIR=str(node.dir))[0] == 0

    try:
        node.start()
        until(healthy, 60, "it is healthy")
        assert node.agent is not None
        node.agent.send_signal(signal.SIGSTOP)
        until(lambda: not healthy(), 60, "it is frozen for longer than a lease")
        node.agent.send_signal(signal.SIGCONT)
        until(healthy, 60, "it is healthy again")
        assert node.terminate() == 0
        assert not healthy()
    finally:
        node.close()
        database.close()


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
    assert check("cashier", url) == (
        1,
        "no program is named 'cashier'; expected api, scheduler or agent\n",
    )


class _Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert self.path == "/livez"
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Print nothing, because the test's output is for failures."""
