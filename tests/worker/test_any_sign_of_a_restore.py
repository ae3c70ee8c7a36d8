"""Any sign of a restore of the database is for all uploaders of all attempts.

Not here: the data that is sent again (``tests.worker.test_set_back``).
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import delete, select, text, update

from lockstep.domain.life import attempt
from lockstep.domain.life.grace import SaveTime
from lockstep.domain.life.lifecycle import AttemptState, JobState
from lockstep.domain.training.plan import BatchPlan
from lockstep.storage.db.database import Database
from lockstep.storage.db.series_tables import StreamRow
from lockstep.storage.db.tables import AttemptRow, DeviceRow, JobRow, NodeRow
from lockstep.worker.upload.stream import state_of
from tests.harness.databases import Backup
from tests.harness.node import Node
from tests.worker.test_set_back import Job, all_nodes, events_of, rows, run, save, say


@pytest.fixture
def job(database: Database, tmp_path: Path) -> Job:
    return Job(database, tmp_path)


@pytest.mark.parametrize("kind", ["metrics", "logs", "events"])
def test_a_stream_that_is_opened_again_is_reported_by_one_that_misses_nothing(
    job: Job, tmp_path: Path, kind: str
) -> None:
    """Others may have stored something, and do not look while they have nothing to send."""
    made = {"metrics": job.metrics, "logs": job.logs, "events": partial(events_of, job, tmp_path)}
    uploader = made[kind]()
    uploader.on_set_back = job.told.append
    while uploader.step(False):
        pass
    with job.database.series() as session:
        session.execute(delete(StreamRow))
    job.told.clear()
    job.write(range(1))
    while uploader.step(kind == "events"):
        pass
    assert job.told == [""]


def test_an_older_jobs_database_alone_gets_the_state_and_the_newest_plan_again(
    job: Job, tmp_path: Path
) -> None:
    reporter = events_of(job, tmp_path)
    set_state(job.database, "STARTING")
    backup = Backup(job.database)
    save = SaveTime(seconds=20.0, measured=True)
    job.folder.file(attempt.SAVE_TIME).write_text(save.model_dump_json())
    say(job, "running")
    for micro in (4, 2):
        plan = BatchPlan(
            batch_size=8, micro_batch_size=micro, accumulation_steps=8 // micro, world_size=1
        )
        say(job, "plan", **plan.model_dump())
    run(reporter)
    expected = state_and_plan(job)
    assert expected == (AttemptState.RUNNING, 2, save.model_dump())
    backup.restore_jobs()
    run(reporter)
    assert state_and_plan(job) == (AttemptState.STARTING, None, None)
    reporter.set_back("")
    run(reporter)
    assert state_and_plan(job) == expected
    assert job.events("plan") == ["the batch plan is final"]
    backup.restore_jobs()
    run(events_of(job, tmp_path))  # as an agent that starts
    assert state_and_plan(job) == expected


def test_an_agent_that_starts_gives_a_restored_database_its_checkpoints(
    job: Job, tmp_path: Path
) -> None:
    """The agent before it was killed between the restore and its discovery."""
    reporter = events_of(job, tmp_path)
    save(job, 10)
    run(reporter)
    backup = Backup(job.database)
    save(job, 20)
    run(reporter)
    expected = rows(job)
    backup.restore_jobs()
    reporter = events_of(job, tmp_path)
    reporter.begin(state_of(job.database, job.stream, lambda: None))
    run(reporter)
    assert rows(job) == expected
    assert [row["step"] for row in expected] == [20, 10]


def test_an_agent_notices_a_jobs_database_that_was_restored_alone(own_node: Node) -> None:
    """In the backup the attempt's ranks have not met, and the node's agent is an older one."""
    own_node.start()
    job_id = own_node.submit("ranks(); until_told()")
    own_node.wait(job_id, "running")
    set_state(own_node.database, "STARTING")
    (node,) = all_nodes(own_node)
    with own_node.database.jobs() as session:
        session.execute(update(NodeRow).values(version="0.0.1"))
        session.execute(update(DeviceRow).values(present=False))
    time.sleep(2 * own_node.timings.heartbeat_seconds)
    assert own_node.job(job_id).state.value == "starting"
    with own_node.database.jobs() as session:
        for change in ("CREATE TABLE another (number INTEGER)", "DROP TABLE another"):
            session.execute(text(change))  # The schema's version tells a restore.
    own_node.wait(job_id, "running")
    (again,) = all_nodes(own_node)
    assert again.version == node.version != "0.0.1"
    assert all(device.present for device in again.devices)


def set_state(database: Database, state: str) -> None:
    with database.jobs() as session:
        session.execute(update(AttemptRow).values(state=AttemptState[state], plan=None))
        session.execute(update(JobRow).values(state=JobState[state]))


def state_and_plan(job: Job) -> tuple[AttemptState, int | None, dict[str, object] | None]:
    """Return the attempt's state and micro-batch, and the duration of the job's save."""
    with job.database.read_jobs() as session:
        row = session.scalars(select(AttemptRow)).one()
        save_time = session.scalars(select(JobRow.save_time)).one()
        return row.state, (row.plan or {}).get("micro_batch_size"), save_time
