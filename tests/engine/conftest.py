"""What the engine's tests share: one pool of gloo ranks, and attempts whose launchers are forked
from one warm process.

Not here: launchers started by exec, which are what ``tests/engine/launcher`` tests.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockstep.worker.launch.fork_client import ForkServer
from tests.engine.launcher.attempts import Attempt, until
from tests.engine.pool import Pool


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    running = Pool(tmp_path_factory.mktemp("pool"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def warm() -> Iterator[ForkServer]:
    """A process that forks launchers, as an agent has one."""
    process = ForkServer(os.environ)
    process.tend()
    until(process.is_ready, seconds=60, what="the warm process is ready")
    yield process
    process.close()


@pytest.fixture
def attempts(warm: ForkServer) -> Iterator[Callable[[Path], Attempt]]:
    """Makes attempts in new folders, whose processes are gone after the test."""
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
    """One of them, in an empty folder."""
    return attempts(tmp_path / "attempt")
