"""An agent has the timings of the database, and no lease ends before a fence that it has written."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.domain.life.timings import Timings
from lockstep.storage.control import agreed_timings
from lockstep.storage.db.clock import now
from lockstep.storage.db.database import Database
from lockstep.system.processes import boottime
from lockstep.worker.agent.assignment import Attempt
from lockstep.worker.agent.supervisor import Supervisor
from lockstep.worker.folders import Folder
from tests.harness.databases import Urls
from tests.harness.node import Node, supervisor_in
from tests.harness.processes import Scheduler, until

LONG, SHORT = Timings(), Timings().scaled(0.1)


@pytest.fixture
def supervisor(
    tmp_path: Path, database: Database, database_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> Supervisor:
    """Return the loop of an agent with one claimed attempt, whose thread does nothing."""
    monkeypatch.setattr(Attempt, "start", lambda _attempt: None)
    broker_url = "redis+socket:///none.sock"
    return supervisor_in(
        tmp_path, database, database_urls, broker_url=broker_url, name="node-under-test"
    )


def follow(database: Database, timings: Timings) -> None:
    with database.jobs() as session:
        agreed_timings.store(session, timings)


def test_no_lease_ends_before_a_fence_of_longer_timings(
    supervisor: Supervisor,
    tmp_path: Path,
    database: Database,
    database_urls: Urls,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    follow(database, LONG)
    node = Node(tmp_path, database, database_urls, "redis://nobody")
    supervisor._heartbeat()
    job_id = node.submit("pass")
    supervisor._heartbeat()
    [attempt] = supervisor._attempts.values()
    attempt.folder.path.mkdir()
    attempt.folder.file("assignment.json").write_text("{}")
    supervisor._heartbeat()
    long_fence = attempt.folder.fence()

    def full(_folder: Folder, _deadline: float) -> None:
        raise OSError("no space left on device")

    def lease_left_seconds() -> float:
        with database.read_jobs() as session:
            return node.assignment(job_id).lease_expires_at - now(session)

    follow(database, SHORT)
    with monkeypatch.context() as patched:
        patched.setattr(Folder, "write_fence", full)
        for _ in range(2):
            supervisor._heartbeat()
            lease_left, fence_left = lease_left_seconds(), long_fence - boottime()
            assert attempt.folder.fence() == long_fence
            assert lease_left > fence_left > SHORT.lease_seconds
    supervisor._heartbeat()
    assert attempt.folder.fence() <= boottime() + SHORT.fence_seconds
    supervisor._heartbeat()
    assert lease_left_seconds() <= SHORT.lease_seconds


def test_an_agent_without_any_variable_has_the_timings_of_the_scheduler(own_node: Node) -> None:
    node = own_node
    health = node.dir / ".health"
    node.start()
    until(health.exists)
    assert float(health.read_text()) == node.timings.lease_seconds
    job_id = node.submit("ranks(); until_told()")
    node.wait(job_id, "running")
    scheduler = Scheduler(
        node.dir.parent,
        node.urls,
        node.broker_url,
        timings_scale=1.0,
        number=0,
        LOCKSTEP_LEASE_SECONDS="65",
        LOCKSTEP_FENCE_SECONDS="55",
    )
    try:
        until(lambda: health.exists() and health.read_text() == "65.0\n")
        fence = Folder(node.folder(job_id))
        until(lambda: fence.fence() > boottime() + 45)
        assert node.job(job_id).state.value == "running"
    finally:
        scheduler.process.kill()
        scheduler.process.wait()
