"""Fixtures for every test: what needs databases takes them from ``tests.databases``."""

import signal
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.databases", "tests.faults.table", "pytester"]

# A shell ignores it for what it starts in the background, and programs that tests start would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long one example takes says nothing on a machine that runs other tests beside it.
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
"""Folders whose files take longest, and wait most; what is not named comes after them. Only time
depends on it."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under xdist, give out long files first: a worker that gets one last works on alone when the
    others have ended.

    Every worker must collect the same order. Whoever runs tests without xdist gets pytest's own:
    quick ones fail first.
    """
    if hasattr(config, "workerinput"):
        order = {folder: rank for rank, folder in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: order.get(item.path.relative_to(HERE).parts[0], len(order)))
