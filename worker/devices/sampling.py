"""Samples of an attempt's resource use, every few seconds: each GPU, each rank and the machine.

==========================================  ===========================================================================
``system/node<N>/…`` (N: the node's rank)   ``cpu_percent`` (of all cores: 100 is all of them), ``memory_bytes`` (not
                                            available), ``disk_free_bytes`` (where the attempts'
                                            folders are), ``network_received_bytes_per_second``,
                                            ``network_sent_bytes_per_second`` (all interfaces but
                                            the loopback): of the whole machine, with other programs
``system/rank<R>/…`` (R: the global rank)   ``cpu_percent`` (100 is one core) and ``rss_bytes`` of the rank and all
                                            processes below it; memory that they share is counted in
                                            each of them
the same, of the rank's GPU, through NVML   ``gpu_utilization_percent``, ``gpu_memory_bytes``, ``gpu_power_watts``,
                                            ``gpu_temperature_celsius``
==========================================  ===========================================================================

Values that cannot be measured are left out: a node without NVIDIA's driver has no series of GPUs,
and a rate needs two samples.

Not here: schedule and storage of samples (``worker.upload.system``), and the inventory
(``worker.devices.inventory``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import psutil
import pydantic_core

from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import AssignmentFile
from lockstep.domain.training.metrics import SYSTEM
from lockstep.system.processes import ProcessKey, ProcessSnapshot
from lockstep.system.untrusted import MODEL_BYTES_MAX
from lockstep.worker.devices.drivers import DRIVERS
from lockstep.worker.folders import Folder

_LOOPBACK: Final = "lo"


class Sampler:
    """Measures one attempt on one node.

    ``sample`` may take as long as the driver does, and is asked by one thread.
    """

    def __init__(
        self,
        folder: Folder,
        assignment: AssignmentFile,
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._folder = folder
        self._node = f"{SYSTEM}node{assignment.node_rank}"
        self._devices = assignment.devices
        self._driver = DRIVERS.get(assignment.device_kind)
        self._clock = clock
        self._sampled_at: float | None = None
        self._node_before: tuple[float, float, int, int] | None = None
        self._cpu_before: dict[ProcessKey, float] = {}

    def sample(self) -> dict[str, float]:
        """Everything that can be measured now, by the names of its series."""
        now = self._clock()
        elapsed = None if self._sampled_at is None else max(1e-3, now - self._sampled_at)
        values = self._of_node(elapsed)
        ranks = ranks_in(self._folder)
        values |= self._of_ranks(ranks, elapsed)
        values |= self._of_devices(sorted(ranks))
        self._sampled_at = now
        return values

    def _of_devices(self, ranks: list[int]) -> dict[str, float]:
        """Return the measurements of each rank's device; empty without a driver."""
        if self._driver is None:
            return {}
        # One device for each rank, in their order.
        mine = dict(zip(ranks, self._devices, strict=False))
        found = self._driver.measure(list(mine.values()))
        return {
            f"{SYSTEM}rank{rank}/{name}": value
            for rank, index in mine.items()
            for name, value in found.get(index, {}).items()
        }

    def _of_node(self, elapsed: float | None) -> dict[str, float]:
        memory = psutil.virtual_memory()
        values = {
            f"{self._node}/memory_bytes": float(memory.total - memory.available),
            f"{self._node}/disk_free_bytes": float(psutil.disk_usage(str(self._folder.path)).free),
        }
        times = psutil.cpu_times()
        # A guest's time is in user's and nice's already; waiting for a disk is not computing.
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        idle = times.idle + getattr(times, "iowait", 0.0)
        nics = [
            nic for name, nic in psutil.net_io_counters(pernic=True).items() if name != _LOOPBACK
        ]
        received, sent = sum(nic.bytes_recv for nic in nics), sum(nic.bytes_sent for nic in nics)
        if self._node_before is not None and elapsed is not None:
            total_before, idle_before, received_before, sent_before = self._node_before
            spent = total - total_before
            if spent > 0:
                values[f"{self._node}/cpu_percent"] = _percent(spent - (idle - idle_before), spent)
            # An interface that has gone takes its count with it.
            values[f"{self._node}/network_received_bytes_per_second"] = (
                max(0, received - received_before) / elapsed
            )
            values[f"{self._node}/network_sent_bytes_per_second"] = (
                max(0, sent - sent_before) / elapsed
            )
        self._node_before = total, idle, received, sent
        return values

    def _of_ranks(self, ranks: Mapping[int, int], elapsed: float | None) -> dict[str, float]:
        process_snapshot = ProcessSnapshot.take()
        values: dict[str, float] = {}
        cpu_now: dict[ProcessKey, float] = {}
        for rank, pid in ranks.items():
            root = process_snapshot.by_pid.get(pid)
            if root is None or not root.alive:
                continue
            used = _used(process.key for process in (root, *process_snapshot.descendants(pid)))
            name = f"{SYSTEM}rank{rank}"
            values[f"{name}/rss_bytes"] = float(sum(rss for _, rss in used.values()))
            seconds = {key: cpu for key, (cpu, _) in used.items()}
            # Of a rank that was not there before, all that it has used since it began falls into an
            # unknown time.
            if elapsed is not None and root.key in self._cpu_before:
                spent = sum(
                    max(0.0, cpu - self._cpu_before.get(key, 0.0)) for key, cpu in seconds.items()
                )
                values[f"{name}/cpu_percent"] = 100 * spent / elapsed
            cpu_now |= seconds
        self._cpu_before = cpu_now
        return values


def ranks_in(folder: Folder) -> dict[int, int]:
    """The pids of the ranks on this node, by global rank; nothing before they were started."""
    try:
        text = folder.files.read(attempt.RANKS, most=MODEL_BYTES_MAX)
        document = pydantic_core.from_json(text or b"")
        return {int(each["rank"]): int(each["pid"]) for each in document["ranks"]}
    except (OSError, ValueError, TypeError, LookupError):
        return {}  # not there yet, or something that user code put there


def _used(keys: Iterable[ProcessKey]) -> dict[ProcessKey, tuple[float, int]]:
    """Seconds of CPU and resident bytes of each process that is still there."""
    used: dict[ProcessKey, tuple[float, int]] = {}
    for key in keys:
        try:
            process = psutil.Process(key.pid)
            with process.oneshot():
                times = process.cpu_times()
                used[key] = (times.user + times.system, process.memory_info().rss)
        except psutil.Error:
            continue
    return used


def _percent(part: float, whole: float) -> float:
    return 100 * min(1.0, max(0.0, part / whole))
