"""Detection of ranks that no longer make progress, and of the rank that the others wait for.

Ranks synchronise in every step, so one that hangs stops all of them within that step. The gang has
stalled when no rank has changed its phase for longer than the limit. The limit is long until a
first step is complete, and while a rank is in a phase that may take long (set-up, evaluation, a
checkpoint); afterwards it is a multiple of the median step.

Quiet time is summed between checks, and each gap counts at most for a moment. A machine that slept,
or a launcher that was stopped, therefore does not count its own absence as a stall.

Of a gang over several nodes only the ranks of this node are visible. While all of them may be
waiting for another node, on which a rank may be in a long phase, the limit is long as well: the
node of the hanging rank detects it sooner.

Waiting ranks are identified by a phase such as ``communication`` or by a stack that ends in torch's
collectives; the others wait for the remaining rank. If all wait, it is the rank that has entered
fewer collectives.

Not here: requests for stacks (``engine.launcher.stall.stacks``), kills (``engine.launcher.watch``).
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from lockstep.domain import limits
from lockstep.domain.spec.train import Stall as Limits
from lockstep.domain.training.layout import RankLayout
from lockstep.engine.launcher.stall.stacks import StackDump, StackRequest, Thread
from lockstep.engine.runtime import heartbeat
from lockstep.engine.runtime.heartbeat import HeartbeatReading

_LONG_PHASES: Final = frozenset({"setup", "eval", "checkpoint"})
_OWN_PHASES: Final = frozenset({"data", "other"})
"""Phases in which a rank never waits for others, under any strategy. Under fully sharded
strategies, ranks also communicate in forward and optimizer."""
_TENSOR: Final = "tensor"
"""Phase of a message within a tensor group."""
_NEIGHBOURS: Final = {"activation": ("an activation", -1), "gradient": ("a gradient", 1)}
"""Phases that wait for another stage: the message, and the place of that stage from this one."""
_COPIES_ALONE: Final = RankLayout(1)
_STEPS_KEPT: Final = 101
GAP_SECONDS_MAX: Final = 3.0
"""Longest time between two checks that counts as quiet."""
FRAMES_MAX: Final = 12
"""Frames per thread in the outcome; the job's log has all."""
_NAMED_MAX: Final = 3
_WARNED_AT: Final = 0.5
_RANKS_NAMED_MAX: Final = 8
_COLLECTIVE_PARTS: Final = ("torch/distributed/", "engine/runtime/ranks.py")


@dataclass(frozen=True)
class RankProgress:
    """State of one rank in a gang without progress."""

    rank: int
    reading: HeartbeatReading | None
    quiet_seconds: float
    """Time since the rank entered its phase."""
    answer: StackDump

    @property
    def phase(self) -> str:
        return "setup" if self.reading is None else self.reading.phase

    @property
    def waits(self) -> bool:
        """True if the phase and the stacks show that the rank waits for others."""
        if self.answer.state in "TDX":  # Stopped or waiting for a device: it could not continue.
            return False
        if self.phase in ("communication", _TENSOR, *_NEIGHBOURS):
            return True
        main = self._main()
        return main is not None and any(
            part in frame.file for frame in main.frames[:4] for part in _COLLECTIVE_PARTS
        )

    def sentence(self) -> str:
        """``rank 3 has been in data for 64 s, at dataset.py line 41 in __getitem__``."""
        where = self.answer.where(self._main())
        place = "" if where is None else f", at {where}"
        stopped = {
            "T": " (its process was stopped)",
            "D": " (its process waits for a disk or device)",
        }
        state = stopped.get(self.answer.state, "")
        return (
            f"rank {self.rank} has been in {self.phase} for {self.quiet_seconds:.0f} "
            f"s{place}{state}"
        )

    def excerpt(self, *, frames_max: int | None = None) -> str:
        """Return the stacks as text."""
        head = f"rank {self.rank}, {self.phase} for {self.quiet_seconds:.0f} s:"
        return self.answer.excerpt(head, self._main(), frames_max=frames_max)

    def _main(self) -> Thread | None:
        if self.reading is None:
            return None
        own = (thread for thread in self.answer.threads if thread.pid == self.answer.pid)
        return next((thread for thread in own if thread.identity == self.reading.thread), None)


