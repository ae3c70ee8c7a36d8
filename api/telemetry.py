"""Metrics of this process, and the page that Prometheus scrapes.

Requests are labelled with the route's template instead of the path, which bounds the number of
series. Durations end when the response starts: a log stream lasts for hours and is not slow.

Not here: gauges read from the databases (``api.gauges``), which are part of the same page.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lockstep.api.gauges import GaugeValues, ServiceGauges
from lockstep.api.http.following import ChangeStreams
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.version import VERSION
from lockstep.storage.db.database import Database

MEDIA_TYPE: Final = prometheus_client.CONTENT_TYPE_PLAIN_0_0_4
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Other methods are counted as one: clients can invent any number of them."""
REQUEST_SECONDS: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
WAIT_SECONDS: Final = (
    0.0001,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.5,
    1.0,
    5.0,
    15.0,
)

# Without the creation time of each series, which would be a third of the page.
prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]  # declared without types


class ApiMetrics:
    """Metrics of one application, in a registry of its own: tests create several per process.

    Parameters
    ----------
    database : Database
        Reports from now on the time that transactions wait to begin.
    gauges : ServiceGauges
    following : ChangeStreams
    """

    def __init__(self, database: Database, gauges: ServiceGauges, following: ChangeStreams):
        self.registry = CollectorRegistry()
        self.in_progress = Gauge(
            "lockstep_http_requests_in_progress",
            "Requests in progress, until the response is complete.",
            registry=self.registry,
        )
        self._requests = Counter(
            "lockstep_http_requests",
            "Requests by route template. The status is 'none' if the client disconnected before "
            "the response.",
            ("route", "method", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "lockstep_http_request_seconds",
            "Seconds from a request's arrival to the start of its response.",
            ("route", "method"),
            buckets=REQUEST_SECONDS,
            registry=self.registry,
        )
        self._waits = Histogram(
            "lockstep_database_wait_seconds",
            "Seconds until a transaction has begun: waiting for a connection and, for writes "
            "on SQLite, for other writers.",
            ("database", "transaction"),
            buckets=WAIT_SECONDS,
            registry=self.registry,
        )
        built = Gauge(
            "lockstep_build_info",
            "Constant 1, labelled with the version.",
            ("version",),
            registry=self.registry,
        )
        built.labels(VERSION).set(1)
        ProcessCollector(registry=self.registry)
        self.registry.register(_Service(database, gauges, following))
        database.tell_waits(self._waited)

    def answered(self, route: str, method: str, status: int | None, seconds: float | None) -> None:
        """Count a request; ``seconds`` is None if no response was started."""
        method = method if method in METHODS else "other"
        self._requests.labels(route, method, "none" if status is None else str(status)).inc()
        if seconds is not None:
            self._seconds.labels(route, method).observe(seconds)

    def page(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        return prometheus_client.generate_latest(self.registry)

    def _waited(self, database: str, transaction: str, seconds: float) -> None:
        self._waits.labels(database, transaction).observe(seconds)


class _Service(Collector):
    """Metrics that are read at each scrape."""

    def __init__(self, database: Database, gauges: ServiceGauges, following: ChangeStreams):
        self._database = database
        self._gauges = gauges
        self._following = following

    def collect(self) -> Iterable[Metric]:
        yield _gauge("log_streams", "Open log streams of this process.", len(self._following))
        yield _by(
            "database_connections",
            "Open database connections of this process.",
            ("database", "state"),
            [
                ((name, state), count)
                for name, in_use, idle in self._database.connections()
                for state, count in (("in_use", in_use), ("idle", idle))
            ],
        )
        found = self._gauges.read()
        yield _gauge(
            "up",
            "1 if both databases answered, else 0; then the gauges read from them are missing.",
            bool(found),
        )
        if found is not None:
            yield from _of_databases(found)


def _of_databases(found: GaugeValues) -> Iterable[Metric]:
    jobs = [
        ((state.value,), found.control.jobs[state])
        for state in JobState
        if state in found.control.jobs
    ]
    yield _by("jobs", "Jobs that have not ended.", ("state",), jobs)
    yield _gauge(
        "queue_oldest_seconds",
        "Seconds since the oldest queued job was submitted; 0 when none is queued.",
        found.control.queue_oldest_seconds,
    )
    yield _gauge("leases", "Leases of assignments that have not ended.", found.control.leases)
    yield _gauge(
        "lease_oldest_seconds",
        "Seconds since the renewal of the lease with the oldest renewal.",
        found.lease_oldest_seconds,
    )
    yield _by(
        "nodes",
        "Nodes ever registered.",
        ("state",),
        [((state,), n) for state, n in found.nodes.items()],
    )
    yield _gauge(
        "node_silence_seconds",
        "Seconds since the last heartbeat of the most silent node neither lost nor leaving.",
        found.node_silence_seconds,
    )
    devices = [(("free",), found.control.devices_free), (("held",), found.control.devices_held)]
    yield _by("devices", "Devices on all nodes.", ("state",), devices)
    if found.control.cycle_seconds is not None:
        yield _gauge(
            "scheduler_cycle_seconds",
            "Seconds since the scheduler's last completed reconcile cycle.",
            found.control.cycle_seconds,
        )
    yield _gauge(
        "ingest_lag_seconds",
        "Largest age in seconds of the newest stored point among the running jobs, by their "
        "nodes' clocks.",
        found.ingest_lag_seconds,
    )


def _gauge(name: str, what: str, value: float) -> Metric:
    return GaugeMetricFamily(f"lockstep_{name}", what, value=float(value))


def _by(
    name: str, what: str, labels: tuple[str, ...], values: Iterable[tuple[tuple[str, ...], int]]
) -> Metric:
    family = GaugeMetricFamily(f"lockstep_{name}", what, labels=labels)
    for label, value in values:
        family.add_metric(label, float(value))
    return family
