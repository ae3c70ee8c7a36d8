"""Use of an attempt's devices on one node since the last check.

* GPUs: the samples that the agent writes to ``spool/system.jsonl``. A rank that waits in a
  collective of NCCL keeps its GPU busy.
* CPU slots, and GPUs without recent samples: the processor time of every process below the
  launcher, with that of its ended children.

Not here: the samples (``worker.devices.sampling``).
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Final

from lockstep.domain.kinds.devices import named
from lockstep.domain.life import attempt
from lockstep.domain.training import metrics
from lockstep.engine.launcher.files import last_lines
from lockstep.system.processes import ProcessKey, ProcessSnapshot, stat_fields
from lockstep.system.untrusted import Untrusted

_IDLE_CORE: Final = 0.05
"""Part of a core up to which a process is idle: one that only polls a file or a socket."""
_IDLE_GPU_PERCENT: Final = 1.0
_SAMPLES_SECONDS: Final = 30.0
"""Age of samples that count. The agent takes one every ten seconds."""
_TIMES: Final = slice(11, 15)
"""utime, stime, cutime and cstime among the fields of ``/proc/PID/stat`` from the third on."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class DeviceUse:
    """Answers whether the devices are in use. Called by one thread."""

    def __init__(self, folder: Path, *, device_kind: str):
        self._samples = None if named(device_kind).is_slot else Untrusted(folder)
        self._checked_at = time.time()
        self._spent = _cpu_seconds()

    def is_busy(self) -> bool:
        """Return whether a device was in use since the last call."""
        before, self._checked_at = self._checked_at, time.time()
        spent_before, self._spent = self._spent, _cpu_seconds()
        elapsed = max(1e-3, self._checked_at - before)
        if self._samples is not None:
            since = self._checked_at - max(elapsed, _SAMPLES_SECONDS)
            percent = _gpu_percent(self._samples, since)
            if percent is not None:
                return percent > _IDLE_GPU_PERCENT
        # Of a process that was not there before, all its time is new.
        used = (seconds - spent_before.get(key, 0.0) for key, seconds in self._spent.items())
        return max(used, default=0.0) > _IDLE_CORE * elapsed


def _cpu_seconds() -> dict[ProcessKey, float]:
    """Return the processor time of each process below this one."""
    spent = {}
    for found in ProcessSnapshot.take().descendants(os.getpid()):
        with contextlib.suppress(OSError):  # it has ended
            spent[found.key] = sum(map(int, stat_fields(found.key.pid)[_TIMES])) / _TICKS
    return spent


def _gpu_percent(samples: Untrusted, since: float) -> float | None:
    """Return the largest use of a GPU in the samples since then, or None without any."""
    largest = None
    for line in reversed(last_lines(samples, attempt.SYSTEM)):
        try:
            record = metrics.decode(line, now=0.0, default_step=0)
        except ValueError:  # the first line may be cut
            continue
        if record.time < since:
            break
        for name, value in record.values.items():
            if name.endswith("/gpu_utilization_percent"):
                largest = max(largest or 0.0, value)
    return largest
