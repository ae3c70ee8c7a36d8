"""Rows 3 and 4: jobs submitted and read over HTTP, on one api process.

Not here: the execution of the jobs (``rows_jobs``); no scheduler runs beside this api.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from celery import Celery

from benchmarks.service.compare import Bench, Contestant, Figure, Sample, Target
from benchmarks.service.context import Context
from benchmarks.service.load import (
    Connect,
    Sent,
    arrivals,
    closed_loop,
    failed,
    open_loop,
    per_second,
    percentile_ms,
)
from benchmarks.service.ours import api_alone, older_api, wire_to
from benchmarks.service.peer_mlflow import API, Mlflow
from benchmarks.service.planting import SPEC, Planter, running
from benchmarks.service.stores import Urls
from benchmarks.service.tabs import OPEN_CONNECTIONS, Tabs
from benchmarks.service.wire import Answer, Wire, median_ms, sender
from lockstep.storage.db.database import Database
from tests.harness.processes import Program, running_broker

CONNECTIONS: Final = 8
"""Of the load at full speed."""
RATE: Final = 200.0
"""Arrivals per second at which our latency is measured: two thirds of the required rate."""
SHARED_RATE: Final = 30.0
"""A rate that the peer supports as well."""
LIVE_JOBS: Final = 20


def submits(context: Context, stack: ExitStack) -> Bench:
    """Measure accepted jobs.

    With authentication, validation and event, durable before the answer.
    """
    bench = Bench(
        figures=(
            Figure(
                "accepted",
                f"POST job, {CONNECTIONS} connections",
                "accepted/s",
                (Target("≥", 300),),
                ("mlflow",),
            ),
            Figure("p50", f"POST job p50, open loop at {RATE:g}/s", "ms", (Target("≤", 5),)),
            Figure("p99", f"POST job p99, open loop at {RATE:g}/s", "ms", (Target("≤", 30),)),
            Figure(
                "shared_p50", f"POST job p50, open loop at {SHARED_RATE:g}/s", "ms", (), ("mlflow",)
            ),
            Figure(
                "shared_p99", f"POST job p99, open loop at {SHARED_RATE:g}/s", "ms", (), ("mlflow",)
            ),
        ),
        contestants=[],
    )
    broker = stack.enter_context(running_broker())
    for store in context.stores:
        folder = context.fresh()
        api = stack.enter_context(api_alone(folder, store.ours(folder), broker.url))
        bench.contestants.append(
            Contestant("lockstep", _submitting(api, context), store.name, ours=True)
        )
    context.add_mlflow(bench, stack, lambda server, _: _creating(server, context))
    bench.contestants.append(Contestant("celery publish", _publishing(broker.url, context)))
    return bench


def _submitting(api: Program, context: Context) -> Callable[[], Sample]:
    def post(wire: Wire, number: int) -> Answer:
        return wire.ask(
            "POST", "/v1/jobs", {**SPEC, "name": f"job-{number}"}, Idempotency_Key=uuid.uuid4().hex
        )

    connect = sender(lambda: wire_to(api), post)

    def measure() -> Sample:
        ours = _at_rate(connect, RATE, context.sizes.load_seconds, 201)
        return {
            **_as_fast_as_it_goes(connect, context, 201),
            **_at_shared_rate(connect, context, 201),
            "p50": percentile_ms(ours, 50),
            "p99": percentile_ms(ours, 99),
        }

    return measure


def _creating(server: Mlflow, context: Context) -> Callable[[], Sample]:
    def post(wire: Wire, number: int) -> Answer:
        return wire.ask("POST", f"{API}/runs/create", server.run_document(number))

    connect = sender(server.wire, post)
    return lambda: {
        **_as_fast_as_it_goes(connect, context, 200),
        **_at_shared_rate(connect, context, 200),
    }


def _as_fast_as_it_goes(connect: Connect, context: Context, status: int) -> Sample:
    sent = closed_loop(connect, seconds=context.sizes.load_seconds, connections=CONNECTIONS)
    return {"accepted": per_second(sent, status), "refused": failed(sent, status)}


def _at_shared_rate(connect: Connect, context: Context, status: int) -> Sample:
    sent = _at_rate(connect, SHARED_RATE, context.sizes.load_seconds, status)
    return {"shared_p50": percentile_ms(sent, 50), "shared_p99": percentile_ms(sent, 99)}


def _at_rate(connect: Connect, rate: float, seconds: float, status: int) -> list[Sent]:
    """Check that every request gets a good answer.

    A refusal is fast, and would make the latency appear good.
    """
    sent = open_loop(connect, arrivals(rate, seconds), connections=OPEN_CONNECTIONS)
    if bad := failed(sent, status):
        raise RuntimeError(
            f"{bad} of {len(sent)} requests at {rate:g}/s were not answered with {status}"
        )
    return sent


def _publishing(broker_url: str, context: Context) -> Callable[[], Sample]:
    """Celery's plain publish, which checks nothing and stores only in the broker's memory."""
    app = Celery(broker=broker_url, set_as_current=False)
    app.conf.task_ignore_result = True

    def measure() -> Sample:
        count, began = 0, time.perf_counter()
        while time.perf_counter() < began + context.sizes.load_seconds:
            app.send_task("benchmark", args=[SPEC], queue="benchmark")
            count += 1
        rate = count / (time.perf_counter() - began)
        with app.connection_for_write() as connection:
            connection.default_channel.queue_purge("benchmark")
        return {"accepted": rate}

    return measure


def reads(context: Context, stack: ExitStack) -> Bench:
    """Measure polling: one job, the same job unchanged, and many tabs at once."""
    sizes, older = context.sizes, ("before",)
    bench = Bench(
        figures=(
            Figure("job", "GET job p50", "ms", (Target("≤", 3),), ("mlflow",)),
            Figure("unchanged", "GET job p50, unchanged (304)", "ms", (Target("≤", 2),)),
            Figure(
                "share", f"{sizes.dashboards} tabs, of one core", "%", (Target("≤", 30),), older
            ),
            Figure("dashboard_p99", f"{sizes.dashboards} tabs, p99", "ms", (), older),
            Figure("same", f"{sizes.dashboards} tabs, answered 304", "%", (), older),
        ),
        contestants=[],
    )
    broker = stack.enter_context(running_broker())
    for store in context.stores:
        folder = context.fresh()
        urls = store.ours(folder)
        api = stack.enter_context(api_alone(folder, urls, broker.url))
        measure = _Looking(api, *_planted(urls, stack), context)
        bench.contestants.append(Contestant("lockstep", measure, store.name, ours=True))
        if context.before is not None:
            folder = context.fresh()
            urls = store.empty(folder)
            api = stack.enter_context(older_api(context.before, folder, urls, broker.url))
            tabs = Tabs(api, *_planted(urls, stack), context, live=False)
            bench.contestants.append(Contestant("before", tabs, store.name))
    if context.before is None:
        bench.absent["before"] = "name the python of an older installation with --before"
    context.add_mlflow(bench, stack, lambda server, _: _getting(server, context))
    return bench


def _planted(urls: Urls, stack: ExitStack) -> tuple[list[str], list[Planter]]:
    """Create live jobs with some points; return their ids and their writers."""
    database = Database(*urls)
    stack.callback(database.close)
    ids = [running(database, f"node-{number}") for number in range(LIVE_JOBS)]
    planters = [Planter(database, job_id) for job_id in ids]
    for planter in planters:
        planter.append(100)
    return ids, planters


def _getting(server: Mlflow, context: Context) -> Callable[[], Sample]:
    wire = server.wire()
    path = f"{API}/runs/get?run_id={server.create_run(wire)}"
    return lambda: {
        "job": median_ms(lambda: wire.ask("GET", path), status=200, times=context.sizes.reads)
    }


class _Looking:
    """One round on one api."""

    def __init__(self, api: Program, ids: list[str], planters: list[Planter], context: Context):
        self._api = api
        self._ids = ids
        self._planters = planters
        self._sizes = context.sizes
        self._wire = wire_to(api)
        self._tabs = Tabs(api, ids, planters, context)

    def __call__(self) -> Sample:
        path = f"/v1/jobs/{self._ids[0]}"
        times = self._sizes.reads
        job = median_ms(
            # Each time after progress, because a cached answer for another client takes less.
            lambda: self._wire.ask("GET", path),
            status=200,
            times=times,
            before=lambda: self._planters[0].append(1),
        )
        tag = self._wire.ask("GET", path).headers["ETag"]
        return {
            "job": job,
            "unchanged": median_ms(
                lambda: self._wire.ask("GET", path, If_None_Match=tag), status=304, times=times
            ),
            **self._tabs(),
        }
