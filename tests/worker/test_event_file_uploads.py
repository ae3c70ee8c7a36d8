"""TensorBoard event files of a script, each scalar exactly once.

Real databases of both kinds; no agent.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lockstep.domain import limits
from lockstep.domain.training import event_files
from lockstep.storage.db.database import Database
from lockstep.storage.series import series, series_query, streams
from lockstep.worker.folders import Folder
from lockstep.worker.upload import tensorboard
from lockstep.worker.upload.metric_warnings import Repeats
from lockstep.worker.upload.tensorboard import EventFilesUploader
from tests.harness.builders import value, write
from tests.worker.test_file_uploads import STREAM, Faulty

NAME = "events.out.tfevents.1700000000.host.1.0"


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


@pytest.fixture
def told() -> list[str]:
    return []


def _path(folder: Folder, run: str = "", name: str = NAME) -> Path:
    path = folder.file("tensorboard") / run / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _records(steps: range, tag: str = "loss") -> bytes:
    return b"".join(event_files.record(step, 1.7e9 + step, {tag: step / 2}) for step in steps)


def _append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


def _points(database: Database) -> dict[str, list[int]]:
    with database.read_series() as session:
        return {view.name: view.step for view in series_query.read(session, "job-1")}


def _run(uploader: EventFilesUploader, *, last: bool = True) -> None:
    """Run steps until there is no progress, as an upload loop does."""
    for _ in range(200):
        try:
            if not uploader.step(last):
                return
        except ConnectionError:
            continue
    raise AssertionError("it never came to its end")


def _uploader(faulty: Faulty, folder: Folder, told: list[str]) -> EventFilesUploader:
    return EventFilesUploader(faulty, folder, STREAM, told.append)


def test_a_real_writers_scalars_arrive_under_their_runs_name(
    faulty: Faulty, folder: Folder, told: list[str]
) -> None:
    for run in ("", "val"):
        rows = [(step, 1.7e9 + step, value("loss/total", step / 4)) for step in range(5)]
        write(folder.file("tensorboard") / run, rows)
    _run(_uploader(faulty, folder, told))
    with faulty.read_series() as session:
        views = {view.name: view for view in series_query.read(session, "job-1")}
        assert series.progress(session, ["job-1"])["job-1"].step == 4
    assert set(views) == {"loss/total", "val/loss/total"}
    assert all(
        view.value == [0.0, 0.25, 0.5, 0.75, 1.0] and view.step == [0, 1, 2, 3, 4]
        for view in views.values()
    )
    assert told == []


def test_a_file_that_grows_byte_by_byte_is_stored_once(
    faulty: Faulty, folder: Folder, told: list[str]
) -> None:
    path, data = _path(folder), event_files.header(1.0) + _records(range(6))
    uploader = _uploader(faulty, folder, told)
    for start in range(0, len(data), 7):
        _append(path, data[start : start + 7])
        # Every third read is by a new agent.
        uploader = _uploader(faulty, folder, told) if start % 3 == 0 else uploader
        uploader.step(False)
    _run(_uploader(faulty, folder, told))
    assert _points(faulty) == {"loss": list(range(6))}
    assert told == []


def test_lost_answers_of_commits_double_nothing_and_failures_lose_nothing(
    faulty: Faulty, folder: Folder, told: list[str]
) -> None:
    _append(_path(folder), _records(range(1, 6)))
    _append(_path(folder, "val"), _records(range(1, 4)))
    faulty.before = [ConnectionError("before the commit")]
    uploader = _uploader(faulty, folder, told)
    with pytest.raises(ConnectionError):
        uploader.step(False)
    faulty.after = [ConnectionError("after the commit")] * 2
    _run(uploader)
    _run(_uploader(faulty, folder, told))
    assert _points(faulty) == {"loss": [1, 2, 3, 4, 5], "val/loss": [1, 2, 3]}


@pytest.mark.parametrize("idle", ["", "a/", "z/"])
def test_a_file_that_grows_during_each_step_is_not_sent_record_by_record(
    faulty: Faulty, folder: Folder, told: list[str], idle: str
) -> None:
    """Alone, or beside a file that comes before or after it and does not grow."""
    uploader, steps_in_a_row = _uploader(faulty, folder, told), 1
    if idle:
        _append(_path(folder, idle), _records(range(3)))
    _append(_path(folder, "m"), _records(range(3)))
    _run(uploader, last=False)
    _append(_path(folder, "m"), _records(range(3, 6)))
    while uploader.step(False):
        _append(_path(folder, "m"), _records(range(3 * steps_in_a_row, 3 * steps_in_a_row + 3)))
        steps_in_a_row += 1
    assert steps_in_a_row <= 2


def test_two_agents_store_each_scalar_once(faulty: Faulty, folder: Folder, told: list[str]) -> None:
    first, second = _uploader(faulty, folder, told), _uploader(faulty, folder, told)
    for start in range(0, 40, 10):
        _append(_path(folder), _records(range(start, start + 10)))
        first.step(False)
        second.step(False)
    _run(first)
    _run(second)
    assert _points(faulty) == {"loss": list(range(40))}


@pytest.mark.parametrize("restart", [False, True])
def test_a_renamed_file_continues_and_a_rewritten_one_is_read_from_its_beginning(
    faulty: Faulty, folder: Folder, told: list[str], restart: bool
) -> None:
    uploader = _uploader(faulty, folder, told)

    def look() -> None:
        nonlocal uploader
        uploader = _uploader(faulty, folder, told) if restart else uploader
        _run(uploader)

    path, other = _path(folder), _path(folder, name="events.out.tfevents.2")
    _append(path, event_files.header(1.0) + _records(range(3)))
    look()
    path.rename(other)
    _append(other, _records(range(3, 5)))
    _append(path, event_files.header(2.0) + _records(range(5, 7)))
    look()
    assert sorted(_points(faulty)["loss"]) == list(range(7))
    assert told == []
    path.write_bytes(event_files.header(3.0) + _records(range(7, 40)))
    look()
    _append(path, _records(range(40, 42)))
    look()
    assert sorted(_points(faulty)["loss"]) == list(range(42))
    (event,) = told
    assert event.startswith(f"{NAME} was rewritten after scalars of it were stored")


def test_a_damaged_file_is_abandoned_and_named_once_by_all_agents(
    faulty: Faulty, folder: Folder, told: list[str]
) -> None:
    good = _records(range(3))
    _append(
        _path(folder, name="a.tfevents"),
        good + _records(range(3, 4))[:-1] + b"?" + _records(range(4, 9)),
    )
    _append(_path(folder, name="b.tfevents"), _records(range(20, 22), "other"))
    _run(_uploader(faulty, folder, told), last=False)
    _append(_path(folder, name="a.tfevents"), _records(range(9, 12)))
    _run(_uploader(faulty, folder, told))
    assert _points(faulty) == {"loss": [0, 1, 2], "other": [20, 21]}
    assert told == [
        f"a.tfevents is damaged at byte {len(good)}: the checksum of a record is wrong; the "
        "rest of the file is not read"
    ]


def test_a_torn_tail_at_the_end_is_no_damage(
    faulty: Faulty, folder: Folder, told: list[str]
) -> None:
    _append(_path(folder), _records(range(4))[:-5])
    _run(_uploader(faulty, folder, told))
    assert _points(faulty) == {"loss": [0, 1, 2]}
    assert told == []


def test_an_image_is_passed_over_only_once_it_is_whole(
    faulty: Faulty, folder: Folder, told: list[str]
) -> None:
    path = _path(folder)
    image = event_files.record(5, 1.0, {"x" * (event_files.RECORD_BYTES_MAX + 1): 1.0})
    uploader = _uploader(faulty, folder, told)
    _append(path, _records(range(2)) + image[:-1])
    _run(uploader, last=False)
    _append(path, image[-1:] + _records(range(2, 4)))
    _run(uploader)
    assert _points(faulty) == {"loss": [0, 1, 2, 3]}
    assert told == []


def test_names_that_are_no_metrics_are_left_out_and_named_once(
    faulty: Faulty, folder: Folder, told: list[str]
) -> None:
    _append(
        _path(folder),
        _records(range(2))
        + _records(range(2), "Loss (train)")
        + _records(range(2), "system/node0/x"),
    )
    _run(_uploader(faulty, folder, told))
    assert _points(faulty) == {"loss": [0, 1]}
    assert len(told) == 1
    assert "'Loss (train)'" in told[0]


def test_the_number_of_files_is_limited_and_begun_ones_continue(
    faulty: Faulty, folder: Folder, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TENSORBOARD_FILES_MAX", 2)
    for run in ("m", "n"):
        _append(_path(folder, run), _records(range(2)))
    _run(_uploader(faulty, folder, told))
    for run in ("a", "m", "n"):
        _append(_path(folder, run), _records(range(2, 4)))
    _run(_uploader(faulty, folder, told))
    assert _points(faulty) == {"m/loss": [0, 1, 2, 3], "n/loss": [0, 1, 2, 3]}
    assert told == ["2 event files of a job are read, the limit; at least 1 are not"]


def test_a_link_or_a_pipe_in_the_folder_is_not_read(
    faulty: Faulty, folder: Folder, told: list[str], tmp_path: Path
) -> None:
    (tmp_path / "elsewhere.tfevents").write_bytes(_records(range(2)))
    (folder.file("tensorboard") / "link.tfevents").symlink_to(tmp_path / "elsewhere.tfevents")
    os.mkfifo(folder.file("tensorboard") / "pipe.tfevents")
    _run(_uploader(faulty, folder, told))
    assert _points(faulty) == {}


def test_a_flood_of_scalars_is_thinned_and_its_newest_step_kept(
    faulty: Faulty, folder: Folder, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "METRIC_POINTS_PER_SECOND_MAX", 100)
    now = [0.0]
    uploader = EventFilesUploader(faulty, folder, STREAM, told.append, clock=lambda: now[0])
    path = _path(folder)
    path.touch()
    uploader.step(False)
    for turn in range(3):
        now[0] += 10.0
        _append(path, _records(range(turn * 2000, (turn + 1) * 2000)))
        _run(uploader, last=False)
    steps = _points(faulty)["loss"]
    # All of the first ten seconds is stored, because only then is the rate of writing known.
    assert {step for step in steps if step >= 2000 and step % 2} <= {3999, 5999}
    assert steps[-1] == 5999
    assert told[0].startswith("metrics limited")


def test_event_files_do_not_change_the_step_of_other_lines(
    faulty: Faulty, folder: Folder, told: list[str]
) -> None:
    _append(_path(folder), _records(range(50, 60)))
    _run(_uploader(faulty, folder, told))
    with faulty.read_series() as session:
        state = streams.state(session, STREAM.assignment_id)
    assert state is not None
    assert state.last_step is None


def test_reading_a_file_is_bounded(
    faulty: Faulty, folder: Folder, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorboard, "READ_BYTES", event_files.RECORD_BYTES_MAX + 16)
    _append(_path(folder, "a"), _records(range(3000)))
    _append(_path(folder, "b"), _records(range(5)))
    uploader = _uploader(faulty, folder, told)
    uploader.step(False)
    uploader.step(False)
    assert len(_points(faulty)["a/loss"]) < 3000
    assert _points(faulty)["b/loss"] == list(range(5))


def test_two_writers_of_one_series_and_a_rewritten_file_are_named(
    faulty: Faulty, folder: Folder, told: list[str]
) -> None:
    repeats = Repeats(folder, told.append, ranks=2)
    uploader = EventFilesUploader(faulty, folder, STREAM, told.append, repeats=repeats)
    for rank in ("rank0", "rank1"):
        _append(folder.file("tensorboard") / f"events.out.tfevents.{rank}", _records(range(1, 4)))
    _run(uploader, last=False)
    assert told == [
        "series 'loss' has step 1 more than once in this attempt, so its curve has several points "
        "there; events.out.tfevents.rank0 and events.out.tfevents.rank1 both have it: let rank 0 "
        "alone write it (RANK is 0), or name the series of each rank differently"
    ]
    path = folder.file("tensorboard") / "events.out.tfevents.rank0"
    size = path.stat().st_size
    path.write_bytes(b"")
    _run(uploader)
    assert told[1:] == [
        f"events.out.tfevents.rank0 is damaged at byte {size}: it was rewritten, and has 0 bytes "
        "now; the rest of the file is not read"
    ]
