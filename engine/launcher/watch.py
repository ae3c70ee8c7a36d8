"""Thread that checks the ranks and the agent's requests, and kills.

Several times a second, in this order:

1. Record which ranks have ended, with their exit code and the time.
2. ``fence``: past its deadline the agent may have lost the lease, and another node may train this
job soon. SIGKILL.
3. ``stop`` (or SIGTERM to the launcher): the engine's ranks read the file and leave after a
checkpoint; a script's ranks get SIGTERM. After the grace period, SIGKILL.
4. One rank has exited with 0 and others have not followed in time: SIGKILL.
5. No rank makes progress: collect their stacks, then SIGKILL. A script that is silent is reported
and continues.
6. One rank has failed (recorded in 1): the main thread sends the others SIGTERM, after
:meth:`GangWatch.settle`; a little later, SIGKILL. A rank of the engine that exits with 0 before the
end of the run has failed too: its peers may wait for it for half an hour.
7. ``gang_failed``: a rank of another node has failed. The same.

The first of 2 to 7 is the *cause* of the end and stays it; later ones are its consequences. Only
the fence overrules it, because results after the fence do not count.

SIGKILL goes to every descendant of the launcher, repeatedly until the ranks are gone. The watch
never waits for the main thread: if that hangs, ``on_stuck`` ends the attempt from this thread.

Not here: the meaning of the end (``engine.launcher.outcome``), detection of stalls
(``engine.launcher.stall.stalls``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import AssignmentFile, FenceFile, StopFile, StopNotice
from lockstep.domain.life.grace import SaveTime, StoppedJob, grace_of
from lockstep.domain.training.layout import RankLayout
from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.facts import Cause, Exit, Facts
from lockstep.engine.launcher.files import read_model
from lockstep.engine.launcher.signals import end_of, signal_in
from lockstep.engine.launcher.stall.device_use import DeviceUse
from lockstep.engine.launcher.stall.silence import SilenceDetector, SilenceEvent
from lockstep.engine.launcher.stall.stalls import StallDetector
from lockstep.engine.launcher.stall.stragglers import Stragglers
from lockstep.engine.launcher.start import processes
from lockstep.engine.launcher.start.gang import RankProcess
from lockstep.engine.runtime import heartbeat
from lockstep.system.processes import boottime
from lockstep.system.untrusted import Untrusted


class WarnUser(Protocol):
    """Writes into the job's log."""

    def __call__(self, text: str, *, rank: int = -1) -> None:
        """Write lines of the launcher itself, about a rank or the gang."""


