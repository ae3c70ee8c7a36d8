"""Whether a GPU's memory is back: the driver returns it some moments after its last process has died.

A device that is leased again too early has less memory than it shows, and the next job runs out of it. What was used
before the launch is the measure, because other programs may be on the device, too.

Not here: ending the processes (``worker.agent.sweeping``).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import pynvml
import structlog

log = structlog.get_logger(__name__)

Used = Mapping[int, int]
"""Bytes in use, by the device's index."""

SLACK_BYTES = 64 * 2**20
"""What may be missing: another program's use of a device is never quite still."""
WAIT_SECONDS = 30.0
"""After this long it is somebody else's; waiting on would keep the device from everybody."""


def used_bytes(devices: Sequence[int]) -> Used:
    """Memory in use on each of these GPUs; nothing where no driver answers."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        return {
            index: int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByIndex(index)).used)
            for index in devices
        }
    except pynvml.NVMLError as error:
        log.warning("the memory of the devices cannot be read", devices=list(devices), nvml=str(error))
        return {}
    finally:
        pynvml.nvmlShutdown()


class Return:
    """One attempt's wait for the memory of its devices.

    Parameters
    ----------
    before : callable
        What was used before the attempt was launched; empty where that is not known, and then nothing is waited for.
    used : callable, optional
        As :func:`used_bytes`.
    """

    def __init__(self, before: Callable[[], Used], used: Callable[[Sequence[int]], Used] = used_bytes):
        self._before, self._used = before, used
        self._deadline: float | None = None

    def over(self) -> bool:
        """Whether the devices may be given to another. To be asked until it is so, once no process is left."""
        before = self._before()
        if not before:
            return True
        if self._deadline is None:
            self._deadline = time.monotonic() + WAIT_SECONDS
        now = self._used(list(before))
        missing = {index: used - before[index] for index, used in now.items() if used > before[index] + SLACK_BYTES}
        if not missing:
            return True
        if time.monotonic() < self._deadline:
            return False
        log.warning("memory of devices was not returned; they are given back without it", missing_bytes=missing)
        return True
