"""Detection of a script that writes nothing while its devices are idle.

A script has no heartbeat. It is silent once, for ``script.silence_seconds``, no rank of this node
has written to its output, the file of its metrics and its TensorBoard files have not changed, and
no device was in use. That is reported, and not a reason to end it: a script may wait for data.

1. Each second the bytes of the output and the states of the files are compared with those before.
   A line without its end, such as a progress bar, counts.
2. The devices are checked ten times within the limit.
3. At the limit the ranks are asked for their stacks, once; then the event is there.
4. When the script writes, or its devices work, the silence is over, which is another event.

A silence that ended by itself may be this script's habit, so the limit doubles after it: the
number of events is bounded. Quiet time is summed as for stalls (``engine.launcher.stall.stalls``).

Not here: the use of devices (``engine.launcher.stall.device_use``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from lockstep.domain import limits
from lockstep.domain.life import attempt
from lockstep.engine.launcher.stall.stacks import StackDump, StackRequest, Thread
from lockstep.engine.launcher.stall.stalls import FRAMES_MAX, GAP_SECONDS_MAX
from lockstep.system.untrusted import Untrusted

_CHECKS: Final = 10
_CHECK_SECONDS_MAX: Final = 30.0
_NAMED_MAX: Final = 3
_STATES: Final = {
    "T": "was stopped by a signal",
    "D": "waits for a disk or device",
}
"""Letters of the kernel for a process that cannot answer."""


@dataclass(frozen=True)
class SilenceEvent:
    """Begin or end of a silence."""

    kind: Literal["silent", "output_again"]
    data: dict[str, Any]
    """Of the job's event: ``message``, ``node``, ``ranks`` and ``seconds``, and of a begin
    ``stacks``."""
    excerpts: dict[int, str]
    """Stacks for the log, by rank."""


class SilenceDetector:
    """Detector of silences of one node's ranks. All methods are called by the watch, in its thread.

    Parameters
    ----------
    folder : Path
        The attempt's folder.
    silence_seconds : float
        ``script.silence_seconds`` of the spec.
    node : str
        Name of the node.
    output_bytes : callable
        Returns the number of bytes that the ranks have written.
    is_busy : callable
        Returns whether a device was in use since its last call.
    poll_seconds : float
        Interval of the comparisons.
    """

    def __init__(
        self,
        folder: Path,
        silence_seconds: float,
        *,
        node: str,
        output_bytes: Callable[[], int],
        is_busy: Callable[[], bool],
        poll_seconds: float,
    ):
        self._folder, self._limit_seconds, self._node = folder, silence_seconds, node
        self._files = Untrusted(folder)
        self._output_bytes, self._is_busy = output_bytes, is_busy
        self._poll_seconds = poll_seconds
        self._check_seconds = min(_CHECK_SECONDS_MAX, silence_seconds / _CHECKS)
        self._written: tuple[object, ...] = ()
        self._polled_at: float | None = None
        self._checked_at = float("-inf")
        self._quiet_seconds = 0.0
        self._asking: StackRequest | None = None
        self._reported = False

    def poll(self, pids: Mapping[int, int], now: float) -> SilenceEvent | None:
        """Return the event, if a silence has begun or ended.

        Parameters
        ----------
        pids : mapping of int to int
            Process ids of the running ranks, by rank.
        now : float
            Seconds of ``time.monotonic()``.
        """
        if self._polled_at is not None and now - self._polled_at < self._poll_seconds:
            return None
        gap = 0.0 if self._polled_at is None else now - self._polled_at
        self._polled_at = now
        self._quiet_seconds += min(gap, GAP_SECONDS_MAX)
        if self._has_written():
            return self._end(pids, "The script writes again")
        if self._has_worked(now):
            return self._end(pids, "The script's devices are in use again, without output so far,")
        if self._reported or self._quiet_seconds < self._limit_seconds:
            return None
        return self._begin(pids)

    def _has_written(self) -> bool:
        before = self._written
        with contextlib.suppress(OSError):  # a folder was removed while it was listed
            self._written = (self._output_bytes(), *_states(self._files))
        return self._written != before

    def _has_worked(self, now: float) -> bool:
        if now - self._checked_at < self._check_seconds:
            return False
        self._checked_at = now
        return self._is_busy()

    def _begin(self, pids: Mapping[int, int]) -> SilenceEvent | None:
        if self._asking is None:
            self._asking = StackRequest(self._folder, pids)
            self._asking.start()
        if self._asking.is_alive():
            return None
        self._reported = True
        answers = sorted(self._asking.answers.items())
        excerpts = {rank: _excerpt(rank, dump) for rank, dump in answers}
        short = "\n".join(_excerpt(rank, dump, FRAMES_MAX) for rank, dump in answers)
        message = (
            f"No output and no metric for {_in_words(self._quiet_seconds)}, and the devices are "
            f"idle: {_places(answers)}"
        )
        if any(dump.threads for _, dump in answers):
            message += ". The log has the stacks"
        stacks = short[: limits.TRACEBACK_CHARS_MAX]
        return SilenceEvent("silent", self._data(pids, message, stacks=stacks), excerpts)

    def _end(self, pids: Mapping[int, int], what: str) -> SilenceEvent | None:
        reported, seconds = self._reported, self._quiet_seconds
        self._reported, self._asking = False, None
        if not reported:
            self._quiet_seconds = 0.0
            return None
        self._limit_seconds *= 2
        message = f"{what} after {_in_words(seconds)} of silence"
        data = self._data(pids, message)
        self._quiet_seconds = 0.0
        return SilenceEvent("output_again", data, {})

    def _data(self, pids: Mapping[int, int], message: str, **more: str) -> dict[str, Any]:
        return {
            "message": f"{message}.",
            "node": self._node,
            "ranks": sorted(pids),
            "seconds": round(self._quiet_seconds, 1),
            **more,
        }


def _states(files: Untrusted) -> Iterator[tuple[str, int, int]]:
    """Yield name, size and time of each file to which a script writes metrics."""
    if (spool := files.status(attempt.METRICS)) is not None:
        yield attempt.METRICS, spool.st_size, spool.st_mtime_ns
    for entry in files.walk(attempt.TENSORBOARD, most=limits.TENSORBOARD_FILES_MAX):
        yield entry.name, entry.bytes, entry.modified_ns


def _main(dump: StackDump) -> Thread | None:
    """Return the main thread: the last one that faulthandler prints of a process.

    Of the rank, if it is a Python, or of the first process below it.
    """
    if not dump.threads:
        return None
    pids = [thread.pid for thread in dump.threads]
    pid = dump.pid if dump.pid in pids else pids[0]
    return next(thread for thread in reversed(dump.threads) if thread.pid == pid)


def _place(rank: int, dump: StackDump) -> str:
    where = dump.where(_main(dump))
    if where is not None:
        return f"rank {rank} is at {where}"
    state = _STATES.get(dump.state)
    if state is not None:
        return f"the process of rank {rank} {state}"
    return f"rank {rank} has no stacks, because it runs no Python with Lockstep's handler"


def _places(answers: list[tuple[int, StackDump]]) -> str:
    named = "; ".join(_place(rank, dump) for rank, dump in answers[:_NAMED_MAX])
    more = len(answers) - _NAMED_MAX
    return named + (f"; {more} more ranks are silent" if more > 0 else "")


def _excerpt(rank: int, dump: StackDump, frames_max: int | None = None) -> str:
    return dump.excerpt(f"{_place(rank, dump)}:", _main(dump), frames_max=frames_max)


def _in_words(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} s"
