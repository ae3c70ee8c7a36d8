"""Metrics files that their writer truncates, rewrites or replaces, and steps that repeat.

Every readable point is stored once. Real databases of both kinds; no agent.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lockstep.domain.life import attempt
from lockstep.storage.db.database import Database
from lockstep.storage.series import series_query, streams
from lockstep.worker.folders import Folder
from lockstep.worker.upload.metric_warnings import Repeats
from lockstep.worker.upload.metrics import MetricsUploader
from lockstep.worker.upload.stream import Stream

STREAM = Stream(assignment_id="assignment-1", job_id="job-1", attempt_number=1, token="token-1")


def _lines(*steps: int, of: float = 0.5) -> str:
    return "".join(json.dumps({"step": step, "loss": of * step}) + "\n" for step in steps)


class World:
    """An attempt's file, and the agent's uploader of it."""

    def __init__(self, database: Database, tmp_path: Path):
        self.database = database
        self.folder = Folder(tmp_path / STREAM.assignment_id)
        self.folder.create()
        self.path = self.folder.file(attempt.METRICS)
        self.told: list[str] = []
        with database.series() as session:
            streams.open_stream(session, streams.Writer("assignment-1", "job-1", 1, "token-1"))
        self.restart_agent()

    def restart_agent(self, *, ranks: int = 1) -> None:
        repeats = Repeats(self.folder, self.told.append, ranks=ranks)
        self.uploader = MetricsUploader(
            self.database, self.folder, STREAM, self.told.append, repeats=repeats
        )

    def look(self, *, last: bool = False) -> None:
        while self.uploader.step(last):
            pass

    def write(self, text: str, mode: str = "a") -> None:
        with self.path.open(mode) as file:
            file.write(text)

    def replace(self, text: str) -> None:
        beside = self.path.with_name("new")
        beside.write_text(text)
        beside.replace(self.path)

    def steps(self) -> list[int]:
        with self.database.read_series() as session:
            views = series_query.read(session, "job-1", names=["loss"], max_points=10_000)
        return [step for view in views for step in view.step]


@pytest.fixture
def world(database: Database, tmp_path: Path) -> World:
    return World(database, tmp_path)


def _rewritten(world: World) -> list[str]:
    return [message for message in world.told if "was rewritten" in message]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("newline", ["\n", ""])
def test_a_file_that_each_step_truncates_is_read_again(
    world: World, newline: str, restart: bool
) -> None:
    for step in range(1, 7):
        world.write(json.dumps({"step": step, "loss": 10.0 - step}) + newline, "w")
        world.look()
        if restart and newline:
            world.restart_agent()
    world.look(last=True)
    assert world.steps() == [1, 2, 3, 4, 5, 6]
    (message,) = _rewritten(world)
    assert message == (
        "$LOCKSTEP_METRICS was rewritten after lines of it were stored, and is read from its "
        "beginning; lines that were overwritten before they were read are missing. Open the file "
        'with mode "a" (append)'
    )


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("size", ["shorter", "equal", "longer"])
@pytest.mark.parametrize("how", ["truncated", "replaced", "deleted"])
def test_new_content_is_stored_completely_with_one_event(
    world: World, how: str, size: str, restart: bool
) -> None:
    world.write(_lines(10, 11, 12))
    world.look()
    if restart:
        world.restart_agent()
    new = {"shorter": (20,), "equal": (20, 21, 22), "longer": (20, 21, 22, 23, 24)}[size]
    if how == "deleted":
        world.path.unlink()
        world.look()
    (world.replace if how == "replaced" else lambda text: world.write(text, "w"))(_lines(*new))
    world.look()
    world.write(_lines(30))
    world.look(last=True)
    assert world.steps() == [10, 11, 12, *new, 30]
    assert len(_rewritten(world)) == 1


def test_lines_written_just_before_a_rotation_are_stored_too(world: World) -> None:
    world.write(_lines(1, 2))
    world.look()
    world.write(_lines(3, 4) + '{"step": 5, "loss": 1}')
    world.path.rename(world.path.with_name("metrics.jsonl.1"))
    world.look()
    world.write(_lines(6))
    world.look(last=True)
    assert world.steps() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("restart", [False, True])
def test_a_history_rewritten_at_each_step_is_stored_once_without_event(
    world: World, restart: bool
) -> None:
    for step in range(1, 9):
        if step % 2:
            world.write(_lines(*range(1, step + 1)), "w")
        else:
            # The agent reads while the file is being written.
            world.write(_lines(*range(1, step // 2 + 1)), "w")
            world.look()
            world.write(_lines(*range(step // 2 + 1, step + 1)))
        world.look()
        if restart:
            world.restart_agent()
            world.look()
    world.replace(_lines(*range(1, 12)))
    world.look(last=True)
    assert world.steps() == list(range(1, 12))
    assert world.told == []


def test_a_file_cut_back_to_a_checkpoint_continues_from_there(world: World) -> None:
    world.write(_lines(1, 2, 3, 4))
    world.look()
    os.truncate(world.path, len(_lines(1, 2)))
    world.look()
    world.write(_lines(3, 4, 5, of=0.25))
    world.look(last=True)
    assert sorted(world.steps()) == [1, 2, 3, 3, 4, 4, 5]
    assert len(_rewritten(world)) == 1


def test_a_restored_database_gets_the_content_of_the_current_file(world: World) -> None:
    world.write(_lines(1, 2))
    world.look()
    world.write(_lines(5, 6, 7, 8), "w")
    world.look()
    with world.database.series() as session:
        # As from a backup before the rewrite, and then from one after it.
        session.connection().exec_driver_sql("UPDATE streams SET metrics_offset = 10")
        session.connection().exec_driver_sql("DELETE FROM series_chunks")
        session.connection().exec_driver_sql("DELETE FROM series_latest")
    world.uploader.compare_offset()
    world.look(last=True)
    assert world.steps() == [5, 6, 7, 8]
    assert any("of the metrics are missing" in message for message in world.told)


def _repeated(world: World) -> list[str]:
    return [message for message in world.told if "more than once" in message]


@pytest.mark.parametrize("ranks", [1, 2])
def test_repeated_steps_give_one_event_per_series(world: World, ranks: int) -> None:
    world.restart_agent(ranks=ranks)
    for epoch in range(3):
        world.write(_lines(1, 2, 3) + json.dumps({"step": epoch, "val": 1.0}) + "\n")
        world.look()
        if epoch:
            world.restart_agent(ranks=ranks)
    world.look(last=True)
    (message,) = _repeated(world)
    cause = (
        "if all 2 ranks write to $LOCKSTEP_METRICS, let rank 0 alone write it (RANK is 0), or name "
        "the series of each rank differently"
        if ranks == 2
        else "let the step count on over epochs and phases"
    )
    assert message == (
        "series 'loss' has step 1 more than once in this attempt, so its curve has several points "
        f"there; {cause}"
    )


def test_steps_in_another_order_and_records_sent_again_are_no_repeats(world: World) -> None:
    world.write(_lines(30, 10, 20))
    world.look()
    with world.database.series() as session:
        session.connection().exec_driver_sql("UPDATE streams SET metrics_offset = 0")
    world.uploader.compare_offset()
    world.look(last=True)
    assert _repeated(world) == []
