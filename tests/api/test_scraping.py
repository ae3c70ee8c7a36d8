"""Metrics for Prometheus: requests, queue, leases, lag and waits, also without databases."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import update

from lockstep.api import gauges
from lockstep.api.gauges import ServiceGauges
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.rights import EVERY
from lockstep.storage.attempts import nodes
from lockstep.storage.control import scheduler_lease
from lockstep.storage.db import database as database_module
from lockstep.storage.db import engines
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import AttemptRow, JobRow, NodeRow
from lockstep.storage.jobs import listing
from tests.api.conftest import SCRIPT, TOKEN, Api
from tests.api.test_faults import serving_without_a_database
from tests.api.test_reading import record, upload_metrics
from tests.harness.databases import Urls
from tests.storage import scenes

Figure = tuple[str, tuple[tuple[str, str], ...]]


def scraped(page: str) -> dict[Figure, float]:
    """Return each value by its name and labels, as Prometheus's own parser reads it."""
    families = text_string_to_metric_families(page)
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in families
        for s in family.samples
    }


def scrape(api: Api) -> dict[Figure, float]:
    """Return the metrics page, requested without a token."""
    answer = api.http.get("/metrics", headers={"Authorization": ""})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    return scraped(answer.text)


def of(found: dict[Figure, float], name: str, **labels: str) -> float:
    return found[f"lockstep_{name}", tuple(sorted(labels.items()))]


