"""Listed settings of a program: their sources, and no password."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.api.settings import ApiSettings
from lockstep.domain.life.timings import Timings
from lockstep.scheduler.settings import SchedulerSettings
from lockstep.storage.control import agreed_timings
from lockstep.storage.control.settings_list import ListedSetting, document, listed
from lockstep.storage.db.database import Database
from tests.harness.databases import Urls


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LOCKSTEP_DATABASE_URL", f"sqlite:///{tmp_path}/absent/jobs.db")
    monkeypatch.setenv("LOCKSTEP_BROKER_URL", "rediss://me:S/e@cret@h:1/0?ssl_password=ge@heim&a=b")
    monkeypatch.delenv("LOCKSTEP_STORE", raising=False)


def of(rows: list[ListedSetting], name: str) -> tuple[str | None, str]:
    [found] = [row for row in rows if row.name == f"LOCKSTEP_{name}"]
    assert found.meaning
    return found.value, found.source


def test_each_setting_has_its_source_also_if_the_program_would_refuse_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCKSTEP_PORT", "none")
    rows = listed(ApiSettings)
    assert {row.name for row in rows} >= {
        f"LOCKSTEP_{name.upper()}" for name in ApiSettings.model_fields
    }
    assert of(rows, "PORT") == ("none", "environment")
    assert of(rows, "AUTH") == ("on", "default")
    assert of(rows, "TOKEN_FILE") == (None, "default")
    assert of(rows, "STORE") == (None, "missing")
    assert of(rows, "LEASE_SECONDS") == (None, "the database is not set")
    monkeypatch.setenv("LOCKSTEP_STORE", "/store")
    assert of(listed(ApiSettings), "LEASE_SECONDS") == (None, "the database does not answer")


def test_no_password_is_listed() -> None:
    assert of(listed(ApiSettings), "BROKER_URL")[0] == "rediss://me:***@h:1/0?ssl_password=***&a=b"
    for secret in ("S/e@cret", "e@cret", "cret", "heim"):
        assert secret not in document(SchedulerSettings)


def test_only_the_scheduler_has_timings_of_its_own(
    database: Database, database_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_DATABASE_URL", database_urls[0])
    monkeypatch.setenv("LOCKSTEP_STORE", "/store")
    monkeypatch.setenv("LOCKSTEP_LEASE_SECONDS", "66")
    assert of(listed(ApiSettings), "LEASE_SECONDS") == ("60", "default")
    with database.jobs() as session:
        agreed_timings.store(session, Timings(lease_seconds=65.0))
    assert of(listed(ApiSettings), "LEASE_SECONDS") == ("65", "database")
    assert of(listed(SchedulerSettings), "LEASE_SECONDS") == ("66", "environment")
    assert json.loads(document(SchedulerSettings))["refused"] == []


def test_values_that_the_start_would_refuse_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_STORE", "/store")
    monkeypatch.setenv("LOCKSTEP_LEASE_SECONDS", "20")
    [order] = json.loads(document(SchedulerSettings))["refused"]
    assert order.startswith("fence_seconds must be less than lease_seconds, got 50 and 20")
    monkeypatch.setenv("LOCKSTEP_LEASE_SECONDS", "long")
    [number] = json.loads(document(SchedulerSettings))["refused"]
    assert number.startswith("LOCKSTEP_LEASE_SECONDS: Input should be a valid number")
