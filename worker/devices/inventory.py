"""Devices of this node: its GPUs, or slots of its CPU.

GPUs are read through NVML, which needs no CUDA context and no GPU memory. A node without GPUs
offers *CPU slots*: devices of kind and type ``cpu``, one rank each. Each has an equal part of the
host's memory.

Not here: the holders of devices (``storage.attempts.placing``), and measurements
(``worker.devices.sampling``).
"""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pynvml
import structlog

from lockstep.storage.attempts.nodes import DeviceInfo

log = structlog.get_logger(__name__)

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
    found = gpus()
    if found:
        return found
    slots = max(CPU_SLOTS_MIN, os.cpu_count() or 1) if cpu_slots is None else cpu_slots
    memory_bytes = host_bytes() // max(1, slots)
    return [
        DeviceInfo(index=index, kind="cpu", type="cpu", memory_bytes=memory_bytes)
        for index in range(slots)
    ]


def host_bytes(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Memory of this host, or of the container if it has a limit."""
    total = int(psutil.virtual_memory().total)
    try:
        limit = (cgroup / "memory.max").read_text().strip()
    except OSError:
        return total
    return total if limit == "max" else min(total, int(limit))


def gpus() -> list[DeviceInfo]:
    """NVIDIA GPUs in NVML's order (by PCI bus); empty where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        log.info("no NVIDIA driver found: this node offers CPU slots", nvml=str(error))
        return []
    try:
        return [_gpu(index) for index in range(pynvml.nvmlDeviceGetCount())]
    finally:
        pynvml.nvmlShutdown()


def _gpu(index: int) -> DeviceInfo:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return DeviceInfo(
        index=index,
        kind="cuda",
        type=_text(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
    )


def _text(value: str | bytes) -> str:
    """NVML's bindings answered bytes before version 12."""
    return value.decode() if isinstance(value, bytes) else value
