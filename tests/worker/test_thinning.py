"""A job that writes too much affects only itself: its points are thinned, with an event.

Its spool stays small, and no other job waits. The uploaders, databases and files are real. There is
no agent, except if the other jobs of a node are the subject.
"""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.attempt import METRICS
from lockstep.domain.training.memory import in_words
from lockstep.storage.db.database import Database
from lockstep.storage.series import series, series_query, streams
from lockstep.worker.folders import Folder
from lockstep.worker.upload.decimation import WINDOW_SECONDS, Decimator
from lockstep.worker.upload.file_uploader import POISON_TRIES
from lockstep.worker.upload.files import sparse_files
from lockstep.worker.upload.files.lines import whole_lines
from lockstep.worker.upload.metrics import MetricsUploader
from lockstep.worker.upload.stream import Stream
from tests.harness.builders import as_untrusted
from tests.harness.databases import full
from tests.harness.drills import Drill

RATE = limits.METRIC_POINTS_PER_SECOND_MAX
SMALL = 400
"""Limit for the jobs here. To write more than a real one takes longer than the other tests."""
STREAM = Stream(assignment_id="assignment-1", job_id="job-1", attempt_number=1, token="token-1")
LINE = '{"step": %d, "loss": 1.5, "lr": 0.125}\n'
LINE_POINTS = 2


