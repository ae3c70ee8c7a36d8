"""Rate limit of the ranks' output.

All of it is logged, unless the ranks write faster than it can be stored or read.

Time is divided into windows of ten seconds. In each window the node's ranks may write a fixed
amount to the log. Later output is held back, stream by stream: the newest lines are kept in memory,
the others counted. At the window's end a line reports the number of omitted lines, and the newest
follow it. A flood therefore shows its head and its tail, the last lines before an exit are always
there, and ranks never wait. A stream that has used less than an equal part of the window is not
held back because of the others.

The same applies while more is unstored than the node may keep: a window then continues until there
is space.

Not here: pipes and files (``engine.launcher.output.streams``, ``engine.launcher.output.segments``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lockstep.domain import limits
from lockstep.domain.training.memory import in_words
from lockstep.engine.launcher.bounds import Bounds


class TimedLine(NamedTuple):
    """A line and when it was read, in seconds since the epoch."""

    time: float
    text: str

    @property
    def size_bytes(self) -> int:
        """Size in the log, where a character of another alphabet has up to four bytes."""
        return len(self.text.encode("utf-8", "surrogatepass"))


class RateLimit:
    """One stream of one rank: its use of the window, and its lines that are held back."""

    def __init__(self) -> None:
        self.used_bytes = 0
        self.newest: deque[TimedLine] = deque()
        self.newest_bytes = 0
        self.left_lines = 0
        self.left_bytes = 0

    @property
    def held(self) -> bool:
        """True if lines are held back; later ones must queue behind them."""
        return bool(self.newest)


class RateLimits:
    """Quota of one node's ranks. Not thread-safe.

    ``warn`` is called with messages for the user.
    """

    def __init__(self, bounds: Bounds, warn: Callable[[str], None], *, clock: Callable[[], float]):
        self._bounds = bounds
        self._warn = warn
        self._clock = clock
        self._flows: list[RateLimit] = []
        self._began: float | None = None
        self._used_bytes = 0
        self._flooded = False
        """True if lines were held back in this window."""
        self._full = False
        """True if the limit of unstored output was a reason."""
        self._limited_at: float | None = None
        self._is_limited = False
        self._left_lines = 0
        self._left_bytes = 0

    def flow(self) -> RateLimit:
        """Add a stream and return its limit."""
        self._flows.append(RateLimit())
        return self._flows[-1]

    def take(self, flow: RateLimit, lines: Sequence[TimedLine], *, full: bool) -> list[TimedLine]:
        """Return the new lines of a stream that are logged now; the others are held back.

        Parameters
        ----------
        flow : RateLimit
        lines : sequence of TimedLine
        full : bool
            True if more is unstored than allowed.
        """
        budget = self._bounds.log_bytes_per_second * self._bounds.log_window_seconds
        share = budget / len(self._flows)
        passed: list[TimedLine] = []
        for line in lines:
            cost = line.size_bytes + limits.LOG_STAMP_BYTES
            fits = self._used_bytes + cost <= budget or flow.used_bytes + cost <= share
            if fits and not full and not flow.held:
                flow.used_bytes += cost
                self._used_bytes += cost
                passed.append(line)
            else:
                self._hold(flow, line, full)
        return passed

    def leave_out(self, flow: RateLimit, lines: int, bytes_: int) -> None:
        """Count omitted lines of a stream that is held back."""
        flow.left_lines += lines
        flow.left_bytes += bytes_

    def turn(self, *, full: bool) -> bool:
        """Start a new window if the old one is over and there is space.

        Return whether held-back lines may be logged now.
        """
        now = self._clock()
        if self._began is not None and (
            full or now - self._began < self._bounds.log_window_seconds
        ):
            return False
        if not self._flooded and self._is_limited:
            self._end()
        self._began, self._used_bytes, self._flooded = now, 0, False
        for flow in self._flows:
            flow.used_bytes = 0
        return True

    def release(self, flow: RateLimit) -> list[TimedLine]:
        """Return the held-back lines of a stream, after a line that reports the omitted ones."""
        lines = list(flow.newest)
        if flow.left_lines:
            why = (
                "they arrived faster than they could be stored"
                if self._full
                else f"the job writes faster than {in_words(self._bounds.log_bytes_per_second)}/s"
            )
            marker = f"… {flow.left_lines:,} lines ({in_words(flow.left_bytes)}) left out: {why} …"
            lines.insert(0, TimedLine(lines[0].time, marker))
        self._left_lines += flow.left_lines
        self._left_bytes += flow.left_bytes
        flow.newest.clear()
        flow.newest_bytes = flow.left_lines = flow.left_bytes = 0
        flow.used_bytes += sum(line.size_bytes + limits.LOG_STAMP_BYTES for line in lines)
        return lines

    def close(self) -> None:
        """End the last flood. All streams must be at their end and released."""
        if self._is_limited:
            self._end()

    def _hold(self, flow: RateLimit, line: TimedLine, full: bool) -> None:
        # Lines that queue behind others are held for the reason of those.
        self._full = full or (self._flooded and self._full)
        self._flooded = True
        flow.newest.append(line)
        flow.newest_bytes += line.size_bytes
        while len(flow.newest) > 1 and (
            len(flow.newest) > self._bounds.held_lines
            or flow.newest_bytes > self._bounds.held_bytes
        ):
            left = flow.newest.popleft()
            flow.newest_bytes -= left.size_bytes
            self.leave_out(flow, 1, left.size_bytes)
        now = self._clock()
        if not self._is_limited and (
            self._limited_at is None or now - self._limited_at >= self._bounds.flood_silence_seconds
        ):
            self._is_limited, self._limited_at = True, now
            rate = in_words(self._bounds.log_bytes_per_second)
            why = (
                "the job writes lines faster than they can be stored"
                if full
                else f"the job writes more than {rate} per second"
            )
            self._warn(f"logs limited: {why}; the log marks where lines are left out, and how many")

    def _end(self) -> None:
        self._is_limited = False
        self._warn(
            f"logs no longer limited: {self._left_lines:,} lines ({in_words(self._left_bytes)}) "
            f"were left out"
        )
        self._left_lines = self._left_bytes = 0
