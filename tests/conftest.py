"""Fixtures for all tests; those for databases come from ``tests.harness.databases``."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

from tests.harness import memory

# Imports and collection make most of a million objects that stay: each visit of them takes half a
# second, in every worker of xdist. ``pytest_collection`` ends this.
gc.disable()
pytest_plugins = ["tests.harness.databases", "tests.harness.drills", "tests.harness.processes"]

# A shell ignores it for background processes, and programs that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The duration of one example means nothing on a machine that runs other tests in parallel.
settings.register_profile(
    "lockstep", deadline=None, max_examples=int(os.environ.get("TEST_EXAMPLES", "100"))
)
settings.load_profile("lockstep")

# The default form of a traceback, with the values of all variables, takes seconds.
structlog.configure(
    processors=[
        *structlog.get_config()["processors"][:-1],
        structlog.dev.ConsoleRenderer(
            colors=False, exception_formatter=structlog.dev.plain_traceback
        ),
    ]
)

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


FAST_FOLDERS = ("domain", "storage", "api", "scheduler", "system", "engine", "packaging")
_PROCESSES = frozenset(
    {"broker", "pool", "warm", "attempt", "attempts", "postgres_server", "postgres_urls"}
)
"""Fixtures that start processes."""


def is_fast(item: pytest.Item) -> bool:
    """Return whether a test starts neither ranks, programs, a database server nor a browser."""
    if item.path.relative_to(HERE).parts[0] not in FAST_FOLDERS or not isinstance(
        item, pytest.Function
    ):
        return False
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    return not (
        _PROCESSES & set(item.fixturenames)
        or any(isinstance(each, str) and each == "postgresql" for each in parameters)
        or hasattr(item.module, "subprocess")
    )


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fast", action="store_true", help="only tests that start no other process")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Return the distribution of ``--dist loadfile``."""
    from tests.harness.sharing import OneServicePerFolder

    return OneServicePerFolder(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_configure() -> None:
    """Put the temporary folders in memory, unless a place is named."""
    if (place := memory.folder()) is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(place))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Let the garbage collector visit only the objects of the tests that run."""
    result = yield
    gc.collect()
    gc.freeze()
    gc.enable()
    return result


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip tests that need a CUDA device, by name, where there is none."""
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("NOT RUN: this machine has no CUDA device")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what ``--fast`` leaves out. Under xdist, distribute long files first.

    A worker that gets a long one last works alone when the others have ended. Every worker must
    collect the same order. Without xdist, pytest's own order applies: quick tests fail first.
    """
    if config.getoption("--fast"):
        slow = [item for item in items if not is_fast(item)]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in set(slow)]
    if hasattr(config, "workerinput"):
        order = {folder: rank for rank, folder in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: order.get(item.path.relative_to(HERE).parts[0], len(order)))
