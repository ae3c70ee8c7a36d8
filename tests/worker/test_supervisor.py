"""Invariants of the supervisor's own loop. No agent process and no broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.storage.attempts import attempts
from lockstep.storage.db.database import Database
from lockstep.worker.agent.assignment import Attempt
from tests.harness.databases import Urls
from tests.harness.node import Node, supervisor_in


def test_an_attempt_without_thread_does_not_count_as_running(
    tmp_path: Path, sqlite_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not renewed forever, and the next cycle adopts it."""
    database = Database(*sqlite_urls)
    node = Node(tmp_path, database, sqlite_urls, "redis://nobody")
    supervisor = supervisor_in(
        tmp_path, database, sqlite_urls, broker_url=node.broker_url, name=node.name
    )
    supervisor._heartbeat()
    assignment_id = node.place(node.submit("pass", place=False))
    started: list[Attempt] = []

    def start(attempt: Attempt) -> None:
        if not started:
            started.append(attempt)
            raise RuntimeError("can't start new thread")
        started.append(attempt)

    monkeypatch.setattr(Attempt, "start", start)
    with pytest.raises(RuntimeError):
        supervisor._heartbeat()
    supervisor._heartbeat()
    assert [attempt.stream.assignment_id for attempt in started] == [assignment_id] * 2
    with database.read_jobs() as session:
        assert [held.assignment_id for held in attempts.held(session, node.name)] == [assignment_id]
    database.close()
