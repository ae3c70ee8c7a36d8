"""``lockstep down``: end the service that runs in a home, from another terminal.

Not here: the order in which its programs end (``client.local.up``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from typing import Final

from lockstep.client.errors import ClientError, ExitCode, TimedOutError
from lockstep.client.local.home import Home
from lockstep.domain.life.grace import AGENT_END_SECONDS_MAX
from lockstep.system import processes

DOWN_SECONDS: Final = AGENT_END_SECONDS_MAX + 60.0
"""Longer than the limits of all programs together, if ``LOCKSTEP_TIMINGS_SCALE`` is at most 1."""
TOLD_AFTER_SECONDS: Final = 5.0
POLL_SECONDS: Final = 0.1


def run(home: Home, *, tell: Callable[[str], None]) -> int:
    """Ask ``lockstep up`` to end and wait until its home is free."""
    running = home.running()
    if not home.is_locked():
        if running is not None:
            with contextlib.suppress(OSError):  # a disk that has become read-only
                home.run_file.unlink()
            tell(
                f"no service runs in {home.folder}; the last one (process {running.pid}) did not "
                f"shut down cleanly"
            )
        else:
            tell(f"no service runs in {home.folder}")
        return ExitCode.OK
    if running is None:
        raise ClientError(
            f"the service in {home.folder} is starting or stopping",
            next_step="try again in a moment",
        )
    tell(f"stopping the service at {running.url}; running jobs continue at the next `lockstep up`")
    started = time.monotonic()
    # The holder of the lock removes an older run.json before it writes its own. The id in the file
    # is therefore that of the holder.
    with contextlib.suppress(ProcessLookupError):  # it has just ended by itself
        os.kill(running.pid, signal.SIGTERM)
    told = False
    while home.is_locked():
        if not told and time.monotonic() - started > TOLD_AFTER_SECONDS:
            tell(
                "waiting for the last checkpoints of running jobs; to lose them and end at once: "
                f"kill -9 {running.pid}"
            )
            told = True
        if time.monotonic() - started > DOWN_SECONDS:
            raise TimedOutError(
                f"the service (process {running.pid}) still runs {DOWN_SECONDS:g} s after the "
                f"request to stop",
                next_step=(
                    f"check {home.logs}, then run: kill -9 {running.pid} (its programs end with it)"
                ),
            )
        time.sleep(POLL_SECONDS)
    # The lock is free a moment before its holder has ended.
    while _runs(running.pid) and time.monotonic() - started < DOWN_SECONDS:
        time.sleep(POLL_SECONDS)
    tell(f"stopped after {time.monotonic() - started:.1f} s")
    return ExitCode.OK


def _runs(pid: int) -> bool:
    """Return whether a process still runs; a zombie does not."""
    found = processes.process(pid)
    return found is not None and found.alive
