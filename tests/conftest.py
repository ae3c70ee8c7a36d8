"""Fixtures for all tests; those for databases come from ``tests.databases``."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.databases", "tests.faults.table", "pytester"]

# A shell ignores it for background processes, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The duration of one example means nothing on a machine that runs other tests in parallel.
settings.register_profile("lockstep", deadline=None)
settings.load_profile("lockstep")

HERE = Path(__file__).parent
LONGEST_FIRST = (
    "e2e",
    "faults",
    "dashboard",
    "worker",
    "packaging",
    "broker",
    "scheduler",
    "engine",
    "api",
)
"""Folders whose files take longest and wait most.

Others come after them. Only time depends on it.
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under xdist, distribute long files first.

    A worker that gets a long one last works alone when the others have ended. Every worker must
    collect the same order. Without xdist, pytest's own order applies: quick tests fail first.
    """
    if hasattr(config, "workerinput"):
        order = {folder: rank for rank, folder in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: order.get(item.path.relative_to(HERE).parts[0], len(order)))
