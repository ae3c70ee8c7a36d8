"""Uploads of metrics and log lines from their files: each line exactly once, despite all faults.

Real databases of both kinds; no agent.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from lockstep.domain import limits
from lockstep.domain.life.attempt import LogRecord, segment_name
from lockstep.storage.db.database import Database
from lockstep.storage.logs import log_pages
from lockstep.storage.series import series_query, streams
from lockstep.worker.folders import Folder
from lockstep.worker.upload.file_uploader import POISON_TRIES
from lockstep.worker.upload.logs import LogUploader
from lockstep.worker.upload.metric_warnings import REFUSED_NAMES_MAX
from lockstep.worker.upload.metrics import MetricsUploader
from lockstep.worker.upload.stream import Stream

STREAM = Stream(assignment_id="assignment-1", job_id="job-1", attempt_number=1, token="token-1")


class Faulty(Database):
    """A database whose next series transactions fail, before or after their commit."""

    def __init__(self, real: Database):
        self._real = real
        self.before: list[Exception] = []
        self.after: list[Exception] = []

    @contextmanager
    def series(self) -> Iterator[Session]:
        if self.before:
            raise self.before.pop()
        with self._real.series() as session:
            yield session
        if self.after:
            raise self.after.pop()

    def read_series(self):
        return self._real.read_series()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    made = Folder(tmp_path / STREAM.assignment_id)
    made.create()
    return made


@pytest.fixture
def faulty(database: Database) -> Faulty:
    with database.series() as session:
        assert streams.open_stream(session, streams.Writer("assignment-1", "job-1", 1, "token-1"))
    return Faulty(database)


def _write_metrics(folder: Folder, steps: range) -> None:
    with folder.file("spool/metrics.jsonl").open("a") as file:
        file.writelines(json.dumps({"step": step, "loss": step / 2}) + "\n" for step in steps)


def _write_logs(folder: Folder, segment: int, texts: list[str]) -> None:
    with (folder.file("logs") / segment_name(segment)).open("a") as file:
        file.writelines(
            LogRecord(time=1.0, rank=0, stream="stdout", text=text).model_dump_json() + "\n"
            for text in texts
        )


def _steps(database: Database) -> list[int]:
    with database.read_series() as session:
        return [step for view in series_query.read(session, "job-1") for step in view.step]


def _texts(database: Database) -> list[str]:
    with database.read_series() as session:
        return [line.text for line in log_pages.page(session, "job-1", limit=1000).lines]


def _run(uploader: MetricsUploader | LogUploader, *, last: bool = True) -> None:
    """Run steps until there is no progress, as an upload loop does."""
    for _ in range(100):
        try:
            if not uploader.step(last):
                return
        except Exception:  # noqa: BLE001 - the upload loop logs it and continues
            continue
    raise AssertionError("the uploader made progress or failed in each of 100 steps")


def _ignore(_message: str) -> None: ...


def test_a_commit_whose_answer_was_lost_doubles_nothing(faulty: Faulty, folder: Folder) -> None:
    _write_metrics(folder, range(1, 6))
    _write_logs(folder, 0, ["a", "b"])
    faulty.after = [ConnectionError("after the commit")] * 3
    _run(MetricsUploader(faulty, folder, STREAM, _ignore))
    _run(LogUploader(faulty, folder, STREAM, _ignore))
    assert _steps(faulty) == [1, 2, 3, 4, 5]
    assert _texts(faulty) == ["a", "b"]


def test_a_transaction_that_failed_loses_nothing(faulty: Faulty, folder: Folder) -> None:
    _write_metrics(folder, range(1, 4))
    faulty.before = [ConnectionError("before the commit")] * 3
    _run(MetricsUploader(faulty, folder, STREAM, _ignore))
    assert _steps(faulty) == [1, 2, 3]


def test_two_uploaders_of_one_attempt_store_each_line_once(faulty: Faulty, folder: Folder) -> None:
    first = MetricsUploader(faulty, folder, STREAM, _ignore)
    second = MetricsUploader(faulty, folder, STREAM, _ignore)
    for start in range(1, 41, 10):
        _write_metrics(folder, range(start, start + 10))
        first.step(False)
        second.step(False)
    _run(first)
    _run(second)
    assert _steps(faulty) == list(range(1, 41))


@pytest.mark.parametrize("kind", ["metrics", "logs"])
def test_only_a_backlog_is_sent_without_a_pause(faulty: Faulty, folder: Folder, kind: str) -> None:
    """A job that writes during each step would otherwise have a transaction for each line."""
    metrics = kind == "metrics"
    uploader = (MetricsUploader if metrics else LogUploader)(faulty, folder, STREAM, _ignore)

    def write(steps: range) -> None:
        if metrics:
            _write_metrics(folder, steps)
        else:
            _write_logs(folder, 0, [f"{step:100}" for step in steps])

    write(range(1, 3))
    assert not uploader.step(False)
    write(range(3, 10_000))
    steps_in_a_row = 1
    while uploader.step(False):
        steps_in_a_row += 1
        write(range(10_000 * steps_in_a_row, 10_000 * steps_in_a_row + 2))
    assert 2 <= steps_in_a_row <= 10


def test_a_sealed_stream_takes_nothing_and_its_uploader_comes_to_an_end(
    faulty: Faulty, folder: Folder
) -> None:
    uploader = LogUploader(faulty, folder, STREAM, _ignore)
    _write_logs(folder, 0, ["before"])
    uploader.step(False)
    with faulty.series() as session:
        streams.seal(
            session, STREAM.assignment_id, job_id=STREAM.job_id, attempt=STREAM.attempt_number
        )
    _write_logs(folder, 0, ["after"])
    _run(uploader)
    assert uploader.refused
    assert _texts(faulty) == ["before"]


def test_an_attempt_with_another_token_can_add_nothing(faulty: Faulty, folder: Folder) -> None:
    _write_metrics(folder, range(1, 4))
    uploader = MetricsUploader(faulty, folder, STREAM._replace(token="stale"), _ignore)
    _run(uploader)
    assert uploader.refused
    assert _steps(faulty) == []


def test_a_batch_that_the_database_rejects_is_dropped_with_a_warning(
    faulty: Faulty, folder: Folder
) -> None:
    warnings: list[str] = []
    uploader = MetricsUploader(faulty, folder, STREAM, warnings.append)
    _write_metrics(folder, range(1, 4))
    faulty.before = [ValueError("cannot be stored")] * POISON_TRIES
    _run(uploader)
    _write_metrics(folder, range(4, 6))
    _run(uploader)
    assert _steps(faulty) == [4, 5]
    assert warnings == ["3 records were rejected by the database and are dropped"]


def test_an_unavailable_database_never_counts_as_a_bad_batch(
    faulty: Faulty, folder: Folder
) -> None:
    _write_metrics(folder, range(1, 4))
    faulty.before = [ConnectionError("away")] * (POISON_TRIES * 3)
    _run(MetricsUploader(faulty, folder, STREAM, _ignore))
    assert _steps(faulty) == [1, 2, 3]


def test_log_segments_follow_each_other_without_a_gap(
    faulty: Faulty, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LOG_STORED_BYTES", 0)
    uploader = LogUploader(faulty, folder, STREAM, _ignore)
    _write_logs(folder, 0, ["0a"])
    uploader.step(False)
    _write_logs(folder, 0, ["0b"])
    _write_logs(folder, 1, [])
    _write_logs(folder, 2, ["2a"])
    _run(uploader)
    assert _texts(faulty) == ["0a", "0b", "2a"]
    assert [path.name for path in folder.file("logs").glob("*.jsonl")] == [segment_name(2)]


def test_a_half_written_log_line_of_a_killed_launcher_is_dropped(
    faulty: Faulty, folder: Folder
) -> None:
    _write_logs(folder, 0, ["whole"])
    with (folder.file("logs") / segment_name(0)).open("a") as file:
        file.write('{"time": 1.0, "rank": 0, "str')
    _run(LogUploader(faulty, folder, STREAM, _ignore))
    assert _texts(faulty) == ["whole"]


def test_a_folder_in_place_of_the_metrics_file_gives_a_warning(
    faulty: Faulty, folder: Folder
) -> None:
    warnings: list[str] = []
    folder.file("spool/metrics.jsonl").mkdir()
    _run(MetricsUploader(faulty, folder, STREAM, warnings.append))
    assert warnings == ["$LOCKSTEP_METRICS is not a regular file; expected a file of JSON lines"]


@pytest.mark.parametrize("extra", [1, 512 * 1024])
def test_a_line_of_the_longest_length_is_stored_and_a_longer_one_warns(
    faulty: Faulty, folder: Folder, extra: int
) -> None:
    warnings: list[str] = []
    lines = []
    for step, size in (
        (1, limits.METRIC_LINE_BYTES_MAX),
        (2, limits.METRIC_LINE_BYTES_MAX + extra),
    ):
        line = json.dumps({"step": step, "loss": 1.0, "": ""})
        lines.append(line.replace('"": ""', '"note": "' + "x" * (size - len(line) - 4) + '"'))
        assert len(lines[-1]) == size
    folder.file("spool/metrics.jsonl").write_text("\n".join(lines) + "\n")
    _run(MetricsUploader(faulty, folder, STREAM, warnings.append))
    assert _steps(faulty) == [1]
    (warning,) = [each for each in warnings if "it is longer than 64.0 KiB" in each]
    assert "the line is ''" not in warning


def test_log_segments_that_user_code_made_are_passed_over_together(
    faulty: Faulty, folder: Folder
) -> None:
    _write_logs(folder, 0, ["first"])
    for number in range(1, 300):
        (folder.file("logs") / segment_name(number)).touch()
    _write_logs(folder, 300, ["last"])
    _run(LogUploader(faulty, folder, STREAM, _ignore))
    assert _texts(faulty) == ["first", "last"]


def test_a_bad_value_is_named_once_and_the_others_are_stored(
    faulty: Faulty, folder: Folder
) -> None:
    warnings: list[str] = []
    lines: list[dict[str, object]] = [
        {"step": 1, "loss": 1.0, "note": "warming up"},
        {"step": 2, "loss": 2.0, "note": "warm", "eval": None},
        {"step": 3, "loss": 3.0, "note": "warm", "parts": {"a": 1}, "eval": None},
    ]
    folder.file("spool/metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    _run(MetricsUploader(faulty, folder, STREAM, warnings.append))
    assert _steps(faulty) == [1, 2, 3]
    why = "expected a number or one of NaN, Infinity, -Infinity; got"
    assert warnings == [
        f"values of 'note' in $LOCKSTEP_METRICS are dropped: {why} \"warming up\"",
        f"values of 'eval' in $LOCKSTEP_METRICS are dropped: {why} null",
        f"values of 'parts' in $LOCKSTEP_METRICS are dropped: {why} {{\"a\": 1}}",
        "6 values of $LOCKSTEP_METRICS were dropped in all",
    ]


def test_many_bad_names_give_a_bounded_number_of_warnings(faulty: Faulty, folder: Folder) -> None:
    warnings: list[str] = []
    lines = [{"step": step, "loss": 1.0, f"note {step}": "x" * 1000} for step in range(1, 101)]
    folder.file("spool/metrics.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in lines)
    )
    _run(MetricsUploader(faulty, folder, STREAM, warnings.append))
    assert _steps(faulty) == list(range(1, 101))
    assert len(warnings) == REFUSED_NAMES_MAX + 1
    assert warnings[-1] == (
        "100 values of $LOCKSTEP_METRICS were dropped in all, of other names too"
    )
    assert max(map(len, warnings)) < 500


def test_the_longest_line_is_stored_if_json_writes_six_bytes_per_character(
    faulty: Faulty, folder: Folder
) -> None:
    longest = "\x00" * limits.LOG_LINE_BYTES_MAX
    _write_logs(folder, 0, ["before", longest, "after"])
    _run(LogUploader(faulty, folder, STREAM, _ignore))
    assert _texts(faulty) == ["before", longest, "after"]


def test_each_limit_gives_one_warning_also_after_a_lost_answer(
    faulty: Faulty, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METRIC_NAMES_PER_JOB_MAX", 1)
    monkeypatch.setattr(limits, "METRIC_POINTS_PER_JOB_MAX", 3)
    warnings: list[str] = []
    uploader = MetricsUploader(faulty, folder, STREAM, warnings.append)
    for step in range(1, 6):
        with folder.file("spool/metrics.jsonl").open("a") as file:
            file.write(json.dumps({"step": step, "loss": 1.0, f"further {step}": 1.0}) + "\n")
        faulty.after = [ConnectionError("after the commit")] if step == 1 else []
        _run(uploader, last=False)
    assert _steps(faulty) == [1, 2, 3]
    assert warnings == [
        "metrics limited: a job can have at most 1 names; points of other names, such as 'further "
        "1', are dropped",
        "metrics limited: the job has 3 points, the limit for a job; of further points only the "
        "newest value of each series is shown",
    ]
