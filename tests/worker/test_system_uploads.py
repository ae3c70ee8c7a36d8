"""An attempt's samples: each exactly once, beside the job's own series and independent of them.

Real databases.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Never

import pytest

from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.attempt import MANIFEST
from lockstep.storage.db.database import Database
from lockstep.storage.series import series, series_query, streams
from lockstep.worker.folders import Folder
from lockstep.worker.upload.metrics import MetricsUploader
from lockstep.worker.upload.system import SystemUploader
from tests.worker.test_file_uploads import STREAM, Faulty

NODE = "system/node0/cpu_percent"


class World:
    """A clock, a sampler that counts, and the uploaders of one attempt."""

    def __init__(self, database: Faulty, folder: Folder):
        self.database, self.folder = database, folder
        self.now = 0.0
        self.samples = 0
        self.told: list[str] = []
        self.own = MetricsUploader(database, folder, STREAM, self.told.append)
        self.system = self.agent()

    def agent(self) -> SystemUploader:
        """Return the uploader of a new agent."""
        return SystemUploader(
            self.database,
            self.folder,
            STREAM,
            self._sample,
            every_seconds=10.0,
            clock=lambda: self.now,
        )

    def _sample(self) -> dict[str, float]:
        self.samples += 1
        return {NODE: float(self.samples)}

    def train(self, *lines: dict[str, float]) -> None:
        with self.folder.file("spool/metrics.jsonl").open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
        while self.own.step(False):
            pass

    def wait(self) -> None:
        """Let ten seconds pass: a sample is taken and stored."""
        self.now += 10.0
        while self.system.step(False):
            pass

    def points(self, name: str = NODE) -> list[tuple[int, float]]:
        with self.database.read_series() as session:
            (view,) = series_query.read(session, STREAM.job_id, names=[name]) or [None]
        return [] if view is None else list(zip(view.step, view.value, strict=True))


@pytest.fixture
def world(database: Database, tmp_path: Path) -> World:
    folder = Folder(tmp_path / STREAM.assignment_id)
    folder.create()
    with database.series() as session:
        assert streams.open_stream(session, streams.Writer("assignment-1", "job-1", 1, "token-1"))
    return World(Faulty(database), folder)


def test_a_sample_lies_at_the_last_stored_step_of_the_job(world: World) -> None:
    world.wait()
    world.train({"step": 7, "loss": 1.0})
    world.wait()
    world.train({"step": 8, "loss": 0.5}, {"step": 12, "loss": 0.25})
    world.wait()
    world.wait()
    assert world.points() == [(0, 1.0), (7, 2.0), (12, 3.0), (12, 4.0)]


def test_between_two_samples_nothing_is_measured(world: World) -> None:
    for _ in range(50):
        world.now += 1.0
        world.system.step(False)
    assert world.samples == 5  # at once, and every ten seconds


def test_samples_are_no_progress_and_leave_the_jobs_own_steps_alone(world: World) -> None:
    world.wait()
    with world.database.read_series() as session:
        state = streams.state(session, STREAM.assignment_id)
        assert series.progress(session, ["job-1"])["job-1"].attempt == 0
        assert series.latest(session, ["job-1"]) == {}
    assert state is not None
    assert state.last_step is None
    world.train({"loss": 1.0})
    assert world.points("loss") == [(1, 1.0)]


def test_samples_are_hidden_with_steps_and_hide_no_others(
    world: World,
) -> None:
    world.train({"step": 5, "loss": 1.0})
    world.wait()
    world.train({"step": 9, "loss": 0.5})
    world.wait()
    second = STREAM._replace(assignment_id="assignment-2", attempt_number=2, token="token-2")
    with world.database.series() as session:
        assert streams.open_stream(session, streams.Writer("assignment-2", "job-1", 2, "token-2"))
    world.folder = Folder(world.folder.path.with_name("assignment-2"))
    world.folder.create()
    resume = world.folder.file("resume")
    resume.mkdir()
    file = {"bytes": 1, "sha256": "0" * 64}
    (resume / MANIFEST).write_text(json.dumps({"format": 1, "step": 6, "files": {"weights": file}}))
    world.system = SystemUploader(
        world.database, world.folder, second, lambda: {NODE: 100.0}, every_seconds=10.0
    )
    world.system.step(False)
    assert world.points("loss") == [(5, 1.0), (9, 0.5)]
    # It begins at the resumed step, although its job has once been further.
    assert world.points() == [(5, 1.0), (9, 2.0), (6, 100.0)]
    world.own = MetricsUploader(world.database, world.folder, second, world.told.append)
    world.train({"step": 7, "loss": 0.75})
    assert world.points("loss") == [(5, 1.0), (7, 0.75)]
    assert world.points() == [(5, 1.0), (6, 100.0)]


def test_a_lost_answer_doubles_nothing_and_an_outage_loses_nothing(world: World) -> None:
    world.system.step(False)
    world.database.after = [ConnectionError("after the commit")]
    for _ in range(2):
        world.now += 10.0
        with pytest.raises(ConnectionError):
            world.system.step(False)
        world.database.before = [ConnectionError("before the commit")]
    world.database.before = []
    world.system = world.agent()
    while world.system.step(True):
        pass
    assert [value for _, value in world.points()] == [1.0, 2.0, 3.0]


def test_a_sample_that_fails_keeps_nothing_from_being_sent(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.wait()

    def fails() -> dict[str, float]:
        raise OSError("no such device")

    broken = SystemUploader(
        world.database, world.folder, STREAM, fails, every_seconds=10.0, clock=lambda: world.now
    )
    with pytest.raises(OSError, match="no such device"):
        broken.step(False)
    assert broken.step(False) is False
    assert broken.step(True) is False


def test_system_series_and_job_series_have_separate_limits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METRIC_NAMES_PER_JOB_MAX", 2)
    monkeypatch.setattr(limits, "SYSTEM_NAMES_PER_JOB_MAX", 1)
    world.wait()
    world.train({"step": 1, "a": 1.0, "b": 1.0, "c": 1.0})
    world.wait()
    assert world.points("a") == [(1, 1.0)]
    assert world.points("b") == [(1, 1.0)]
    assert world.points("c") == []
    assert world.points() == [(0, 1.0), (1, 2.0)]


def test_a_job_cannot_write_the_nodes_series(world: World) -> None:
    world.train({"step": 1, "loss": 1.0, NODE: 5.0}, {"step": 2, NODE: 5.0})
    assert world.points("loss") == [(1, 1.0)]
    assert world.points() == []
    assert world.told == [
        "numbers named system/… are dropped: this prefix is reserved for measurements of the node"
    ]


@pytest.mark.parametrize(
    "text", [b"{torn", b'{"step": 1, "values": {"loss": 1.0}}\n', b'{"step": -1}\n']
)
def test_a_line_that_is_no_sample_is_left_out(world: World, text: bytes) -> None:
    with world.folder.file("spool/system.jsonl").open("ab") as file:
        file.write(text)
    while world.system.step(True):
        pass
    assert world.points() == []
    with world.database.read_series() as session:
        assert series_query.read(session, STREAM.job_id) == []


def test_samples_during_a_database_outage_are_stored_after_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.train({"step": 7, "loss": 1.0})
    world.wait()

    def away() -> Never:
        raise LockstepError(ErrorCode.UNAVAILABLE, "the series database does not answer")

    with monkeypatch.context() as gone:
        for name in ("read_series", "series"):
            gone.setattr(world.database, name, away)
        with pytest.raises(LockstepError):
            world.wait()
    world.wait()
    assert world.points() == [(7, 1.0), (7, 2.0), (7, 3.0)]
