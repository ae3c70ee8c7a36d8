"""Output of rank 0 during training: the metrics spool, the events, and short log lines.

Every line of a spool is written at once (``engine.runtime.spool``), so a reader that follows the
file, or opens it after a crash, has everything up to the last step. This module reads no values
from a device; ``engine.loop.report`` does, one step late.

Not here: uploads (``worker.upload.metrics``), definitions of the series
(``domain.training.metrics``).
"""

from __future__ import annotations

import contextlib
import ctypes
import resource
import sys
import threading
import time
from pathlib import Path
from typing import Any, Final, Literal

import torch

from lockstep.domain.life.attempt import EVENTS, METRICS, EngineEvent
from lockstep.domain.training import metrics
from lockstep.engine.runtime.device import is_accelerator, module_of
from lockstep.engine.runtime.spool import Spool

_LINES_SECONDS: Final = 1.0
"""Minimum interval between log lines about steps; the spool has every step."""

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""As glibc's ``malloc.h`` has them."""
_LARGEST_ON_HEAP_BYTES: Final = 32 << 20
"""The most that glibc takes."""
_KEPT_BYTES: Final = 2**31 - 1
"""The most that fits its int."""

EventKind = Literal[
    "running",
    "plan",
    "resumed",
    "initialized",
    "checkpoint",
    "checkpoint_skipped",
    "memory",
    "warning",
]


class Telemetry:
    """Rank 0's files and lines. On other ranks (``writes`` False) all of it does nothing."""

    def __init__(self, folder: Path, *, writes: bool):
        self._metrics: Spool | None = None
        self._events: Spool | None = None
        self._logged_at = -_LINES_SECONDS
        self._one_event = threading.Lock()
        """The thread that writes checkpoints reports events, too."""
        if writes:
            self._metrics = Spool(folder / METRICS)
            self._events = Spool(folder / EVENTS)

    def record(self, step: int, values: dict[str, float]) -> None:
        """One line of the metrics spool. ``step`` counts from 1."""
        if self._metrics is not None and values:
            self._metrics.write(metrics.encode(metrics.StepValues(step, time.time(), values)))

    def event(self, kind: EventKind, **data: Any) -> None:
        """One line of the events spool."""
        if self._events is not None:
            with self._one_event:
                self._events.write(
                    EngineEvent(kind=kind, time=time.time(), data=data).model_dump_json()
                )

    def log_line(self, text: str) -> None:
        """A line in the job's log."""
        if self._metrics is not None:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()

    def warn(self, message: str) -> None:
        """An event of its own, and a line in the job's log."""
        self.event("warning", message=message)
        self.log_line(f"warning: {message}")

    def line_is_due(self, *, always: bool) -> bool:
        """Return whether a line about this step is due; if so, start the next interval."""
        now = time.monotonic()
        if self._metrics is None or not (always or now - self._logged_at >= _LINES_SECONDS):
            return False
        self._logged_at = now
        return True

    def close(self) -> None:
        for file in (self._metrics, self._events):
            if file is not None:
                file.close()


def peak_bytes(device: torch.device) -> float:
    """Most memory this rank has used so far.

    Of the device's allocator, or of the process on the CPU.
    """
    if is_accelerator(device):
        return float(module_of(device).max_memory_allocated(device))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0  # Linux counts KiB.


def forget_peak(device: torch.device) -> None:
    """Reset ``peak_bytes``, which the copies of the model in the checks before step 1 raise."""
    if is_accelerator(device):
        module_of(device).reset_peak_memory_stats(device)
        return
    # Return freed memory to the system first, or it would still count. Both calls exist on Linux
    # with glibc only; where they
    # are missing, the peak is that of the start.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")


def keep_freed_memory(device: torch.device) -> None:
    """Keep the memory that a step frees for the next step.

    Otherwise the process returns it and the system zeroes it again.

    glibc returns the end of its heap when more than a threshold is free, and takes large blocks
    from the system each time; it adjusts both thresholds by the first sizes that it sees. If a
    step's gradients lie above them, every step faults in hundreds of pages again: 5 % of a step of
    a small network, or nothing, by chance. On CUDA the host holds little. Linux with glibc only, as
    above.
    """
    if not is_accelerator(device):
        with contextlib.suppress(OSError, AttributeError):
            libc = ctypes.CDLL(None)
            libc.mallopt(_M_MMAP_THRESHOLD, _LARGEST_ON_HEAP_BYTES)
            libc.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
