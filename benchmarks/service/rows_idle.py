"""Row 8: cost of the idle service, and the latency of its command.

Not here: its use under load (the other rows).
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import psutil

from benchmarks.service import peer_ray
from benchmarks.service.compare import Bench, Contestant, Figure, Sample, Target
from benchmarks.service.context import Context
from benchmarks.service.ours import WARM_MODULE, cpu_seconds, pss_gigabytes, tree, whole_service
from benchmarks.service.sizes import Sizes
from tests.harness.processes import LOCKSTEP
from tests.harness.service import Service

SETTLE_TRIES: Final = 60
REST_SHARE: Final = 0.3
"""Fraction of one core.

All programs together use less when idle, and an import uses a whole core.
"""


def idle(context: Context, stack: ExitStack) -> Bench:
    """Measure the whole idle service, and the idle peers."""
    bench = Bench(
        (
            Figure(
                "memory",
                "idle memory (PSS) without the warm process",
                "GB",
                (Target("≤", 0.6),),
                ("mlflow", "ray", "before"),
            ),
            Figure("warm", "idle memory (PSS) with it", "GB", (), ("before",)),
            Figure("load", "idle: processor time of all programs", "% of a core", (), ("before",)),
            Figure("version", "lockstep --version", "ms", (Target("≤", 100),)),
            Figure("ps", "lockstep ps", "ms", (Target("≤", 300),)),
        ),
        [],
    )
    for store in context.stores:
        folder = context.fresh()
        service = stack.enter_context(whole_service(folder, store.ours(folder / "data")))
        measure = _looking(service, context.sizes)
        bench.contestants.append(Contestant("lockstep", measure, store.name, ours=True))
        if context.before is not None:
            folder = context.fresh()
            older = whole_service(folder, store.empty(folder), python=context.before)
            measure = _looking(stack.enter_context(older), context.sizes)
            bench.contestants.append(Contestant("before", measure, store.name))
    context.add_mlflow(bench, stack, lambda server, _: lambda: _memory(server.pid))
    programs = context.peers.programs("ray")
    if programs is None:
        bench.absent["ray"] = context.peers.why("ray")
    else:
        ray = stack.enter_context(peer_ray.running(programs, cpus=2))
        bench.contestants.append(Contestant("ray", lambda: _memory(ray.pid)))
    _settle(context.sizes.settle_seconds)
    return bench


def _settle(seconds: float) -> None:
    """Wait until all started programs are idle.

    Warm processes import torch long after the service has reported its start.
    """
    this = psutil.Process().pid
    for _ in range(SETTLE_TRIES):
        before = _used(this)
        time.sleep(seconds)
        if _used(this) - before < REST_SHARE * seconds:
            return
    raise TimeoutError(
        f"the idle services did not come to rest within {SETTLE_TRIES} × {seconds:g} s"
    )


def _used(pid: int) -> float:
    """Return the processor seconds of a process and its descendants."""
    total = 0.0
    for process in tree(pid):
        with suppress(psutil.NoSuchProcess):
            total += cpu_seconds(process.pid)
    return total


def _memory(pid: int) -> Sample:
    return {"memory": pss_gigabytes(tree(pid))}


def _looking(service: Service, sizes: Sizes) -> Callable[[], Sample]:
    """Return all programs of the service, and ``lockstep up`` itself, which monitors them."""
    pid = int(json.loads((service.home / "run.json").read_text())["pid"])
    environment = service.environment
    return lambda: {
        "memory": pss_gigabytes(tree(pid), without=WARM_MODULE),
        "warm": pss_gigabytes(tree(pid)),
        "version": _command_ms(["--version"], environment, sizes.commands),
        "ps": _command_ms(["ps"], environment, sizes.commands),
        "load": _load(pid, sizes.settle_seconds),
    }


def _load(pid: int, seconds: float) -> float:
    """Return the use of the processor by a process and its descendants, in % of a core."""
    before = _used(pid)
    time.sleep(seconds)
    return 100 * (_used(pid) - before) / seconds


def _command_ms(words: list[str], environment: dict[str, str], times: int) -> float:
    """Return the median time of one command, from its start to its end."""
    found = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(
            [LOCKSTEP, *words], env=environment, cwd=Path("/"), capture_output=True, check=True
        )
        found.append(time.perf_counter() - began)
    return 1e3 * statistics.median(found)
