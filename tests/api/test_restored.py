"""Answers after a restore: a counter with its former value does not stand for the former data."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import anyio
import pytest
from sqlalchemy import make_url, text
from starlette.types import Receive, Scope, Send

from lockstep.api.http.places import PlaceInTags
from lockstep.cli.text.points import without
from lockstep.domain.series_views import MetricsView
from lockstep.storage.control import places
from lockstep.storage.control.places import PlaceReader
from tests.api.conftest import Api
from tests.api.test_reading import record, upload_metrics
from tests.harness.databases import Urls
from tests.harness.faults import restores
from tests.harness.postgres import PostgresServer
from tests.harness.processes import until
from tests.storage import scenes

WAYS: dict[str, str] = {
    "in_place": "sqlite_urls",
    "renamed": "sqlite_urls",
    "clean": "postgres_urls",
    "ordinary": "postgres_urls",
}
Restore = Callable[[], object]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def database_urls(request: pytest.FixtureRequest, way: str) -> Urls:
    urls: Urls = request.getfixturevalue(WAYS[way])
    return urls


@pytest.fixture
def backup(
    request: pytest.FixtureRequest, way: str, api: Api, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], Restore]:
    """Return what backs up both databases and returns their restore."""
    folder, restored = tmp_path_factory.mktemp("backup"), getattr(restores, way)

    def of_sqlite() -> Restore:
        files = restores.paths(api.urls)
        restores.copied(files, folder)
        return partial(restored, files, folder)

    def of_postgres() -> Restore:
        server: PostgresServer = request.getfixturevalue("postgres_server")
        name = make_url(api.urls[0]).database or ""
        return partial(restored, server, name, restores.dumped(server, name, folder))

    return of_sqlite if WAYS[way] == "sqlite_urls" else of_postgres


def test_a_version_that_returns_is_not_the_former_answer(
    api: Api, backup: Callable[[], Restore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.api.http.places.CHECKED_SECONDS", 0.0)
    address = f"/v1/jobs/{api.job_id()}"
    restore = backup()
    api.http.patch(address, json={"priority": 10})
    before = api.http.get(address)
    assert api.http.get("/v1/jobs").status_code == 200
    again = api.http.get(address, headers={"If-None-Match": before.headers["etag"]})
    assert (before.json()["priority"], again.status_code) == (10, 304)
    restore()
    # Connections to a database that was dropped end with a 503 each.
    answers = (api.http.patch(address, json={"priority": 20}) for _ in range(20))
    assert any(answer.status_code == 200 for answer in answers)
    after = api.http.get(address, headers={"If-None-Match": before.headers["etag"]})
    assert (after.status_code, after.json()["version"]) == (200, before.json()["version"])
    assert after.json()["priority"] == 20
    assert [job["priority"] for job in api.http.get("/v1/jobs").json()["items"]] == [20]
    for held in ("*", f'"x", {after.headers["etag"]}', after.headers["etag"].removeprefix("W/")):
        assert api.http.get(address, headers={"If-None-Match": held}).status_code == 304
    of_the_version_before = after.headers["etag"].partition("@")[0] + '"'
    for held in (of_the_version_before, "W/", '"', "@", '""', ",,", before.headers["etag"], "\xff"):
        asked = {"If-None-Match": held.encode("latin-1")}
        assert api.http.get(address, headers=asked).status_code == 200


def test_a_backup_that_was_copied_over_the_live_file_is_another_place(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The numbers stay; the end of the last cycle goes back."""
    monkeypatch.setattr("lockstep.api.http.places.CHECKED_SECONDS", 0.0)
    address = f"/v1/jobs/{api.job_id()}"
    tags = []
    for finished_at in (100.0, 200.0, 150.0, 160.0):
        with api.database.jobs() as session:
            session.execute(text(f"UPDATE scheduler_lease SET finished_at = {finished_at}"))
        tags.append(api.http.get(address).headers["etag"])
    is_file = api.urls[0].startswith("sqlite")
    assert (tags[0], tags[2]) == (tags[1], tags[3])
    assert (tags[1] != tags[2]) is is_file, "programs over one server agree on the place"