class GangWatch(threading.Thread):
    """Thread ``watch`` (see the module). ``warn`` receives messages for the user before the end."""

    def __init__(
        self,
        assignment: AssignmentFile,
        folder: Path,
        bounds: Bounds,
        *,
        log_line: WarnUser,
        warn: Callable[[str], None],
        report: Callable[[SilenceEvent], None],
        output_bytes: Callable[[], int],
        may_follow: Callable[[Exit], bool],
        on_stuck: Callable[[], None],
    ):
        super().__init__(name="watch", daemon=True)
        self.facts = Facts()
        self._assignment = assignment
        self._folder = folder
        self._files = Untrusted(folder)
        self._bounds = bounds
        self._log_line = log_line
        self._warn = warn
        self._may_follow = may_follow
        self._on_stuck = on_stuck
        self._processes: dict[int, RankProcess] = {}
        train = assignment.spec.train
        self._stalls = (
            StallDetector(
                folder,
                train.stall,
                poll_seconds=bounds.heartbeat_seconds,
                nodes=assignment.node_count,
                layout=RankLayout.of(
                    assignment.world_size, train.parallel.tensor_size, train.parallel.stages
                ),
            )
            if train
            else None
        )
        self._stragglers = Stragglers(folder, bounds) if train else None
        self._silence = self._silence_detector(output_bytes)
        self._report = report
        self._kill_at = float("inf")
        self._killed_at: float | None = None
        self._first_left_at = float("inf")
        self._terminated = self._tears_down = False
        self._sigterm = threading.Event()
        self._over = threading.Event()
        self._lock = threading.Lock()

    def _silence_detector(self, output_bytes: Callable[[], int]) -> SilenceDetector | None:
        script = self._assignment.spec.script
        if script is None or script.silence_seconds is None:
            return None
        return SilenceDetector(
            self._folder,
            script.silence_seconds,
            node=self._assignment.node_name,
            output_bytes=output_bytes,
            is_busy=DeviceUse(self._folder, device_kind=self._assignment.device_kind).is_busy,
            poll_seconds=self._bounds.heartbeat_seconds,
        )

    def begin(self, ranks: Mapping[int, RankProcess]) -> None:
        """Start to watch the ranks. Called by the main thread."""
        with self._lock:
            self._processes = dict(ranks)
            self.facts.ranks = tuple(sorted(ranks))

    def request_stop(self) -> None:
        """Request a stop after SIGTERM to the launcher. Safe in a signal handler."""
        self._sigterm.set()

    def must_not_start(self) -> bool:
        """Return whether the attempt was ended before its ranks were started."""
        self.poll()
        return self.facts.cause is not None

    def settle(self) -> None:
        """Wait for a rank that the failed ones may have lost. Called before others are ended.

        Its connections close before it can be found dead, and a shell, or Python at its end, may
        still run for a while. Its own end could not be told from the launcher's signal.
        """
        until = time.monotonic() + self._bounds.settle_seconds
        self.poll()
        while (
            self.facts.cause == "failure"
            and self.facts.running()
            and all(map(self._may_follow, tuple(self.facts.exits)))
            and time.monotonic() < until
        ):
            time.sleep(self._bounds.watch_seconds)
            self.poll()
        with self._lock:
            self._note_exits()
            self._tears_down = True

    def let_programs_end(self) -> None:
        """Wait within the grace of a stop for what a rank's first process has left in its group.

        It has got the signal, too: a shell ends at once, and its program saves meanwhile.
        """
        self.poll()
        groups = {process.pid for process in self._processes.values()}
        while self.facts.cause == "stop" and self._killed_at is None:
            left = processes.living_descendants(os.getpid())
            if groups.isdisjoint(map(processes.group_of, left)):
                return
            time.sleep(self._bounds.watch_seconds)
        self.facts.grace_over |= self.facts.cause == "stop" and not self.facts.left_behind

    def finish(self) -> Facts:
        """Record the last exits and stop watching. Called once the ranks have ended."""
        self._over.set()
        if self.is_alive() and threading.current_thread() is not self:
            self.join()
        with self._lock:
            self._note_exits()
        return self.facts

    def run(self) -> None:
        """Watch until :meth:`finish`."""
        while not self._over.wait(self._bounds.watch_seconds):
            try:
                self.poll()
            except Exception:  # noqa: BLE001 - unwatched, the attempt would outlive its fence
                with contextlib.suppress(OSError):  # the disk under its own output may be full
                    traceback.print_exc()
            if (
                self._killed_at is not None
                and time.monotonic() > self._killed_at + self._bounds.stuck_seconds
            ):
                self._on_stuck()
                return

    def poll(self) -> None:
        """Run one round of checks. Both threads may call this."""
        with self._lock:
            now = time.monotonic()
            self._note_exits()
            self._check_fence(now)
            if (
                self.facts.running() or not self.facts.ranks
            ):  # a stop after the end of the ranks changes nothing
                self._check_stop(now)
                self._check_leavers(now)
                self._check_heartbeats(now)
                self._check_gang(now)
            if now >= self._kill_at:
                self._kill(now)

    def _note_exits(self) -> None:
        ended: dict[int, int] = {}
        # Again after each that has ended: a rank may have died since it was asked, and its peer
        # because of it.
        while more := self._ended_now(self.facts.running() - ended.keys()):
            ended |= more
        # Of ranks found dead together, a killed one comes first: its peers fail because of it.
        for rank, code in sorted(
            ended.items(), key=lambda entry: (entry[1] == -signal.SIGTERM, entry[1] >= 0, entry[0])
        ):
            is_first = self.facts.cause is None
            torn_down = not (is_first or self._is_its_own(code))
            exit_ = Exit(
                rank, code, time.time(), torn_down, early=code == 0 and self._is_needed(rank)
            )
            self.facts.exits.append(exit_)
            if (
                rank == 0
                and exit_.failed
                and self.facts.cause == "stop"
                and self._killed_at is None
            ):
                # Independent of the others' state: they may fail because of this before the next
                # check.
                self.facts.left_behind = self._assignment.spec.kind == "train"
            if exit_.failed and is_first:
                self._end_by("failure", time.monotonic() + self._bounds.failure_grace_seconds)
                if len(self.facts.ranks) > 1:
                    self._log_line(f"Rank {rank} {end_of(code)}; killing the others.")

    def _ended_now(self, ranks: Iterable[int]) -> dict[int, int]:
        """Return the exit codes of those of the ranks that have ended."""
        codes = {rank: self._processes[rank].poll() for rank in ranks}
        return {rank: code for rank, code in codes.items() if code is not None}

    def _is_its_own(self, code: int) -> bool:
        """Return whether the launcher cannot have caused this end of a rank after the first."""
        if self._killed_at is not None:
            return False
        wrapped = self._assignment.spec.kind == "script"
        is_untouched = self.facts.cause == "failure" and not self._tears_down
        return is_untouched or signal_in(code, wrapped=wrapped) == signal.SIGKILL

    def _is_needed(self, rank: int) -> bool:
        """Return whether a rank of the engine has more to do.

        A script's rank may leave at any time.
        """
        if self._assignment.spec.kind != "train":
            return False
        reading = heartbeat.read(self._folder, rank)
        return reading is None or reading.phase != "done"

    def _check_fence(self, now: float) -> None:
        fence = read_model(self._files, attempt.FENCE, FenceFile)
        if fence is None or self.facts.cause == "fence" or boottime() < fence.deadline_boottime:
            return
        self._log_line("The node's lease was not renewed in time: killing the ranks.")
        self.facts.cause = "fence"
        self._kill_at = now

    def _check_stop(self, now: float) -> None:
        stop = self._wanted_stop()
        if stop is None:
            return
        before, self.facts.stop = self.facts.stop, stop
        if before is not None and stop.grace_seconds < before.grace_seconds:
            self._kill_at = min(self._kill_at, now + stop.grace_seconds)
        if before is None and self.facts.cause is None:
            self._log_line(
                f"Stopping ({stop.reason}): the ranks have a grace period of "
                f"{stop.grace_seconds:g} s."
            )
            self._end_by("stop", now + stop.grace_seconds)
        if before is None or stop.grace_seconds != before.grace_seconds:
            self._explain(stop)
        if (
            self.facts.cause == "stop"
            and self._assignment.spec.kind == "script"
            and not self._terminated
        ):
            self._terminate(self._assignment.spec.stop_signal)

    def _wanted_stop(self) -> StopFile | None:
        stop = read_model(self._files, attempt.STOP, StopFile) or self.facts.stop
        if stop is None and self._sigterm.is_set():
            job = StoppedJob(
                self._assignment.spec.kind,
                read_model(self._files, attempt.SAVE_TIME, SaveTime),
                self._assignment.stop_grace_seconds,
                self._assignment.spec.stop_grace_seconds,
            )
            stop = StopFile(reason="shutdown", grace_seconds=grace_of(job, "shutdown").seconds)
            with contextlib.suppress(
                OSError
            ):  # a full disk: the ranks are then killed without a request
                self._files.write(attempt.STOP, stop.model_dump_json().encode())
        return stop

    def _explain(self, stop: StopFile) -> None:
        """Write the file that ``$LOCKSTEP_STOP`` names: a signal has no reason."""
        notice = StopNotice(reason=stop.reason, deadline=time.time() + stop.grace_seconds)
        with contextlib.suppress(OSError):  # a full disk: the signal is sent nevertheless
            self._files.write(attempt.STOP_NOTICE, notice.model_dump_json().encode())

    def _terminate(self, name: str) -> None:
        """Send a signal to each rank's session, as torchrun would: once, and with ranks."""
        number = signal.Signals[f"SIG{name}"]
        for rank in self.facts.running():
            self._terminated = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._processes[rank].pid, number)

    def _check_leavers(self, now: float) -> None:
        if not self.facts.exits or not self.facts.running():
            return
        if self.facts.left_behind:
            self._kill_at = min(self._kill_at, now + self._bounds.left_behind_seconds)
        elif self.facts.cause is None:
            self._first_left_at = min(self._first_left_at, now)
            if now - self._first_left_at >= self._assignment.exit_stall_seconds:
                waiting = ", ".join(map(str, self.facts.running()))
                self._log_line(
                    f"Rank {self.facts.exits[0].rank} has exited and rank {waiting} is still "
                    f"running: killing it."
                )
                self._end_by("exit_stall", now)

    def _check_heartbeats(self, now: float) -> None:
        pids = {rank: self._processes[rank].pid for rank in self.facts.running()}
        if self.facts.cause is not None or not pids:
            return
        if self._silence is not None and (event := self._silence.poll(pids, now)) is not None:
            self._report(event)
        if self._stalls is None or self._stragglers is None:
            return
        stalled = self._stalls.poll(pids, now)
        for message in (self._stragglers.poll(pids, now), self._stalls.warning()):
            if message is not None:
                self._warn(message)
        if stalled is None:
            return
        self._log_line(f"Stalled: {stalled.sentence()}.")
        for view in stalled.views:
            self._log_line(view.excerpt(), rank=view.rank)
        self.facts.stalled = stalled
        self._end_by("stall", now)

    def _check_gang(self, now: float) -> None:
        if (
            self._assignment.node_count > 1
            and self.facts.cause is None
            and self._files.exists(attempt.GANG_FAILED)
        ):
            self._log_line("A rank of another node failed; ending the ranks of this node.")
            self.facts.gang_failed = True
            self._end_by("failure", now + self._bounds.failure_grace_seconds)
            self._tears_down = True
            self._terminate("TERM")

    def _end_by(self, cause: Cause, kill_at: float) -> None:
        self.facts.cause = cause
        self._kill_at = min(self._kill_at, kill_at)

    def _kill(self, now: float) -> None:
        if self.facts.running() and self._killed_at is None and self.facts.cause == "stop":
            self.facts.grace_over = not self.facts.left_behind
            why = (
                "The grace period is over"
                if self.facts.grace_over
                else "Rank 0 has exited before the others"
            )
            self._log_line(f"{why}: killing the ranks.")
        if self._killed_at is None:
            self._killed_at = now
        processes.kill_descendants()
