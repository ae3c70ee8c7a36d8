"""One browser for all of these tests, with a tab and a service per module.

Some tests have new tabs, and some modules share a service.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.dashboard.browser import FLAGS, Tab, Visitor, chromium, visiting
from tests.dashboard.site import served, standing
from tests.dashboard.story import played
from tests.dashboard.work import Work
from tests.harness.databases import copied
from tests.harness.processes import ROOT
from tests.harness.service import Service, own_or_shared, service


@pytest.fixture(scope="session")
def pages() -> None:
    """Return the pages of the dashboard's current sources; build them if necessary."""
    build = [sys.executable, str(ROOT / "dashboard" / "build.py")]
    done = subprocess.run(build, capture_output=True, text=True, check=False, timeout=900)
    if done.returncode != 0:
        pytest.skip(f"NOT RUN: {done.stderr.splitlines()[-1]}")


# Not for the whole session: playwright runs a loop of asyncio, and tests elsewhere start their own.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    found = chromium()
    if found is None:
        pytest.skip(
            "NOT RUN: there is no chromium here; install Debian's, or name one in LOCKSTEP_CHROMIUM"
        )
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        yield started
        started.close()


@pytest.fixture(scope="package")
def shared_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    yield from service(tmp_path_factory.mktemp("shared"))


@pytest.fixture(scope="module")
def lockstep(pages: None, browser: Browser, request: pytest.FixtureRequest) -> Iterator[Service]:
    """Start the service on its embedded defaults.

    It depends on the browser, so that no service starts without one.
    """
    yield from own_or_shared(request)


@pytest.fixture(scope="module")
def token(lockstep: Service) -> str:
    return (lockstep.home / "token").read_text().strip()


@pytest.fixture(scope="module")
def work(lockstep: Service, tmp_path_factory: pytest.TempPathFactory) -> Work:
    return Work(lockstep, tmp_path_factory.mktemp("work") / "code")


@dataclass
class Seeded:
    """The site of a team whose clock stands still (``story``)."""

    url: str
    ids: dict[str, str]
    """Of jobs, by name; ``sweep`` has those of a whole sweep."""
    serve: Callable[..., AbstractContextManager[str]]
    """Answers at one more address: takes the port and the folder of the built pages."""


@pytest.fixture(scope="module")
def seeded(
    pages: None, browser: Browser, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Seeded]:
    folder = tmp_path_factory.mktemp("site")
    urls = copied(sqlite_template, folder)
    with standing(urls) as site:
        played(site)
        sweep = ",".join(job for name, job in site.ids.items() if name.startswith("lm-sweep-"))
        serve = partial(served, site, urls, folder / "store")
        with serve() as url:
            yield Seeded(url, {**site.ids, "sweep": sweep}, serve)


@pytest.fixture
def signed_out(browser: Browser, lockstep: Service) -> Iterator[Visitor]:
    """Return a user without a sign-in."""
    with visiting(browser, lockstep.url, None) as visitor:
        yield visitor


@pytest.fixture(scope="module")
def tab(browser: Browser, lockstep: Service, token: str) -> Iterator[Tab]:
    opened = Tab(browser, lockstep.url, token)
    yield opened
    opened.close()


@pytest.fixture
def visitor(tab: Tab) -> Iterator[Visitor]:
    """Return a signed-in user, in a tab that earlier tests of the module had."""
    with tab.visited() as visitor:
        yield visitor


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.e2e)
