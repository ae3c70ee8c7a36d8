"""Decimation of a job's metrics.

All points are stored, unless it writes faster than a chart can show.

The rate is that of the spool's growth, not of the upload: a backlog after an outage of the database
is no flood and is stored whole. Above the limit the points of every k-th step are kept, with k a
power of two, so a smaller k keeps a superset; of the newest step everything, so a page shows the
job's progress; of each piece the first line with a value that is no number, because users
search for NaN; and definitions of series.

Not here: reads and storage (``worker.upload.metrics``).
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from lockstep.domain import limits
from lockstep.domain.training.definitions import looks_defining
from lockstep.worker.upload.files.lines import Line

WINDOW_SECONDS: Final = 10.0
"""The rate is a mean over this long: a burst below ten seconds' worth of points is stored whole."""
SAMPLE_SECONDS: Final = 0.5
SILENCE_SECONDS: Final = 600.0
"""From one notice of a limit to the next: a job that writes just about as fast as it may would fill
its page with them."""
_POINT_BYTES_MAX: Final = 100
"""A point counts at least so many bytes of the spool: long lines of few points, or of none, cost as
much to read."""
_STEP: Final = re.compile(rb'"step"\s*:\s*(\d{1,18})')


class Decimator:
    """Decimation of one job's spool. ``warn`` receives messages for the job's owner."""

    def __init__(self, warn: Callable[[str], None], *, clock: Callable[[], float] = time.monotonic):
        self._warn = warn
        self._clock = clock
        self._samples: deque[tuple[float, int]] = deque()
        self._point_bytes = float(_POINT_BYTES_MAX)
        self._wanted = 1
        self._limited_at: float | None = None
        self._is_limited = False
        self._definitions_left = limits.METRIC_NAMES_PER_JOB_MAX
        """Lines of definitions that are kept in a flood: one for each name that a job may have."""
        self.keep_every = 1
        """Of so many steps one is stored."""
        self.left_out = 0
        """Lines, since the limit began."""

    def note_size(self, size: int) -> None:
        """Note how large the spool is now."""
        now = self._clock()
        samples = self._samples
        if samples and now - samples[-1][0] < SAMPLE_SECONDS:
            return
        samples.append((now, size))
        while len(samples) > 2 and samples[1][0] <= now - WINDOW_SECONDS:
            samples.popleft()
        since, size_then = samples[0]
        rate = (size - size_then) / self._point_bytes / max(WINDOW_SECONDS, now - since)
        self._wanted = 1
        while rate > limits.METRIC_POINTS_PER_SECOND_MAX * self._wanted:
            self._wanted *= 2
        if self._wanted > self.keep_every:
            self._limit(rate, now)

    def measured(self, bytes_read: int, points: int) -> None:
        """Note how many points lines of so many bytes had."""
        if points:
            self._point_bytes = min(float(_POINT_BYTES_MAX), max(1.0, bytes_read / points))

    def caught_up(self) -> None:
        """Note that all written lines are stored.

        Only now may k shrink: the backlog was written in a flood.
        """
        if self._wanted < self.keep_every:
            self.keep_every = self._wanted
            if self._wanted == 1:
                self.ended()

    def ended(self) -> None:
        """Report the omitted points, at the end of the flood or of the spool."""
        if self._is_limited:
            self._is_limited = False
            now = "" if self.keep_every > 1 else "; every step is stored again"
            self._warn(f"metrics no longer limited: {self.left_out:,} lines were dropped{now}")
        self.left_out = 0

    def kept(
        self, lines: Sequence[Line], last_step: int | None, *, newest: bool
    ) -> tuple[list[tuple[Line, int | None]], int | None]:
        """Return the lines of a piece to store, with their steps, and the step of its last line.

        Definitions of series have no step.

        Parameters
        ----------
        lines : sequence of Line
        last_step : int or None
            Step of the line before the first; a line without a step takes the next one.
        newest : bool
            True if no line has been written after these yet.
        """
        steps: list[int | None] = []
        step = last_step or 0
        for line in lines:
            if looks_defining(line.text):
                steps.append(None)
                continue
            found = _STEP.search(line.text)
            step = step + 1 if found is None else int(found[1])
            steps.append(step)
        kept: list[tuple[Line, int | None]] = []
        keep_every, newest_step, strange = self.keep_every, step if newest else -1, False
        for line, at in zip(lines, steps, strict=True):
            if at is None:
                if self._definitions_left:
                    self._definitions_left -= 1
                    kept.append((line, None))
            elif at % keep_every == 0 or at == newest_step:
                kept.append((line, at))
            elif not strange and (b"NaN" in line.text or b"Infinity" in line.text):
                strange = True
                kept.append((line, at))
        self.left_out += len(lines) - len(kept)
        return kept, step if lines else last_step

    def _limit(self, rate: float, now: float) -> None:
        began = self.keep_every == 1
        self.keep_every = self._wanted
        if began and (self._limited_at is None or now - self._limited_at >= SILENCE_SECONDS):
            self._is_limited, self._limited_at = True, now
            self._warn(
                f"metrics limited: the job writes {rate:,.0f} points per second or more, and at "
                f"most {limits.METRIC_POINTS_PER_SECOND_MAX:,} are stored; only every n-th step "
                "and the newest one are kept"
            )
