"""Attempts whose launchers are forked from one warm process.

The other tests of the launcher start it by exec (``tests.engine.launcher.conftest``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.worker.launch.fork_client import ForkServer
from tests.harness.attempts import Attempt


@pytest.fixture
def attempts(warm: ForkServer) -> Iterator[Callable[[Path], Attempt]]:
    """Factory of attempts in new folders, whose processes are killed after the test."""
    made: list[Attempt] = []

    def make(folder: Path) -> Attempt:
        folder.mkdir(parents=True)
        made.append(Attempt(folder, warm))
        return made[-1]

    yield make
    for attempt in made:
        attempt.end()


@pytest.fixture
def attempt(attempts: Callable[[Path], Attempt], tmp_path: Path) -> Attempt:
    """An attempt in an empty folder."""
    return attempts(tmp_path / "attempt")