@dataclass(frozen=True)
class StallReport:
    """A gang without progress."""

    quiet_seconds: float
    limit_seconds: float
    views: tuple[RankProgress, ...]
    layout: RankLayout = _COPIES_ALONE

    @property
    def culprits(self) -> tuple[RankProgress, ...]:
        """Ranks that the others wait for; empty if they cannot be determined."""
        busy = tuple(view for view in self.views if not view.waits)
        if busy:
            return busy
        entered = [view.answer.collectives for view in self.views]
        known = [count for count in entered if count is not None]
        if len(known) == len(entered) and known and min(known) < max(known):
            return tuple(view for view in self.views if view.answer.collectives == min(known))
        return ()

    def sentence(self) -> str:
        """Return the description for the outcome."""
        culprits = self.culprits
        head = (
            f"no rank has made progress for {self.quiet_seconds:.0f} s (the limit is "
            f"{self.limit_seconds:.0f} s)"
        )
        if not culprits:
            return (
                f"{head}: all of them wait in a collective, because of another node or a lost "
                f"message{self._messages()}"
            )
        named = "; ".join(view.sentence() for view in culprits[:_NAMED_MAX])
        more = f"; so have {len(culprits) - _NAMED_MAX} more" if len(culprits) > _NAMED_MAX else ""
        waiting = [str(view.rank) for view in self.views if view not in culprits]
        rest = (
            f"; rank {', '.join(waiting)} waits"
            if len(waiting) == 1
            else f"; {len(waiting)} ranks wait"
        )
        return f"{head}: {named}{more}{rest if waiting else ''}{self._messages()}"

    def _messages(self) -> str:
        """Name the ranks that wait for other parts of their copy of the model, and the messages."""
        waiting: dict[tuple[str, str], list[str]] = {}
        for view in self.views:
            if view.phase == _TENSOR:
                found = "", "a message of their tensor group"
            elif view.phase in _NEIGHBOURS:
                stage = self.layout.place(view.rank).stage
                message, other = _NEIGHBOURS[view.phase]
                found = f" of stage {stage}", f"{message} of stage {stage + other}"
            else:
                continue
            waiting.setdefault(found, []).append(str(view.rank))
        said = [
            f"rank {ranks[0]}{of} waits for {what}"
            if len(ranks) == 1
            else f"ranks {', '.join(ranks)}{of} wait for {what}"
            for (of, what), ranks in waiting.items()
        ]
        return f" ({'; '.join(said)})" if said else ""

    def excerpt(self) -> str:
        """Return the stacks, the cause first, truncated to the limit of an outcome."""
        culprits = self.culprits
        order = [*culprits, *(view for view in self.views if view not in culprits)]
        return "\n".join(view.excerpt(frames_max=FRAMES_MAX) for view in order)[
            : limits.TRACEBACK_CHARS_MAX
        ]


class StallDetector:
    """Detector of stalls from the heartbeats of one node's ranks.

    All methods are called by the watch, in its thread.

    Parameters
    ----------
    folder : Path
        The attempt's folder.
    allowed : Limits
        ``train.stall`` of the spec.
    poll_seconds : float
        Interval of reading the heartbeats.
    nodes : int
        Number of nodes of the gang.
    layout : RankLayout
        Of its ranks.
    """

    def __init__(
        self,
        folder: Path,
        allowed: Limits,
        *,
        poll_seconds: float,
        nodes: int = 1,
        layout: RankLayout = _COPIES_ALONE,
    ):
        self._folder, self._allowed, self._poll_seconds = folder, allowed, poll_seconds
        self._nodes, self._layout = nodes, layout
        self._readings: dict[int, HeartbeatReading | None] = {}
        self._polled_at: float | None = None
        self._quiet_seconds = 0.0
        self._step = 0
        self._stepped_at = 0.0
        self._step_seconds: deque[float] = deque(maxlen=_STEPS_KEPT)
        self._reported = False
        self._asking: StackRequest | None = None

    def poll(self, pids: Mapping[int, int], now: float) -> StallReport | None:
        """Return the stall, once there is one and the stacks of every rank were collected.

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
        readings = {rank: heartbeat.read(self._folder, rank) for rank in pids}
        moved = readings != self._readings
        self._readings = readings
        self._note_step(now)
        if moved:
            self._quiet_seconds, self._asking, self._reported = 0.0, None, False
            return None
        self._quiet_seconds += min(gap, GAP_SECONDS_MAX)
        limit_seconds = self.limit_seconds()
        if self._quiet_seconds < limit_seconds:
            return None
        if self._asking is None:
            self._asking = StackRequest(self._folder, pids)
            self._asking.start()
        if self._asking.is_alive():
            return None
        views = self._views(self._asking.answers)
        return StallReport(self._quiet_seconds, limit_seconds, views, self._layout)

    def warning(self) -> str | None:
        """Return a sentence, once per stall, halfway to the limit: a user may still intervene."""
        limit_seconds = self.limit_seconds()
        if self._reported or self._quiet_seconds < _WARNED_AT * limit_seconds:
            return None
        self._reported = True
        phases = ", ".join(
            f"rank {rank} is in {reading.phase if reading else 'setup'}"
            for rank, reading in sorted(self._readings.items())[:_RANKS_NAMED_MAX]
        )
        return (
            f"no rank has made progress for {self._quiet_seconds:.0f} s: {phases}; after "
            f"{limit_seconds:.0f} s the run is killed"
        )

    def limit_seconds(self) -> float:
        """Return the current limit of time without progress."""
        allowed = self._allowed
        median = statistics.median(self._step_seconds) if self._step_seconds else 0.0
        limit_seconds = max(allowed.min_seconds, allowed.factor * median)
        long = any(
            reading is None or reading.phase in _LONG_PHASES or reading.step == reading.first_step
            for reading in self._readings.values()
        ) or (
            self._nodes > 1
            and not any(
                reading and reading.phase in _OWN_PHASES for reading in self._readings.values()
            )
        )
        return max(limit_seconds, allowed.first_step_seconds) if long else limit_seconds

    def _note_step(self, now: float) -> None:
        # The slowest rank's step counts, so the first step, which includes compilations, is
        # complete on every rank.
        steps = [
            reading.step
            for reading in self._readings.values()
            if reading is not None and reading.step > reading.first_step
        ]
        step = min(steps) if len(steps) == len(self._readings) else 0
        if step > self._step:
            if self._step:
                self._step_seconds.append((now - self._stepped_at) / (step - self._step))
            self._step, self._stepped_at = step, now

    def _views(self, answers: Mapping[int, StackDump]) -> tuple[RankProgress, ...]:
        now = monotonic()
        return tuple(
            RankProgress(
                rank,
                reading,
                now - reading.since if reading else self._quiet_seconds,
                answers.get(rank, StackDump(0, "S")),
            )
            for rank, reading in sorted(self._readings.items())
        )
