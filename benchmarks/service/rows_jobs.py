"""Rows 5, 6 and 7: jobs from the submit to the end, and the service's cost for a running training.

Not here: the cost of the engine itself (``engine_overhead.py`` in the folder above).
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from sqlalchemy import func, select

from benchmarks.service import peer_ray
from benchmarks.service.compare import Bench, Contestant, Figure, Sample, Target
from benchmarks.service.context import Context
from benchmarks.service.ours import whole_service, wire_to
from benchmarks.service.peer_ray import Ray
from benchmarks.service.wire import Wire, wait_until
from lockstep.domain.life.attempt import METRICS
from lockstep.domain.life.lifecycle import JobState
from lockstep.storage.db.database import Database
from lockstep.storage.db.tables import JobRow
from tests.harness.processes import ROOT
from tests.harness.service import ENDED, Service

SLOTS: Final = 2
JOB_SECONDS: Final = 300.0
POLL_SECONDS: Final = 0.01
"""Between two polls of a job, which is the resolution of its end."""
TRUES: Final = 3
"""Jobs of `true` in one round, one after the other."""
LIFE_CONNECTIONS: Final = 4
SIMULATED_SLOTS: Final = 32
DROPPED_STEPS: Final = 10
"""The first steps of a run are not part of its step time."""
TRUE: Final[dict[str, Any]] = {
    "name": "true",
    "kind": "script",
    "resources": {"gpus": 1},
    "script": {"command": ["true"]},
}
DIGITS: Final[dict[str, Any]] = {
    "name": "digits",
    "kind": "train",
    "resources": {"gpus": 2},
    "train": {
        "task": "image_classification",
        "task_args": {"width": 8},
        "batch": {"size": 64, "micro_size": 8},
        "steps": 2,
        "optimizer": {"name": "adamw", "lr": 3.0e-3},
    },
}
"""Training of ``handwritten.py``."""


def one_true(context: Context, stack: ExitStack) -> Bench:
    """Measure a job that does nothing, alone."""
    figure = Figure(
        "seconds", "`true`: submitted → finished", "s", (Target("≤", 0.4),), ("ray", "before")
    )
    bench = Bench((figure,), [])
    _add_services(context, stack, bench, lambda service: lambda: {"seconds": _alone(service)})
    _add_ray(context, stack, bench, lambda ray: lambda: {"seconds": _alone_on_ray(ray)})
    return bench


def many_trues(context: Context, stack: ExitStack) -> Bench:
    """Measure more jobs than slots: the time that a slot is idle between two jobs."""
    count = context.sizes.queue_jobs
    bench = Bench(
        (
            Figure(
                "seconds", f"{count} jobs of `true` on {SLOTS} slots", "s", (), ("ray", "before")
            ),
        ),
        [],
    )

    def ours(service: Service) -> Sample:
        wire = wire_to(service)
        began = time.perf_counter()
        for job_id in [_submit(wire, TRUE) for _ in range(count)]:
            _await_end(wire, job_id)
        return {"seconds": time.perf_counter() - began}

    def rays(ray: Ray) -> Sample:
        wire = ray.wire()
        began = time.perf_counter()
        for job_id in [ray.submit(wire, "true", cpus=1) for _ in range(count)]:
            _await_end_on_ray(ray, wire, job_id)
        return {"seconds": time.perf_counter() - began}

    _add_services(context, stack, bench, lambda service: lambda: ours(service))
    _add_ray(context, stack, bench, lambda ray: lambda: rays(ray))
    return bench


def first_step(context: Context, stack: ExitStack) -> Bench:
    """Measure from the submit to rank 0's first optimizer step, and the same training by hand."""
    what = "2 ranks: submitted → first optimizer step"
    bench = Bench(
        (Figure("seconds", what, "s", (Target("≤", 0.35, "ratio"),), ("torchrun", "before")),), []
    )

    def ours(service: Service) -> Sample:
        wire = wire_to(service)
        began = time.time()
        job_id = _submit(wire, DIGITS)
        _await_end(wire, job_id)
        return {"seconds": _step_times(wire, job_id)[0] - began}

    _add_services(context, stack, bench, lambda service: lambda: ours(service))
    folder = context.fresh()
    bench.contestants.append(
        Contestant("torchrun", lambda: {"seconds": _by_hand(folder / "moment")})
    )
    return bench


def _by_hand(moment: Path) -> float:
    script = Path(__file__).with_name("handwritten.py")
    words = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(script),
        str(moment),
    ]
    began = time.time()
    _run(words, moment.parent)
    return float(moment.read_text()) - began


def whole_lives(context: Context, stack: ExitStack) -> Bench:
    """Measure jobs with simulated ranks, from the first submit to the last end."""
    count = context.sizes.life_jobs
    what = f"{count:,} jobs with simulated ranks, whole life"
    bench = Bench((Figure("rate", what, "jobs/s", (Target("≥", 100),)),), [])
    for store in context.stores:
        folder = context.fresh()
        urls = store.ours(folder / "data")
        service = stack.enter_context(
            whole_service(folder, urls, simulated=True, LOCKSTEP_CPU_SLOTS=str(SIMULATED_SLOTS))
        )
        database = Database(*urls)
        stack.callback(database.close)
        measure = _living(service, database, count)
        bench.contestants.append(Contestant("lockstep", measure, store.name, ours=True))
    return bench


