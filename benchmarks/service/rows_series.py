"""Rows 1 and 2: metrics in, and charts out.

Not here: the required content of a chart (the tests of ``storage.series.series_query``).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

from benchmarks.service.compare import Bench, Contestant, Figure, Sample, Target
from benchmarks.service.context import Context
from benchmarks.service.ours import api_alone, wire_to
from benchmarks.service.peer_mlflow import BATCH_POINTS, INTERVAL, Mlflow
from benchmarks.service.planting import SERIES, Planter, job, opened, records
from benchmarks.service.stores import Store, Urls
from benchmarks.service.wire import Wire, median_ms
from lockstep.domain.life.attempt import METRICS
from lockstep.domain.training import metrics
from lockstep.storage.db.database import Database
from lockstep.worker.folders import Folder
from lockstep.worker.upload.metrics import MetricsUploader
from tests.harness.processes import running_broker

CHART_POINTS: Final = 1_000
MLFLOW_CONNECTIONS: Final = (1, 4)
"""Each is measured in every round, and the faster one counts."""


def ingest(context: Context, stack: ExitStack) -> Bench:
    """Measure a spool's way into the database, and ``log_batch`` over HTTP.

    The spool is uploaded as by the agent.
    """
    bench = Bench(
        figures=(
            Figure("points", "metric ingest", "points/s", (Target("≥", 20, "ratio"),), ("mlflow",)),
            Figure("bytes", "stored per point", "bytes", (Target("≤", 20),), ("mlflow",)),
        ),
        contestants=[],
    )
    for store in context.stores:
        urls = store.ours(context.fresh())
        database = Database(*urls)
        stack.callback(database.close)
        measure = _upload(context, store, urls, database)
        bench.contestants.append(Contestant("lockstep", measure, store.name, ours=True))
    context.add_mlflow(
        bench, stack, lambda server, store: lambda: _log_batches(server, store, context)
    )
    return bench


def _upload(context: Context, store: Store, urls: Urls, database: Database) -> Callable[[], Sample]:
    nodes = context.fresh()

    def measure() -> Sample:
        stream = opened(database, uuid.uuid4().hex)
        folder = Folder(nodes / stream.assignment_id)
        folder.create()
        steps = range(1, context.sizes.ingest_steps + 1)
        _write_spool(folder.file(METRICS), steps)
        warnings: list[str] = []
        uploader = MetricsUploader(database, folder, stream, warnings.append)
        before = store.stored_bytes(urls.series)
        began = time.perf_counter()
        while uploader.step(True):
            pass
        seconds = time.perf_counter() - began
        if warnings or uploader.last_step != steps[-1]:
            raise RuntimeError(f"stored up to step {uploader.last_step} of {steps[-1]}: {warnings}")
        points = len(steps) * len(SERIES)
        return {
            "points": points / seconds,
            "bytes": (store.stored_bytes(urls.series) - before) / points,
        }

    return measure


def _write_spool(path: Path, steps: range) -> None:
    """Write the spool of rank 0.

    Completed in advance, because a spool that grows as fast as this would be thinned.
    """
    with path.open("w") as file:
        file.writelines(metrics.encode(record) + "\n" for record in records(steps))


def _log_batches(server: Mlflow, store: Store, context: Context) -> Sample:
    before = store.stored_bytes(server.uri)
    names = list(SERIES)
    steps_each = BATCH_POINTS // len(names)
    best, stored = 0.0, 0
    for connections in MLFLOW_CONNECTIONS:
        wires = [server.wire() for _ in range(connections)]
        runs = [server.create_run(wire) for wire in wires]
        batches = max(1, context.sizes.mlflow_batches // connections)
        began = time.perf_counter()
        points = _in_turn(server, list(zip(wires, runs, strict=True)), names, batches, steps_each)
        best = max(best, points / (time.perf_counter() - began))
        stored += points
    return {"points": best, "bytes": (store.stored_bytes(server.uri) - before) / stored}


def _in_turn(
    server: Mlflow, runs: list[tuple[Wire, str]], names: list[str], batches: int, steps_each: int
) -> int:
    """Log the batches of every connection one after the other, all connections at once.

    Return the number of points.
    """

    def log(pair: tuple[Wire, str]) -> int:
        wire, run_id = pair
        ranges = (
            range(number * steps_each + 1, (number + 1) * steps_each + 1)
            for number in range(batches)
        )
        return sum(server.log(wire, run_id, names, steps) for steps in ranges)

    with ThreadPoolExecutor(len(runs)) as pool:
        return sum(pool.map(log, runs))


def charts(context: Context, stack: ExitStack) -> Bench:
    """Measure a long series over HTTP, reduced for a chart."""
    sizes = context.sizes
    bench = Bench(
        figures=(
            Figure(
                "chart",
                f"chart of {sizes.chart_points:,} points to {CHART_POINTS:,}",
                "ms",
                (Target("≤", 15), Target("≤", 0.2, "ratio")),
                ("mlflow",),
            ),
            Figure(
                "large",
                f"chart of {sizes.chart_points_large:,} points to {CHART_POINTS:,}",
                "ms",
                (Target("≤", 30),),
            ),
            Figure(
                "several",
                f"{sizes.chart_jobs} jobs × {sizes.chart_points_each:,} points to "
                f"{CHART_POINTS:,}, in one request",
                "ms",
                (Target("≤", 150),),
            ),
        ),
        contestants=[],
    )
    broker = stack.enter_context(running_broker())
    for store in context.stores:
        folder = context.fresh()
        urls = store.ours(folder)
        database = Database(*urls)
        ids = [job(database), job(database)]
        for job_id, points in zip(ids, (sizes.chart_points, sizes.chart_points_large), strict=True):
            Planter(database, job_id, SERIES[:1]).append(points)
        several = [job(database) for _ in range(sizes.chart_jobs)]
        for job_id in several:
            Planter(database, job_id, SERIES[:1]).append(sizes.chart_points_each)
        database.close()
        wire = wire_to(stack.enter_context(api_alone(folder, urls, broker.url)))
        bench.contestants.append(
            Contestant("lockstep", _drawing(wire, ids, several, context), store.name, ours=True)
        )
    context.add_mlflow(bench, stack, lambda server, _: _drawing_mlflow(server, context))
    return bench


def _drawing(
    wire: Wire, ids: list[str], several: list[str], context: Context
) -> Callable[[], Sample]:
    query = urlencode({"names": SERIES[0], "max_points": CHART_POINTS})
    # Beyond the last step, with another end each time, because a cached answer draws no chart.
    to_step = count(10**9)

    def median(path: str) -> float:
        return median_ms(
            lambda: wire.ask("GET", f"{path}&to_step={next(to_step)}"),
            status=200,
            times=context.sizes.chart_requests,
        )

    return lambda: {
        "chart": median(f"/v1/jobs/{ids[0]}/metrics?{query}"),
        "large": median(f"/v1/jobs/{ids[1]}/metrics?{query}"),
        "several": median(f"/v1/series?jobs={','.join(several)}&{query}"),
    }


def _drawing_mlflow(server: Mlflow, context: Context) -> Callable[[], Sample]:
    wire = server.wire()
    run_id = server.create_run(wire)
    points = context.sizes.chart_points
    for first in range(1, points + 1, BATCH_POINTS):
        server.log(
            wire, run_id, [SERIES[0]], range(first, min(points, first + BATCH_POINTS - 1) + 1)
        )
    query = urlencode({"run_ids": run_id, "metric_key": SERIES[0], "max_results": CHART_POINTS})
    return lambda: {
        "chart": median_ms(
            lambda: wire.ask("GET", f"{INTERVAL}?{query}"),
            status=200,
            times=context.sizes.chart_requests,
        )
    }
