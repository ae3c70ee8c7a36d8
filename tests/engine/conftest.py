"""Fixtures of the engine's tests: one pool of Gloo ranks, and one process that forks launchers."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator

import pytest
import torch

from lockstep.worker.launch.fork_client import ForkServer
from tests.engine import contract
from tests.harness.processes import until
from tests.harness.ranks import Pool

# As the ranks of CPU slots. On a busy machine, the threads of a small operation wait for each other
# in a loop that takes three times the operation's time.
torch.set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record the distances that a test of the contract measures (``make contract``)."""
    with contract.recorded(item):
        return (yield)


@pytest.fixture(scope="session")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    running = Pool(tmp_path_factory.mktemp("pool"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def warm() -> Iterator[ForkServer]:
    """Process that forks launchers, as an agent has one."""
    process = ForkServer(os.environ)
    process.tend()
    until(process.is_ready, seconds=60, what="the warm process is ready")
    yield process
    process.close()
