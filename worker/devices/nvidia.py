"""NVIDIA GPUs, read through NVML, which needs no CUDA context and no GPU memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pynvml
import structlog

from lockstep.storage.attempts.nodes import DeviceInfo

log = structlog.get_logger(__name__)


class Nvidia:
    """Driver of the kind ``cuda``. Devices have NVML's order, by PCI bus."""

    def devices(self) -> list[DeviceInfo]:
        try:
            with _opened():
                return [_device(index) for index in range(pynvml.nvmlDeviceGetCount())]
        except _NoDriverError as error:
            log.info("no NVIDIA driver found", nvml=str(error))
            return []

    def used_bytes(self, devices: Sequence[int]) -> dict[int, int]:
        try:
            with _opened():
                return {
                    index: int(
                        pynvml.nvmlDeviceGetMemoryInfo(
                            pynvml.nvmlDeviceGetHandleByIndex(index)
                        ).used
                    )
                    for index in devices
                }
        except _NoDriverError:
            return {}
        except pynvml.NVMLError as error:
            log.warning(
                "the memory of the devices cannot be read", devices=list(devices), nvml=str(error)
            )
            return {}

    def measure(self, devices: Sequence[int]) -> dict[int, dict[str, float]]:
        try:
            with _opened():
                return {index: _measured(index) for index in devices}
        except _NoDriverError:
            return {}


class _NoDriverError(Exception):
    """NVML does not answer."""


@contextmanager
def _opened() -> Iterator[None]:
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        raise _NoDriverError(str(error)) from error
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _device(index: int) -> DeviceInfo:
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


def _measured(index: int) -> dict[str, float]:
    questions: dict[str, Callable[[object], float]] = {
        "gpu_utilization_percent": lambda gpu: pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
        "gpu_memory_bytes": lambda gpu: pynvml.nvmlDeviceGetMemoryInfo(gpu).used,
        "gpu_power_watts": lambda gpu: pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
        "gpu_temperature_celsius": lambda gpu: pynvml.nvmlDeviceGetTemperature(
            gpu, pynvml.NVML_TEMPERATURE_GPU
        ),
    }
    values: dict[str, float] = {}
    try:
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
    except pynvml.NVMLError:
        return values
    for name, ask in questions.items():
        try:
            values[name] = float(ask(gpu))
        except pynvml.NVMLError:
            continue  # Not every device and partition answers everything.
    return values