@pytest.fixture
def _anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the databases at every scrape."""
    monkeypatch.setattr(gauges, "REMEMBER_SECONDS", -1.0)


def test_requests_are_counted_by_the_template_of_their_address(unchanged_api: Api) -> None:
    api = unchanged_api
    before = scrape(api)
    for reference in ("last", "0000", "any-name"):
        api.http.get(f"/v1/jobs/{reference}")
    api.http.get("/nowhere")
    api.http.request("BREW", "/livez")
    after = scrape(api)
    route = {"route": "/v1/jobs/{reference}", "method": "GET"}

    def more(name: str, **labels: str) -> float:
        return of(after, name, **labels) - before.get(
            (f"lockstep_{name}", tuple(sorted(labels.items()))), 0.0
        )

    assert more("http_requests_total", **route, status="404") == 3
    assert more("http_request_seconds_count", **route) == 3
    assert more("http_requests_total", route="none", method="GET", status="404") == 1
    assert more("http_requests_total", route="/livez", method="other", status="405") == 1
    assert of(after, "http_requests_in_progress") == 1, "this one itself"
    assert not any("any-name" in str(figure) for figure in after)


@pytest.mark.usefixtures("_anew")
def test_the_figures_are_those_of_the_databases(api: Api) -> None:
    idle = scrape(api)
    assert of(idle, "up") == 1
    for name in (
        "queue_oldest_seconds",
        "leases",
        "lease_oldest_seconds",
        "node_silence_seconds",
        "ingest_lag_seconds",
    ):
        assert of(idle, name) == 0
    claim = scenes.run(api.database)  # on two of the four devices of node n1
    ended = scenes.start(api.database, scenes.submit(api.database), devices=(2, 3))
    scenes.end(api.database, ended, Reason.SUCCEEDED)
    scenes.release(api.database, ended)
    waiting = api.job_id()
    api.job_id()
    with api.database.jobs() as session:
        nodes.register(session, "n2", [nodes.DeviceInfo(0, "cpu", "cpu")], version="1", boot_id="b")
        nodes.register(session, "n3", [], version="1", boot_id="b")
        nodes.set_draining(session, "n2", draining=True)
        for name, seconds in (("n2", 20.0), ("n3", 1_000.0)):
            silent = update(NodeRow).where(NodeRow.name == name)
            session.execute(silent.values(seen_at=db_now() - seconds))
        session.execute(
            update(JobRow).where(JobRow.id == waiting).values(created_at=db_now() - 500.0)
        )
        session.execute(update(AttemptRow).values(running_at=AttemptRow.running_at - 1_000.0))
        scheduler_lease.take(session, "s", ttl_seconds=5)
        scheduler_lease.give_back(session, "s")
    scenes.renew(api.database, claim)
    found = scrape(api)
    for state, count in (("queued", 2), ("starting", 0), ("running", 1)):
        assert of(found, "jobs", state=state) == count
    assert 500 <= of(found, "queue_oldest_seconds") < 530
    assert of(found, "leases") == 1
    assert 0 <= of(found, "lease_oldest_seconds") < 30
    assert [of(found, "nodes", state=state) for state in gauges.STATES] == [1, 1, 0, 0, 1]
    assert 20 <= of(found, "node_silence_seconds") < 50, "a node that is lost does not count"
    assert (of(found, "devices", state="free"), of(found, "devices", state="held")) == (3, 2)
    assert of(found, "scheduler_cycle_seconds") < 30
    assert 1_000 <= of(found, "ingest_lag_seconds") < 1_030, (
        "it has run for so long without a point"
    )
    upload_metrics(api, claim, record(1)._replace(time=time.time() - 100.0))
    assert 100 <= of(scrape(api), "ingest_lag_seconds") < 130
    assert of(found, "database_wait_seconds_count", database="jobs", transaction="write") > 0
    assert of(found, "database_wait_seconds_count", database="series", transaction="read") > 0
    assert of(found, "database_connections", database="jobs", state="in_use") == 0


def test_the_open_page_names_nothing(api: Api) -> None:
    api.register("secret-node")
    job_id = api.job_id({**SCRIPT, "name": "secret-job", "project": "secret-project"})
    for address in (f"/v1/jobs/{job_id}", "/v1/jobs?name=secret-job", "/v1/secret-address"):
        api.http.get(address)
    page = api.http.get("/metrics").text
    for named in ("secret", job_id, TOKEN, "ada"):
        assert named not in page


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_without_databases_the_metrics_page_reports_it_and_keeps_the_rest(
    kind: str, tmp_path: Path
) -> None:
    with serving_without_a_database(kind, tmp_path) as http:
        http.get("/v1/jobs")
        answer = http.get("/metrics")
    found = scraped(answer.text)
    assert (answer.status_code, of(found, "up")) == (200, 0)
    assert of(found, "http_requests_total", route="/v1/jobs", method="GET", status="503") == 1
    assert not any(name == "lockstep_jobs" for name, _ in found)


def test_a_database_that_hangs_counts_as_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gauges, "PATIENCE_SECONDS", 0.05)
    hangs, looks = threading.Event(), []

    class Hanging:
        def read_jobs(self) -> None:
            looks.append(1)
            hangs.wait(60)
            raise LockstepError(ErrorCode.UNAVAILABLE, "it does not answer")

    asked = ServiceGauges(Hanging())  # type: ignore[arg-type]
    assert [asked.read() for _ in range(5)] == [None] * 5
    hangs.set()
    assert len(looks) == 1, "no second read before the end of the first"


def test_many_scrapes_cost_one_read_per_second(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, looks = [0.0], []
    look = gauges.gauges.control
    monkeypatch.setattr(gauges.gauges, "control", lambda session: looks.append(1) or look(session))
    asked = ServiceGauges(database, clock=lambda: now[0])
    assert len({id(asked.read()) for _ in range(20)}) == 1
    assert len(looks) == 1
    now[0] += gauges.REMEMBER_SECONDS + 0.1
    asked.read()
    assert len(looks) == 2


def test_the_wait_of_a_write_is_measured_from_the_previous_writer(
    sqlite_urls: Urls, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, seconds = threading.Event(), [100.0]

    def clock() -> float:
        """Clock that stands until the test moves it, and records that the second writer read it."""
        read = seconds[0]
        if threading.current_thread() is waiter:
            asked.set()
        return read

    for module in (engines, database_module):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock, sleep=time.sleep))
    database = Database(*sqlite_urls)
    told: list[tuple[str, str, float]] = []
    database.tell_waits(lambda *wait: told.append(wait))

    def second() -> None:
        with database.jobs():
            pass

    waiter = threading.Thread(target=second)
    with database.jobs() as session:
        listing.queued(session, among=EVERY, limit=10)
        waiter.start()
        assert asked.wait(60)
        seconds[0] += 5.0
        assert waiter.is_alive()
    waiter.join(60)
    with database.read_series():
        pass
    database.close()
    assert [wait[:2] for wait in told] == [("jobs", "write"), ("jobs", "write"), ("series", "read")]
    assert [wait[2] for wait in told] == [0.0, 5.0, 0.0]
