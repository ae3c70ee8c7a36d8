"""Devices of this node: its GPUs, or slots of its CPU; and the names that it offers.

A node without GPUs offers *CPU slots*: devices of kind and type ``cpu``, one rank each. Each has an
equal part of the host's memory.

Not here: the drivers (``worker.devices.drivers``), the holders of devices
(``storage.attempts.placing``), and measurements (``worker.devices.sampling``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil

from lockstep.domain.kinds.offers import PAUSES, normal
from lockstep.storage.attempts.nodes import DeviceInfo
from lockstep.worker.devices.drivers import DRIVERS

CPU_SLOTS_MIN = 2
"""A machine with one core still runs jobs of several ranks, which share the core."""


def devices(cpu_slots: int | None) -> list[DeviceInfo]:
    """Every device of this node.

    Parameters
    ----------
    cpu_slots : int or None
        Slots of a node without GPUs; None takes the number of cores, at least 2. 0 on such a node
        offers nothing.
    """
    for driver in DRIVERS.values():
        if found := driver.devices():
            return found
    slots = max(CPU_SLOTS_MIN, os.cpu_count() or 1) if cpu_slots is None else cpu_slots
    memory_bytes = host_bytes() // max(1, slots)
    return [
        DeviceInfo(index=index, kind="cpu", type="cpu", memory_bytes=memory_bytes)
        for index in range(slots)
    ]


def offers(own: Iterable[str], found: Iterable[DeviceInfo]) -> list[str]:
    """Return what this node offers: its own names, and those that its agent finds."""
    python = f"python:{sys.version_info.major}.{sys.version_info.minor}"
    return normal([*own, python, PAUSES, *(f"kind:{device.kind}" for device in found)])


def host_bytes(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory of this host, or of the container if it has a limit."""
    total = int(psutil.virtual_memory().total)
    try:
        limit = (cgroup / "memory.max").read_text().strip()
    except OSError:
        return total
    return total if limit == "max" else min(total, int(limit))
