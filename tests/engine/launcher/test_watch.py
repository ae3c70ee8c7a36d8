"""Exits that the watch finds: a killed rank comes before the peers that fail because of it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.domain.life.attempt import AssignmentFile
from lockstep.domain.spec.reading import read_spec
from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.watch import GangWatch


class Dying:
    """A rank's process that answers each question with the next code."""

    pid = 0

    def __init__(self, *codes: int | None) -> None:
        self._codes: Iterator[int | None] = iter(codes)

    def poll(self) -> int | None:
        return next(self._codes)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_dies_while_others_are_asked_comes_first(tmp_path: Path, killed: int) -> None:
    """The watch may stand still between two questions, on a machine without a free core."""
    watch = _watch(tmp_path)
    watch._processes = {killed: Dying(None, -signal.SIGKILL), 1 - killed: Dying(1)}
    watch._note_exits()
    assert [(exit_.rank, exit_.torn_down) for exit_ in watch.facts.exits] == [
        (killed, False),
        (1 - killed, False),
    ]


@pytest.mark.parametrize("code", [0, 3, -signal.SIGKILL, 128 + signal.SIGKILL, -signal.SIGTERM])
@pytest.mark.parametrize("settled", [False, True])
def test_a_rank_found_dead_after_its_peer_ended_by_itself_before_the_tear_down(
    tmp_path: Path, code: int, settled: bool
) -> None:
    """The sockets of a dying process close before it can be found dead."""
    watch = _watch(tmp_path)
    watch._processes = {0: Dying(*[None] * (6 if settled else 2), code), 1: Dying(1)}
    watch._note_exits()
    assert [(exit_.rank, exit_.torn_down) for exit_ in watch.facts.exits] == [(1, False)]
    if settled:
        watch.settle()
    assert len(watch.facts.exits) == 1
    while watch.facts.running():
        watch._note_exits()
    _, late = watch.facts.exits
    killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
    assert (late.rank, late.torn_down) == (0, settled and not killed)
    assert watch.facts.cause == "failure"


def test_a_rank_that_the_others_have_lost_is_awaited_before_they_are_ended(tmp_path: Path) -> None:
    watch = _watch(tmp_path, follows=True)
    watch._processes = {0: Dying(*[None] * 9, 0), 1: Dying(1)}
    watch.settle()
    assert [(exit_.rank, exit_.torn_down) for exit_ in watch.facts.exits] == [
        (1, False),
        (0, False),
    ]


def test_a_rank_that_the_watch_has_killed_was_torn_down(tmp_path: Path) -> None:
    watch = _watch(tmp_path)
    watch._processes = {0: Dying(None, None, -signal.SIGKILL), 1: Dying(1)}
    watch._note_exits()
    watch._killed_at = 0.0  # Not by its own way, which ends every descendant of this process.
    watch._note_exits()
    assert [exit_.torn_down for exit_ in watch.facts.exits] == [False, True]


def _watch(folder: Path, *, follows: bool = False) -> GangWatch:
    """A watch of a script with two ranks."""
    script = {"command": ["x"], "silence_seconds": None}
    spec = read_spec({"name": "x", "kind": "script", "script": script})
    watch = GangWatch(
        AssignmentFile.model_construct(spec=spec, node_count=1, world_size=2),
        folder,
        Bounds(watch_seconds=0.001, settle_seconds=600.0),
        log_line=lambda *_: None,
        warn=lambda _: None,
        report=lambda _: None,
        output_bytes=lambda: 0,
        may_follow=lambda _: follows,
        on_stuck=lambda: None,
    )
    watch.facts.ranks = (0, 1)
    return watch
