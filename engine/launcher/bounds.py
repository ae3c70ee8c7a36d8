"""Waits and sizes of the launcher that the assignment does not define.

They come in as one value, so that tests decide them. Not here: the grace of a stop and the exit
stall, which belong to the attempt (``domain.life.attempt.AssignmentFile``).
"""

from __future__ import annotations

from dataclasses import dataclass

from lockstep.domain import limits


@dataclass(frozen=True)
class Bounds:
    """Waits in seconds, sizes in bytes."""

    watch_seconds: float = 0.05
    """Interval of the watch's checks of ranks, ``fence`` and ``stop``."""
    monitor_seconds: float = 0.1
    """Interval of the main thread's checks of the ranks."""
    failure_grace_seconds: float = 3.0
    """From the first failing rank to SIGKILL of the others. They get SIGTERM at once; one that
    waits in a collective for the dead rank never acts on it, and a gang must be down within 5 s."""
    rendezvous_seconds: float = 900.0
    """Nodes of one attempt find each other within this time: one may fetch a checkpoint for minutes
    longer than another. A node that is gone is noticed by its lease, well before. One node finds
    itself at once."""
    linger_seconds: float = 0.5
    """After the ranks' own end: a child that still holds a pipe (``tee`` behind a wrapper) may
    finish its lines."""
    drain_seconds: float = 2.0
    """After the sweep every pipe is at its end; a descriptor handed to a foreign process must not
    hold the result."""
    stuck_seconds: float = 5.0
    """From a kill to the end of the main thread's waiting; beyond it the watch ends the attempt
    without it."""
    heartbeat_seconds: float = 1.0
    """The ranks' pulses are read this often; a stall is noticed this late."""
    left_behind_seconds: float = 2.0
    """Once rank 0 has left for a stop, the others have this long: it leaves ahead of them only if
    they hang."""
    straggler_window_seconds: float = 60.0
    """Ranks are compared over windows of this length."""
    straggler_steps_min: int = 10
    """Minimum number of steps in a window."""
    straggler_factor: float = 1.2
    """A rank that works this much longer than the median of the others is named."""
    straggler_silence_seconds: float = 1800.0
    """From one such warning to the next."""
    line_bytes_max: int = limits.LOG_LINE_BYTES_MAX
    state_seconds: float = 5.0
    """Of a line that is rewritten, such as a progress bar, one state is kept this often, and its
    last."""
    segment_bytes: int = limits.LOG_SEGMENT_BYTES
    backlog_bytes_max: int = limits.LOG_BACKLOG_BYTES_MAX
    log_bytes_per_second: int = limits.LOG_BYTES_PER_SECOND_MAX
    log_window_seconds: float = 10.0
    """The rate is held over windows of this length: a burst within one, such as a model printed
    layer by layer, is kept."""
    held_lines: int = 200
    held_bytes: int = 64 * 1024
    """Of a stream that is held back, so many of its newest lines or characters are kept in memory.
    """
    flood_silence_seconds: float = 600.0
    """From one notice of a flood to the next."""
    flood_pause_seconds: float = 0.001
    """After each read of a stream that is held back. A pipe holds 64 KiB, so that its writer still
    makes 60 MB a second, and the launcher leaves the processor to the ranks."""
    read_bytes: int = 64 * 1024
    """One read of a pipe: as much as a pipe holds."""
    tail_chars: int = limits.TRACEBACK_CHARS_MAX
    """The end of each rank's stderr that is kept for the outcome."""