class Clock:
    """Clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Job:
    """A job that writes metrics, and the uploader of its node, driven like an upload loop."""

    def __init__(self, database: Database, folder: Folder, clock: Clock):
        self.database, self.folder, self.clock = database, folder, clock
        self.said: list[str] = []
        self.steps = 0
        self.uploader = self.another_uploader()

    def another_uploader(self) -> MetricsUploader:
        uploader = MetricsUploader(self.database, self.folder, STREAM, self.said.append)
        uploader._decimator._clock = self.clock
        return uploader

    @property
    def path(self) -> Path:
        return self.folder.file(METRICS)

    def write(self, steps: int, line: str = LINE) -> None:
        with self.path.open("a") as file:
            file.writelines(line % step for step in range(self.steps + 1, self.steps + steps + 1))
        self.steps += steps

    def upload(self, *, last: bool = False) -> None:
        while self.uploader.step(last):
            pass

    def run(self, seconds: int, points_per_second: int) -> None:
        """Write at a rate, and upload once per second."""
        for _ in range(seconds):
            self.clock.now += 1.0
            self.write(points_per_second // LINE_POINTS)
            self.upload()

    def stored(self, name: str = "loss") -> list[int]:
        with self.database.read_series() as session:
            return [
                step
                for view in series_query.read(session, "job-1", names=[name], max_points=10**7)
                for step in view.step
            ]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / STREAM.assignment_id)
    made.create()
    return made


@pytest.fixture
def job(database: Database, folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setattr(limits, "METRIC_POINTS_PER_SECOND_MAX", SMALL)
    with database.series() as session:
        assert streams.open_stream(session, streams.Writer("assignment-1", "job-1", 1, "token-1"))
    made = Job(database, folder, Clock())
    made.upload()
    return made


def _rates(decimator: Decimator, clock: Clock, points_per_second: float, seconds: int) -> None:
    """Let a spool of 10 bytes per point grow."""
    decimator.measured(1_000, 100)
    for second in range(seconds + 1):
        decimator.note_size(int(second * points_per_second * 10))
        clock.now += 1.0


@pytest.mark.parametrize(
    ("points_per_second", "keep_every"),
    [
        (RATE - 100, 1),
        (RATE, 1),
        (RATE + 100, 2),
        (2 * RATE, 2),
        (2 * RATE + 100, 4),
        (200_000, 32),
    ],
)
def test_of_so_many_steps_one_is_kept_that_the_rate_fits(
    points_per_second: int, keep_every: int
) -> None:
    clock, said = Clock(), list[str]()
    decimator = Decimator(said.append, clock=clock)
    _rates(decimator, clock, points_per_second, 30)
    assert decimator.keep_every == keep_every
    assert len(said) == (keep_every > 1)


def test_a_burst_of_ten_seconds_is_stored_completely_and_no_more() -> None:
    for points, keep_every in ((WINDOW_SECONDS * RATE, 1), (WINDOW_SECONDS * RATE + 1, 2)):
        clock = Clock()
        decimator = Decimator(lambda _text: None, clock=clock)
        decimator.measured(1_000, 100)
        decimator.note_size(0)
        clock.now += 1.0
        decimator.note_size(int(points * 10))
        assert decimator.keep_every == keep_every


@pytest.mark.row
def test_a_flood_is_thinned_by_whole_steps_with_two_events(job: Job, drill: Drill) -> None:
    drill.begin("F28", "metrics at 3.5 times the limit")
    drill.injected += 1
    job.run(14, 7 * SMALL // 2)
    flooded = job.steps
    assert len(job.said) == 1
    assert job.said[0].startswith("metrics limited: the job writes ")
    job.run(25, SMALL // 100)
    assert len(job.said) == 2
    assert job.said[1].startswith("metrics no longer limited: ")
    assert job.said[1].endswith("every step is stored again")
    stored = job.stored()
    drill.doubled = len(stored) - len(set(stored))
    assert stored == job.stored("lr") == sorted(set(stored))
    thinned = [step for step in stored if flooded // 2 < step <= flooded]
    assert len(thinned) < flooded // 2 / 4 + 20
    # All points of the kept steps are stored, and in addition the newest step at each read.
    assert {step for step in range(flooded // 2 + 1, flooded + 1) if step % 4 == 0} <= set(thinned)
    assert flooded in stored
    assert stored[-1] == job.steps
    # After its end no step is left out.
    assert set(range(job.steps - SMALL // 200 * 5, job.steps + 1)) <= set(stored)


def test_the_newest_step_and_the_first_nan_are_stored(job: Job) -> None:
    job.run(12, 7 * SMALL // 2)
    before = job.steps
    lines = [f'{{"step": {before + 1 + number // 2}, "loss" : {number}}}\n' for number in range(22)]
    lines[6] = lines[6].replace('"loss" : 6', '"spike" : "NaN"')
    with job.path.open("a") as file:
        file.writelines(lines)
    job.upload()
    assert job.stored("spike") == [before + 4]
    assert [step for step in job.stored() if step > before + 8] == [before + 11, before + 11]


def test_a_line_without_a_step_gets_the_next_step_despite_thinning(job: Job) -> None:
    job.run(12, 7 * SMALL // 2)
    before = job.steps
    with job.path.open("a") as file:
        file.write('{"loss": 1}\n' * 20)
    job.upload()
    assert job.uploader.last_step == before + 20
    assert job.stored()[-1] == before + 20


def test_a_backlog_of_a_calm_job_is_stored_whole(job: Job) -> None:
    """A database that was unavailable for hours leaves a larger backlog than a flood of seconds."""
    job.write(20_000)
    job.uploader = (
        job.another_uploader()
    )  # the agent was restarted: it only finds a large spool that grows slowly
    job.run(3, 20)
    assert job.stored() == list(range(1, job.steps + 1))
    assert job.said == []


def test_stored_bytes_of_a_spool_are_freed_on_disk(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.uploader._file.spool._piece_bytes = 100_000
    monkeypatch.setattr(limits, "METRIC_SPOOL_STORED_BYTES", 50_000)
    taken = 0
    for _ in range(20):
        job.write(2_000)
        job.upload()
        taken = max(taken, sparse_files.taken_bytes(*as_untrusted(job.path)))
    size = job.path.stat().st_size
    assert size > 1_000_000
    assert taken < 350_000
    job.uploader = job.another_uploader()  # a new agent continues after the gaps
    job.write(10)
    job.upload()
    assert job.stored() == list(range(1, job.steps + 1))
    assert (
        whole_lines(*as_untrusted(job.path), size).lines[-1].text
        == (LINE % job.steps).strip().encode()
    )


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_spool_that_cannot_be_stored_keeps_its_head_and_its_end(
    job: Job, monkeypatch: pytest.MonkeyPatch, beyond: int
) -> None:
    job.write(20_000)
    os.sync()
    taken = sparse_files.taken_bytes(*as_untrusted(job.path))
    monkeypatch.setattr(limits, "METRIC_SPOOL_BYTES_MAX", taken - beyond)

    def away(*_arguments: object, **_more: object) -> None:
        raise ConnectionError("the database is away")

    with monkeypatch.context() as broken:
        broken.setattr(series, "append", away)
        for _ in range(3):
            with pytest.raises(ConnectionError):
                job.uploader.step(False)
    if not beyond:
        assert job.said == []
        return
    assert sparse_files.taken_bytes(*as_untrusted(job.path)) <= taken * 0.76
    assert [text.partition(" wait")[0] for text in job.said] == [
        f"metrics limited: more than {in_words(taken - 1)}"
    ]
    job.upload()
    stored = job.stored()
    gaps = [(one, other) for one, other in itertools.pairwise(stored) if other != one + 1]
    assert len(gaps) == 1
    assert stored[0] == 1
    assert 0.45 < gaps[0][0] / job.steps < 0.55
    assert 0.7 < gaps[0][1] / job.steps < 0.8
    assert stored[-1] == job.steps


def test_a_full_disk_of_the_database_delays_points_and_loses_none(job: Job) -> None:
    job.write(2_000)
    job.upload()
    refused: list[LockstepError] = []
    with full(job.database._series):
        for _ in range(20):
            job.write(500)
            try:
                job.upload()
            except LockstepError as error:
                refused.append(error)
    assert len(refused) > POISON_TRIES
    assert {error.code for error in refused} == {ErrorCode.STORAGE_FULL}
    job.upload()
    assert job.stored() == list(range(1, job.steps + 1))
    assert job.said == []


def test_a_hole_is_skipped_with_any_bytes_around_it(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    lines = [json.dumps({"step": step}).encode() for step in range(1, 2_001)]
    path.write_bytes(b"\n".join(lines) + b"\n" + b'{"step": 20')
    size = path.stat().st_size
    for start in range(4096, 12_288, 4096):
        assert sparse_files.punch(*as_untrusted(path), start, start + 4096)
    assert not sparse_files.punch(*as_untrusted(path), 100, 4000)
    assert not sparse_files.punch(*as_untrusted(tmp_path / "none"), 0, 8192)
    found, offset = [], 0
    while True:
        piece = whole_lines(*as_untrusted(path), offset, batch_bytes=1000)
        if piece.offset == offset:
            break
        assert piece.too_long is None
        found += [line.text for line in piece.lines]
        offset = piece.offset
    assert offset == size - len(b'{"step": 20')
    missing = [line for line in lines if line not in found]
    assert found == [line for line in lines if line not in missing]
    assert 0 < sum(len(line) + 1 for line in missing) < 8192 + 40
    assert path.stat().st_size == size


def test_a_hole_at_the_end_waits_for_the_line_behind_it(tmp_path: Path) -> None:
    path = tmp_path / "spool"
    path.write_bytes(b"a\n" * 4096 + b"b" * 10)
    sparse_files.punch(*as_untrusted(path), 0, 8192)
    piece = whole_lines(*as_untrusted(path), 0)
    assert piece.lines == []
    assert whole_lines(*as_untrusted(path), piece.offset).offset == piece.offset
    with path.open("ab") as file:
        file.write(b"\nwhole\n")
    behind = whole_lines(*as_untrusted(path), piece.offset)
    assert [line.text for line in whole_lines(*as_untrusted(path), behind.offset).lines] == [
        b"whole"
    ]
