"""Waits and sizes of the launcher that the assignment does not define.

They are passed as one value, so tests can use others. Not here: the grace period of a stop and the
exit stall, which belong to the attempt (``domain.life.attempt.AssignmentFile``).
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
    """Time from the first failing rank to SIGKILL of the others. They get SIGTERM before,
    but a rank that waits in a collective for the failed one never handles it. A gang must end
    within 5 s.
    """
    settle_seconds: float = 1.0
    """Part of it before that SIGTERM in which a rank that the failed ones may have lost is awaited.
    The shutdown of torch takes so long where the cores are busy."""
    rendezvous_seconds: float = 900.0
    """Time limit of the rendezvous of an attempt's nodes: one node may fetch a checkpoint for
    minutes longer than another. A lost node is detected earlier, by its lease. A single node needs
    no rendezvous."""
    linger_seconds: float = 0.5
    """Time after the end of the ranks in which a child that still holds a pipe (``tee`` behind a
    wrapper) may finish its lines."""
    drain_seconds: float = 2.0
    """Time limit for reading the pipes after the sweep. Every pipe should be at its end by then; a
    descriptor that was passed to a foreign process must not delay the result."""
    stuck_seconds: float = 5.0
    """Time limit of the main thread from a kill to its end; later the watch ends the attempt
    without it."""
    heartbeat_seconds: float = 1.0
    """Interval of reading the ranks' heartbeats, and the delay in detecting a stall."""
    left_behind_seconds: float = 2.0
    """Time that the others have once rank 0 has exited for a stop. Rank 0 exits before them only if
    they hang."""
    straggler_window_seconds: float = 60.0
    """Length of the windows over which ranks are compared."""
    straggler_steps_min: int = 10
    """Minimum number of steps in a window."""
    straggler_factor: float = 1.2
    """Ratio to the median of the other ranks' work time above which a rank is reported."""
    straggler_silence_seconds: float = 1800.0
    """Minimum time between two warnings about stragglers."""
    line_bytes_max: int = limits.LOG_LINE_BYTES_MAX
    state_seconds: float = 5.0
    """Interval at which the state of a rewritten line, such as a progress bar, is logged. Its last
    state is always logged."""
    segment_bytes: int = limits.LOG_SEGMENT_BYTES
    backlog_bytes_max: int = limits.LOG_BACKLOG_BYTES_MAX
    log_bytes_per_second: int = limits.LOG_BYTES_PER_SECOND_MAX
    log_window_seconds: float = 10.0
    """Length of the windows of the rate limit. A burst within one, such as a model printed layer by
    layer, is kept."""
    held_lines: int = 200
    held_bytes: int = 64 * 1024
    """Number of the newest lines and bytes of a held-back stream that are kept in memory."""
    flood_silence_seconds: float = 600.0
    """Minimum time between two notices of a flood."""
    flood_pause_seconds: float = 0.001
    """Pause after each read of a held-back stream, which leaves the processor to the ranks. A pipe
    holds 64 KiB, so its writer can still write 60 MB per second."""
    read_bytes: int = 64 * 1024
    """Size of one read of a pipe: the capacity of a pipe."""
    tail_chars: int = limits.TRACEBACK_CHARS_MAX
    """Length of the end of each rank's stderr that is kept for the outcome."""
