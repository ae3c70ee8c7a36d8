"""Exports: every point once and in order, also with writes and merges during the read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import product

import pytest

from lockstep.domain.training.metrics import StepValues
from lockstep.storage.db.database import Database
from lockstep.storage.series import exports, series
from lockstep.storage.series.series_query import Attempts
from tests.storage.raw_points import NAMES, Raw, plant, wanted

JOB = "exported"


def _rows(pieces: Iterator[exports.Piece]) -> list[tuple[str, Raw]]:
    return [
        (piece.name, Raw(piece.attempt, *point))
        for piece in pieces
        for point in zip(piece.points.steps, piece.points.times, piece.points.values, strict=True)
    ]


def test_every_point_that_is_wanted_is_there_once(database: Database) -> None:
    stored = plant(database, JOB, random.Random(5), [[600, 500], [1, 7], [300, 900]])
    kinds: tuple[Attempts, ...] = ("current", "visible", "all")
    for attempts, (from_step, to_step) in product(kinds, [(None, None), (200, 900)]):
        found = exports.every_point(
            database.read_series, JOB, from_step=from_step, to_step=to_step, attempts=attempts
        )
        expected = [
            (name, point)
            for name in sorted(NAMES)
            for points in wanted(stored, name, from_step, to_step, attempts)
            for point in points
        ]
        assert repr(_rows(found)) == repr(expected)


def test_a_long_series_is_read_in_pieces_and_only_by_name(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_PIECE", exports._PIECE.limit(3))
    stored = plant(database, JOB, random.Random(6), [[2500]])
    pieces = list(exports.every_point(database.read_series, JOB, names=[NAMES[0], "unknown"]))
    assert max(len(piece.points) for piece in pieces) == 512
    assert repr(_rows(iter(pieces))) == repr([(NAMES[0], point) for point in stored[NAMES[0]]])


def test_a_merge_during_a_read_neither_hides_nor_repeats_a_point(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "_PIECE", exports._PIECE.limit(1))
    stored = plant(database, JOB, random.Random(7), [[600, 20, 10, 5]])
    pieces = exports.every_point(database.read_series, JOB, names=NAMES[:1])
    seen = [next(pieces), next(pieces)]
    more = [StepValues(9_000 + number, 9_000.0 + number, {NAMES[0]: 1.0}) for number in range(700)]
    with database.series() as session:
        assert series.append(
            session,
            assignment_id=f"{JOB}-1",
            token="token",
            offset_before=4,
            offset_after=5,
            records=more,
        )
    found = _rows(iter([*seen, *pieces]))
    assert repr(found[:635]) == repr([(NAMES[0], point) for point in stored[NAMES[0]]])
    assert [point.step for _, point in found[635:]] == [record.step for record in more]


def test_a_job_without_points_has_none(database: Database) -> None:
    assert list(exports.every_point(database.read_series, "unknown")) == []
