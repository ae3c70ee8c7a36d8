"""Detection of a rank that is slower than the others, which then wait for it in every step.

Ranks that share a step take equally long for it; the slow one waits least. Time outside the phase
``communication`` is a rank's own work, so the heartbeats suffice and the ranks need not
communicate. Evaluations and checkpoints are excluded: the ranks have unequal parts of them, above
all because rank 0 writes for all. On CUDA this covers the host's work, above all data, and not the
device's, which runs behind it. Under ``fsdp`` ranks wait for each other in forward and backward,
which count as work, so a slow rank is not detected.

Not here: a rank without progress (``engine.launcher.stall.stalls``).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.runtime import heartbeat
from lockstep.engine.runtime.heartbeat import HeartbeatReading


class Stragglers:
    """Compares the heartbeats of one node's ranks at the ends of a window.

    Called by the watch, in its thread.
    """

    def __init__(self, folder: Path, bounds: Bounds):
        self._folder, self._bounds = folder, bounds
        self._begun_at = 0.0
        self._begin: dict[int, HeartbeatReading | None] = {}
        self._warned_at = float("-inf")

    def poll(self, ranks: Mapping[int, int], now: float) -> str | None:
        """Return a sentence about the slow rank when a window has ended, or None.

        Two sentences are at least ``Bounds.straggler_silence_seconds`` apart.
        """
        # A window starts when all ranks train. The first one would include their set-up.
        begun = bool(self._begin) and all(
            reading is not None and reading.phase != "setup" for reading in self._begin.values()
        )
        if len(ranks) < 2 or (
            begun and now - self._begun_at < self._bounds.straggler_window_seconds
        ):
            return None
        begin, end = self._begin, {rank: heartbeat.read(self._folder, rank) for rank in ranks}
        self._begun_at, self._begin = now, end
        slow = slowest(begin, end, bounds=self._bounds) if begun else None
        if slow is None or now - self._warned_at < self._bounds.straggler_silence_seconds:
            return None
        self._warned_at = now
        return slow


def slowest(
    begin: Mapping[int, HeartbeatReading | None],
    end: Mapping[int, HeartbeatReading | None],
    *,
    bounds: Bounds,
) -> str | None:
    """Return the rank that was slower than the median of the others, and by how much.

    None if the difference is small.
    """
    work: dict[int, float] = {}
    for rank, last in end.items():
        first = begin.get(rank)
        if first is None or last is None or last.step - first.step < bounds.straggler_steps_min:
            return None
        left_out = last.not_compared_seconds - first.not_compared_seconds
        work[rank] = (last.since - first.since - left_out) / (last.step - first.step)
    rank = max(work, key=work.__getitem__)
    others = statistics.median_high(seconds for other, seconds in work.items() if other != rank)
    if work[rank] <= bounds.straggler_factor * others:
        return None
    return (
        f"rank {rank} is slower than the others: it works {work[rank]:.3g} s in each step, they "
        f"{others:.3g} s and then "
        "wait for it; compare its device, its node and its shard of the data"
    )