@pytest.mark.parametrize("follows", ["live", "metrics", "series"])
def test_a_sleeper_gets_all_points_of_the_restored_job(
    api: Api, backup: Callable[[], Restore], monkeypatch: pytest.MonkeyPatch, follows: str
) -> None:
    """Its cursor counts two points, and the restored job has two others and one more by then."""
    monkeypatch.setattr("lockstep.api.http.places.CHECKED_SECONDS", 0.0)
    claim = scenes.run(api.database)
    path = "/v1/series?" if follows == "series" else f"/v1/jobs/{claim.job_id}/{follows}?"
    path += f"names=train/loss&jobs={claim.job_id}" if follows == "series" else "names=train/loss"

    def asked(since: str = "") -> dict[str, Any]:
        until(lambda: api.http.get("/v1/jobs").status_code == 200)
        found: dict[str, Any] = api.http.get(path + since).json()
        return found["jobs"][0] if follows == "series" else found

    restore = backup()
    upload_metrics(api, claim, record(1), record(2))
    cursor = f"&since={asked()['cursor']}"
    assert not asked(cursor)["complete"]
    restore()
    until(lambda: api.http.get("/v1/jobs").status_code == 200)
    upload_metrics(api, claim, record(7), record(8), record(9))
    found = asked(cursor)
    assert (found["complete"], found["series"][0]["step"]) == (True, [7, 8, 9])


def test_a_follower_gets_each_point_once(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``lockstep metrics -f`` writes them: its last answer has all points again."""
    monkeypatch.setattr("lockstep.api.http.places.CHECKED_SECONDS", 0.0)
    claim = scenes.run(api.database)
    path = f"/v1/jobs/{claim.job_id}/metrics?names=train/loss&attempts=all"
    written, since, steps = Counter[tuple[str, int]](), "", list[list[int]]()
    for batch in ((1, 2), (3,), (4, 5)):
        upload_metrics(api, claim, *map(record, batch))
        if batch == (4, 5):
            monkeypatch.setattr(places, "place_and_start", lambda *_: "elsewhere")
        answer = MetricsView.model_validate(api.http.get(path + since).json())
        assert answer.complete is (batch != (3,))
        since = f"&since={answer.cursor}"
        steps.append([step for each in without(written, answer).series for step in each.step])
    assert steps == [[1, 2], [3], [4, 5]]


def test_processes_share_the_place_of_a_server_and_have_their_own_of_a_file(api: Api) -> None:
    """Behind a balancer most polls are a 304; a file may be replaced between two processes."""
    found = {PlaceReader(api.database).read() for _ in range(3)}
    assert len(found) == (3 if api.urls[0].startswith("sqlite") else 1)


def test_a_database_that_cannot_be_read_hides_no_restore_of_the_other(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = PlaceReader(api.database)
    before = reader.read()
    monkeypatch.setattr(api.database, "look_series", mock.Mock(side_effect=OSError))
    assert reader.read() == before
    monkeypatch.setattr(places, "place_and_start", lambda *_: "elsewhere")
    assert reader.read() != before


def test_a_slow_read_of_the_place_is_the_only_one() -> None:
    """The first requests wait for it: a cursor without a place would be another one's next time."""
    reads, release, now = list[int](), threading.Event(), [0.0]

    def read() -> str:
        reads.append(1)
        release.wait(60)
        return f"place {len(reads)}"

    async def answered(scope: Scope, receive: Receive, send: Send) -> None:
        read_from.append(scope["lockstep.place"])

    read_from, forgotten = list[str](), list[int]()
    middleware = PlaceInTags(answered, read, lambda: forgotten.append(1), clock=lambda: now[0])
    scope = {"type": "http", "method": "GET", "path": "/v1/jobs", "headers": []}

    async def ask() -> None:
        await middleware({**scope}, None, None)  # type: ignore[arg-type] # it sends nothing

    async def ask_twice(*, waits: bool) -> None:
        before = len(reads)
        async with anyio.create_task_group() as group:
            group.start_soon(ask)
            while len(reads) == before:
                await anyio.sleep(0.01)
            if waits:
                group.start_soon(ask)
                await anyio.sleep(0.05)
            else:
                await ask()
            release.set()

    anyio.run(partial(ask_twice, waits=True))
    assert (len(reads), read_from, forgotten) == (1, ["place 1"] * 2, [1])
    now[0] = 1e9
    release.clear()
    anyio.run(partial(ask_twice, waits=False))
    assert (len(reads), read_from[2:], forgotten) == (2, ["place 1", "place 2"], [1, 1])
