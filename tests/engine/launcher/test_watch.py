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

    def __init__(self, *codes: int | None) -> None:
        self._codes: Iterator[int | None] = iter(codes)

    def poll(self) -> int | None:
        return next(self._codes)


@pytest.mark.parametrize("killed", [0, 1])
def test_a_rank_that_dies_while_others_are_asked_comes_first(tmp_path: Path, killed: int) -> None:
    """The watch may stand still between two questions, on a machine without a free core."""
    script = {"command": ["x"], "silence_seconds": None}
    spec = read_spec({"name": "x", "kind": "script", "script": script})
    watch = GangWatch(
        AssignmentFile.model_construct(spec=spec, node_count=1, world_size=2),
        tmp_path,
        Bounds(),
        log_line=lambda *_: None,
        warn=lambda _: None,
        report=lambda _: None,
        output_bytes=lambda: 0,
        on_stuck=lambda: None,
    )
    watch.facts.ranks = (0, 1)
    watch._processes = {killed: Dying(None, -signal.SIGKILL), 1 - killed: Dying(1)}
    watch._note_exits()
    assert [(exit_.rank, exit_.torn_down) for exit_ in watch.facts.exits] == [
        (killed, False),
        (1 - killed, True),
    ]
