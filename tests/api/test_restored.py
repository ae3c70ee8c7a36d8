"""Answers after a restore: a counter with its former value does not stand for the former data."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from sqlalchemy import make_url, text

from lockstep.storage.control import scheduler_lease
from tests.api.conftest import Api
from tests.harness.databases import Urls
from tests.harness.faults import restores
from tests.harness.postgres import PostgresServer

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
    assert tags[0] == tags[1] != tags[2] == tags[3]


def test_a_restore_that_a_cycle_noted_is_another_place(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another api may have started after the restore."""
    monkeypatch.setattr("lockstep.api.http.places.CHECKED_SECONDS", 0.0)
    address = f"/v1/jobs/{api.job_id()}"
    with api.database.jobs() as session:
        scheduler_lease.was_restored(session)
    before = api.http.get(address).headers["etag"]
    with api.database.jobs() as session:
        session.execute(text("UPDATE scheduler_lease SET place = 'of the backup'"))
        assert scheduler_lease.was_restored(session)
    assert api.http.get(address).headers["etag"] != before