def _living(service: Service, database: Database, count: int) -> Callable[[], Sample]:
    def succeeded() -> int:
        with database.read_jobs() as session:
            query = select(func.count()).where(JobRow.state == JobState.SUCCEEDED)
            return session.execute(query).scalar_one()

    def submit(share: int) -> None:
        wire = wire_to(service)
        for _ in range(share, count, LIFE_CONNECTIONS):
            _submit(wire, TRUE)

    def measure() -> Sample:
        goal = succeeded() + count
        began = time.perf_counter()
        with ThreadPoolExecutor(LIFE_CONNECTIONS) as pool:
            list(pool.map(submit, range(LIFE_CONNECTIONS)))
        wait_until(lambda: succeeded() >= goal, JOB_SECONDS, f"the end of {count} jobs", pause=0.05)
        return {"rate": count / (time.perf_counter() - began)}

    return measure


def step_time(context: Context, stack: ExitStack) -> Bench:
    """Measure one training under the service, and by the engine alone.

    The service has uploads and leases.
    """
    bench = Bench(
        (
            Figure(
                "mean",
                "step under the service / engine alone, mean",
                "ms",
                (Target("≤", 1.01, "ratio"),),
            ),
            Figure("median", "step under the service / engine alone, median", "ms"),
        ),
        [],
    )
    spec = {
        "name": "steps",
        "kind": "train",
        "resources": {"gpus": 1},
        "train": {
            "task": "causal_lm",
            "task_args": {
                "context": 64,
                "layers": 2,
                "heads": 4,
                "width": 128,
                "max_bytes": 200_000,
            },
            "batch": {"size": 16, "micro_size": 8},
            "steps": context.sizes.step_time_steps,
        },
    }

    def ours(service: Service) -> Sample:
        wire = wire_to(service)
        job_id = _submit(wire, spec)
        _await_end(wire, job_id)
        return _step_figures(_step_times(wire, job_id))

    _add_services(context, stack, bench, lambda service: lambda: ours(service))
    bench.contestants.append(
        Contestant("engine alone", lambda: _step_figures(_engine_alone(context.fresh(), spec)))
    )
    return bench


def _engine_alone(folder: Path, spec: dict[str, Any]) -> list[float]:
    file = folder / "job.yaml"
    file.write_text(json.dumps(spec))
    _run(["-m", "lockstep.engine", str(file), "--out", str(folder / "out")], ROOT)
    with (folder / "out" / METRICS).open() as lines:
        records = [json.loads(line) for line in lines]
    return [record["time"] for record in records if "train/loss" in record["values"]]


def _step_times(wire: Wire, job_id: str) -> list[float]:
    """Return the time at which each step of a job ended.

    In seconds since the epoch, by rank 0's clock.
    """
    found = wire.get(f"/v1/jobs/{job_id}/metrics?names=train/loss&max_points=10000")["series"]
    times: list[float] = found[0]["time"]
    return times


def _step_figures(times: list[float]) -> Sample:
    steps = [1e3 * (later - earlier) for earlier, later in pairwise(times)][DROPPED_STEPS:]
    return {"mean": statistics.fmean(steps), "median": statistics.median(steps)}


# --- contestants


def _add_services(
    context: Context,
    stack: ExitStack,
    bench: Bench,
    measure: Callable[[Service], Callable[[], Sample]],
) -> None:
    for store in context.stores:
        folder = context.fresh()
        urls = store.ours(folder / "data")
        service = stack.enter_context(whole_service(folder, urls, LOCKSTEP_CPU_SLOTS=str(SLOTS)))
        bench.contestants.append(Contestant("lockstep", measure(service), store.name, ours=True))
        if context.before is not None:
            older = whole_service(
                folder := context.fresh(),
                store.empty(folder),
                python=context.before,
                LOCKSTEP_CPU_SLOTS=str(SLOTS),
            )
            service = stack.enter_context(older)
            bench.contestants.append(Contestant("before", measure(service), store.name))


def _add_ray(
    context: Context, stack: ExitStack, bench: Bench, measure: Callable[[Ray], Callable[[], Sample]]
) -> None:
    programs = context.peers.programs("ray")
    if programs is None:
        bench.absent["ray"] = context.peers.why("ray")
        return
    ray = stack.enter_context(peer_ray.running(programs, cpus=SLOTS))
    bench.contestants.append(Contestant("ray", measure(ray)))


def _alone(service: Service) -> float:
    wire, seconds = wire_to(service), []
    for _ in range(TRUES):
        began = time.perf_counter()
        _await_end(wire, _submit(wire, TRUE))
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _alone_on_ray(ray: Ray) -> float:
    wire, seconds = ray.wire(), []
    for _ in range(TRUES):
        began = time.perf_counter()
        _await_end_on_ray(ray, wire, ray.submit(wire, "true"))
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _submit(wire: Wire, spec: dict[str, Any]) -> str:
    job_id: str = wire.post("/v1/jobs", spec)["id"]
    return job_id


def _await_end(wire: Wire, job_id: str) -> None:
    def ended() -> bool:
        job = wire.get(f"/v1/jobs/{job_id}")
        if job["state"] in ENDED - {"succeeded"}:
            raise RuntimeError(f"job {job_id} ended as {job['state']}: {job['reason']}")
        return job["state"] in ENDED

    wait_until(ended, JOB_SECONDS, f"the end of job {job_id}", pause=POLL_SECONDS)


def _await_end_on_ray(ray: Ray, wire: Wire, job_id: str) -> None:
    wait_until(
        lambda: ray.ended(wire, job_id), JOB_SECONDS, "the end of Ray's job", pause=POLL_SECONDS
    )


def _run(words: list[str], folder: Path) -> None:
    """Run our Python, with one thread per process like a rank on the CPU."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=JOB_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{words} ended with {done.returncode}:\n{done.stderr[-2000:]}")
