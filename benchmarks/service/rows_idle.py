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
    window = _Window(context.sizes.idle_seconds)
    for store in context.stores:
        folder = context.fresh()
        service = stack.enter_context(whole_service(folder, store.ours(folder / "data")))
        measure = _looking(service, context.sizes, window)
        bench.contestants.append(Contestant("lockstep", measure, store.name, ours=True))
        if context.before is not None:
            folder = context.fresh()
            older = whole_service(folder, store.empty(folder), python=context.before)
            measure = _looking(stack.enter_context(older), context.sizes, window)
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


def _looking(service: Service, sizes: Sizes, window: _Window) -> Callable[[], Sample]:
    """Measure all programs of the service, and ``lockstep up`` itself, which monitors them."""
    pid = int(json.loads((service.home / "run.json").read_text())["pid"])
    window.pids.append(pid)
    environment = service.environment
    return lambda: {
        "memory": pss_gigabytes(tree(pid), without=WARM_MODULE),
        "warm": pss_gigabytes(tree(pid)),
        "version": _command_ms(["--version"], environment, sizes.commands),
        "ps": _command_ms(["ps"], environment, sizes.commands),
        "load": window.load(pid),
    }


class _Window:
    """One window of time for all services.

    The processor time of an idle service follows what else runs on the machine. Windows one after
    the other gave 9 to 17 % between two services that are equal in a common window.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.pids: list[int] = []
        self._loads: dict[int, float] = {}

    def load(self, pid: int) -> float:
        """Return the load of one service in % of a core; each window gives it once."""
        if pid not in self._loads:
            before = {other: _used(other) for other in self.pids}
            time.sleep(self.seconds)
            self._loads = {
                other: 100 * (_used(other) - used) / self.seconds for other, used in before.items()
            }
        return self._loads.pop(pid)


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
