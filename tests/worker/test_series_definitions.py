"""Definitions in a metrics file, as a script writes them: stored, refused by name, bounded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.domain import limits
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.storage.db.database import Database
from lockstep.storage.series import definitions
from tests.worker.test_rewritten_metrics import World


@pytest.fixture
def world(database: Database, tmp_path: Path) -> World:
    return World(database, tmp_path)


def _define(world: World, **fields: object) -> None:
    world.write(json.dumps({"define": fields}) + "\n")


def _stored(world: World) -> dict[str, SeriesDefinition]:
    with world.database.read_series() as session:
        return definitions.of_jobs(session, ["job-1"]).get("job-1", {})


def test_a_definition_is_stored_and_takes_no_step(world: World) -> None:
    world.write('{"loss": 3}\n')
    _define(world, loss={"direction": "lower", "unit": "nats"})
    world.write('{"loss": 2}\n')
    world.look()
    assert _stored(world) == {"loss": SeriesDefinition(direction="lower", unit="nats")}
    assert world.steps() == [1, 2]
    assert world.told == []


def test_the_last_definition_counts_and_survives_the_agent(world: World) -> None:
    _define(world, loss={"unit": "nats"}, other={"kind": "bytes"})
    world.look()
    world.restart_agent()
    _define(world, loss={"unit": "bits"})
    _define(world, loss={"direction": "higher"})
    world.look(last=True)
    assert _stored(world) == {
        "loss": SeriesDefinition(direction="higher"),
        "other": SeriesDefinition(kind="bytes"),
    }


def test_bad_definitions_are_named_and_the_job_goes_on(world: World) -> None:
    _define(world, good={"unit": "s"}, bad={"direction": "down"}, odd={"color": 1})
    _define(world, **{"a\u0007b": {"unit": "s"}, "system/rank0/x": {"unit": "s"}})
    world.write('{"define": [1]}\n{"step": 9, "loss": 1}\n')
    world.look(last=True)
    assert _stored(world) == {"good": SeriesDefinition(unit="s")}
    assert world.steps() == [9]
    dropped = [message for message in world.told if "definitions of '" in message]
    assert len(dropped) == 4
    assert "definitions of 'odd' in $LOCKSTEP_METRICS are dropped: unknown field" in dropped[1]
    assert repr("a\u0007b") in dropped[2]
    assert any("line 3 of" in message and "define" in message for message in world.told)
    assert "4 definitions of $LOCKSTEP_METRICS were dropped in all" in world.told


@pytest.mark.parametrize("per_line", [1, 500])
def test_ten_thousand_names_define_a_thousand(world: World, per_line: int) -> None:
    for start in range(0, 10_000, per_line):
        names = range(start, start + per_line)
        _define(world, **{f"name{number:05}": {"direction": "lower"} for number in names})
    world.write('{"step": 9, "loss": 1}\n')
    world.look(last=True)
    assert len(_stored(world)) == limits.METRIC_NAMES_PER_JOB_MAX
    assert world.steps() == [9]
    (told,) = world.told
    assert told.startswith("definitions limited: a job can define at most 1,000 series")


def test_a_line_of_a_megabyte_is_left_out(world: World) -> None:
    _define(world, **{f"name{number:06}": {"unit": "x" * 20} for number in range(25_000)})
    _define(world, loss={"unit": "nats"})
    world.look(last=True)
    assert _stored(world) == {"loss": SeriesDefinition(unit="nats")}
    assert "is dropped: it is longer than" in world.told[0]


def test_definitions_of_an_attempt_have_a_limit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SERIES_DEFINITIONS_PER_ATTEMPT_MAX", 5)
    world.restart_agent()
    for number in range(9):
        _define(world, loss={"unit": f"u{number}"})
        world.look()
    assert _stored(world) == {"loss": SeriesDefinition(unit="u4")}
    assert [message.split(";")[0] for message in world.told] == [
        "definitions limited: 5 definitions of series in $LOCKSTEP_METRICS are stored"
    ]


def test_a_flood_of_points_keeps_definitions_and_steps(world: World) -> None:
    decimator = world.uploader._decimator
    decimator.keep_every = decimator._wanted = 4
    for step in range(1, 9):
        world.write('{"loss": 1}\n')
        if step in (2, 5):
            _define(world, loss={"unit": f"u{step}"})
    world.look()
    assert world.steps() == [4, 8]
    assert _stored(world) == {"loss": SeriesDefinition(unit="u5")}


def test_a_flood_of_definitions_is_left_out_as_points_are(world: World) -> None:
    decimator = world.uploader._decimator
    decimator.keep_every = decimator._wanted = 1024
    world.write('{"step": 1, "loss": 1}\n')
    for number in range(3_000):
        _define(world, loss={"unit": f"u{number}"})
    world.write('{"step": 1023, "loss": 1}\n{"step": 1024, "loss": 1}\n')
    world.look()
    assert _stored(world) == {"loss": SeriesDefinition(unit="u999")}
