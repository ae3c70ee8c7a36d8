"""Application over a real database of each kind, with notifications that are recorded, not sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from sqlalchemy import func, select

from lockstep.api.app import create_app
from lockstep.api.http import openapi
from lockstep.api.parts import AppState
from lockstep.api.settings import ApiSettings
from lockstep.broker.messages import Message
from lockstep.storage.attempts import nodes
from lockstep.storage.attempts.nodes import DeviceInfo
from lockstep.storage.db.database import Database
from lockstep.storage.db.listing_tables import JobLabelRow
from lockstep.storage.db.tables import EventRow, IdempotencyKeyRow, JobRow
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.people import tokens
from tests.harness.clients import Client
from tests.harness.databases import Urls

TOKEN = "lockstep_a-token-for-tests-only"
SCRIPT: dict[str, Any] = {
    "name": "first",
    "kind": "script",
    "script": {"command": ["/srv/train.py"]},
}
TRAIN: dict[str, Any] = {
    "name": "gpt",
    "kind": "train",
    "resources": {"gpus": 2},
    "train": {"task": "causal_lm", "batch": {"size": 64, "micro_size": 8}, "steps": 200},
}


@dataclass
class Notifications:
    """Stand-in for the publisher."""

    sent: list[Message] = field(default_factory=list)

    def publish(self, message: Message) -> None:
        self.sent.append(message)


@dataclass
class Api:
    """The application and its parts."""

    http: Client
    database: Database
    urls: Urls
    blobs: BlobStore
    notifications: Notifications
    store: Path

    def submit(self, spec: Any = SCRIPT, **headers: str) -> httpx2.Response:
        return self.http.post("/v1/jobs", json=spec, headers=headers)

    def job_id(self, spec: Any = SCRIPT) -> str:
        response = self.submit(spec)
        assert response.status_code == 201, response.text
        found: str = response.json()["id"]
        return found

    def rows(self) -> dict[str, int]:
        """Return the number of rows that a submit can have written."""
        tables = (JobRow, JobLabelRow, EventRow, IdempotencyKeyRow)
        with self.database.read_jobs() as session:
            return {
                t.__tablename__: session.execute(select(func.count()).select_from(t)).scalar_one()
                for t in tables
            }

    def uploads(self) -> list[str]:
        """Return the files in the store."""
        return sorted(
            str(path.relative_to(self.store)) for path in self.store.rglob("*") if path.is_file()
        )

    def forget_answers(self) -> None:
        """Clear the cached answers, so that the next ones are made from the stored rows."""
        parts: AppState = self.http.app.state.parts  # type: ignore[attr-defined]  # set by the app
        parts.rendered.forget()
        parts.views.forget()

    def register(self, name: str = "node-a", devices: int = 2) -> None:
        with self.database.jobs() as session:
            found = [DeviceInfo(index, "cpu", "cpu") for index in range(devices)]
            nodes.register(session, name, found, version="1", boot_id="b")


def settings_for(urls: Urls, store: Path, **changed: Any) -> ApiSettings:
    return _settings(**changed).model_copy(update=_places(urls, store))


def _places(urls: Urls, store: Path) -> dict[str, str]:
    return {
        "database_url": urls[0],
        "series_url": urls[1],
        "broker_url": f"redis+socket://{store}/no-broker.sock",
        "store": str(store),
    }


@cache
def _settings(**changed: Any) -> ApiSettings:
    """Read settings once: each time would take as long as a request."""
    nowhere = _places(("sqlite:////nowhere/jobs.db", "sqlite:////nowhere/series.db"), Path("/none"))
    return ApiSettings(**{**nowhere, **changed})


@pytest.fixture(scope="package", autouse=True)
def databases_are_checked_once() -> Iterator[None]:
    """Let an application look once where its databases are, and whether they are whole.

    Otherwise a test that counts statements finds more where a second passes.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lockstep.api.http.places.CHECKED_SECONDS", 3600.0)
        patch.setattr("lockstep.storage.db.database.WHOLE_SECONDS", 3600.0)
        yield


@pytest.fixture(scope="package", autouse=True)
def the_api_is_described_once() -> Iterator[None]:
    """Build the OpenAPI document for the first application: it takes a second, others have it too.

    Each has the same routes.
    """
    describe, known = openapi.describe, list[dict[str, Any]]()

    def described(app: FastAPI) -> dict[str, Any]:
        if not known:
            known.append(describe(app))
        return known[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openapi, "describe", described)
        yield


@pytest.fixture
def api(database: Database, database_urls: Urls, tmp_path: Path) -> Iterator[Api]:
    """Return one application per test."""
    with serving_on(database, database_urls, tmp_path / "store") as serving:
        yield serving


@pytest.fixture(scope="module")
def unchanged_api(module_urls: Urls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """Return one application for a module whose tests do not depend on written rows."""
    database = Database(*module_urls)
    try:
        store = tmp_path_factory.mktemp("api") / "store"
        with serving_on(database, module_urls, store) as serving:
            yield serving
    finally:
        database.close()


@contextmanager
def serving_on(database: Database, urls: Urls, store: Path) -> Iterator[Api]:
    store.mkdir()
    with database.jobs() as session:
        tokens.ensure(session, TOKEN, name="tests", actor="ada")
    blobs, notifications = BlobStore(str(store)), Notifications()
    app = create_app(settings_for(urls, store), database, blobs, notifications)
    with Client(app, headers={"Authorization": f"Bearer {TOKEN}"}) as http:
        yield Api(http, database, urls, blobs, notifications, store)
    app.state.parts.following.join()


def problem(response: httpx2.Response, status: int, code: str) -> dict[str, Any]:
    """Return the response's problem document, after checks of its form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = response.json()
    assert found["status"] == status
    assert found["code"] == code
    assert found["title"]
    assert found["detail"]
    assert found["instance"].endswith(response.headers["x-request-id"])
    return found
