"""Checkpoints during training: a copy between two steps, and a thread that writes it.

1. *Copy.* The state of step t is copied into host memory that is kept from one save to the next;
training waits for this alone. On CUDA the memory is page-locked and the copy runs on a stream of
its own, and the next *update* waits for it; forward and backward of the next step, which change no
parameter, overlap it. Each rank copies the part of the state that it holds.
2. *Write.* A thread of rank 0 writes, syncs and renames (``engine.checkpoints.checkpoint``),
reports the checkpoint once it is durable, and only then deletes older ones. If other ranks hold
parts of the state, a thread of each sends them (``engine.checkpoints.streams``).

At most one is written at a time. A second one would need a second copy of the state, and more
requests do not make a slow disk faster. A save that starts before the last one has finished waits
for it, and the job receives one warning.

Errors of the thread are raised in the rank's next :meth:`Background.poll`,
:meth:`Background.finish` or save. Waiting for the thread has no timeout of its own: a disk that
never answers is a stall and is detected as one.

Not here: the files (``engine.checkpoints.checkpoint``), the contents of the state
(``engine.checkpoints.state``).
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.checkpoints.checkpoint import CheckpointMetric, Part, SavedCheckpoint
from lockstep.engine.checkpoints.contents import State, scattered_in
from lockstep.engine.checkpoints.host_copy import HostCopy
from lockstep.engine.checkpoints.streams import Receiver, send
from lockstep.engine.runtime.errors import EngineError, reason_of
from lockstep.engine.runtime.ranks import Ranks
from lockstep.system.files import FULL

_WAIT_WARNED_SECONDS: Final = 1.0
"""A save that had to wait longer for the one before it is worth a warning."""
FULL_DISK_SECONDS: Final = 120.0
"""A checkpoint waits so long for space on a full disk before the attempt fails. Without the wait a
disk that is full for a moment would cost every step since the checkpoint before."""
_FULL_POLL_SECONDS: Final = 1.0
ABANDON_SECONDS: Final = 2.0
"""Time that a failing rank grants to an unfinished checkpoint: the whole gang must be gone within
five seconds."""
_NO_PINNED_MEMORY: Final = "out of memory"
"""Part of CUDA's message if page-locked memory is exhausted; torch has no exception type for it."""


Work = Callable[[State, float], object]
"""Takes the state, and the time at which its copy began."""


class Background:
    """Work on the state of a step, by a thread on a copy or by the rank itself.

    Parameters
    ----------
    device : torch.device
        Where the state lives.
    background : bool
        Whether training may continue meanwhile.
    warn : callable
        Called with a sentence for the job's owner; from any thread.
    """

    def __init__(self, device: torch.device, *, background: bool, warn: Callable[[str], None]):
        self._background, self._warn = background, warn
        self._copies = HostCopy(device)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._warned_of_waiting = False

    def poll(self) -> None:
        """Raise errors of the thread, and let the device finish its copy.

        Call before each update.
        """
        self._copies.hold()
        self._raise()

    def finish(self) -> None:
        """Wait until the last checkpoint is durable.

        Raises
        ------
        EngineError
            ``storage``, if it could not be written.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self._raise()

    def abandon(self) -> None:
        """Wait a moment for an unfinished checkpoint, then give it up: this rank has failed."""
        if self._thread is not None:
            self._thread.join(ABANDON_SECONDS)

    def _start(self, step: int, state: State, work: Work) -> None:
        """Let a thread work on a copy of ``state``; without memory for one, work at once."""
        self._wait_for_the_last(step)
        started = time.monotonic()
        if self._background:
            try:
                taken = self._copies.take(state)
            except (RuntimeError, MemoryError) as error:
                if reason_of(error) is not Reason.OUT_OF_MEMORY and _NO_PINNED_MEMORY not in str(
                    error
                ):
                    raise
                self._copies.give_back()
                self._background = False
                self._warn(
                    f"no memory for a copy of the state: training waits while checkpoints are "
                    f"written ({error})"
                )
        if not self._background:
            work(state, started)
            return
        self._thread = threading.Thread(
            target=self._run, args=(work, taken, started), name=f"checkpoint-{step}", daemon=True
        )
        self._thread.start()

    def _wait_for_the_last(self, step: int) -> None:
        started = time.monotonic()
        self.finish()
        waited = time.monotonic() - started
        if waited > _WAIT_WARNED_SECONDS and not self._warned_of_waiting:
            self._warned_of_waiting = True
            self._warn(
                f"the checkpoint of step {step} waited {waited:.1f} s for the previous one: "
                "checkpoints are due faster than the disk can write them; raise "
                "checkpoint.every_steps"
            )

    def _run(self, work: Work, taken: State, started: float) -> None:
        try:
            self._copies.wait()
            work(taken, started)
        except BaseException as error:  # noqa: BLE001 - raised again in the rank's main thread
            self._failure = error

    def _raise(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


class StateSender(Background):
    """Parts of the checkpoints of one run, on a rank that sends them to rank 0.

    Parameters
    ----------
    ranks : Ranks
    background : bool
        Whether training may continue meanwhile.
    warn : callable
    """

    def __init__(self, ranks: Ranks, *, background: bool, warn: Callable[[str], None]):
        super().__init__(ranks.device, background=background, warn=warn)
        self._ranks = ranks

    def begin(self, step: int, state: State) -> None:
        """Send the parts of ``step`` while training continues; changeable after :meth:`poll`."""
        self._start(step, self._own(state), self._send)

    def write(self, state: State) -> None:
        """Send the parts, and wait until the checkpoint is durable or given up."""
        self.finish()
        self._send(state, time.monotonic())

    def _own(self, state: State) -> State:
        """Return what has parts of this rank, by the keys that decide the order of a copy."""
        return {key: scattered_in(value) for key, value in state.items()}

    def _send(self, state: State, _started: float) -> None:
        send(self._ranks, scattered_in(state))


class Saver(Background):
    """The checkpoints of one run, on the rank that writes them.

    Parameters
    ----------
    parent : Path
        Folder of the checkpoints.
    keep_last : int
    device : torch.device
        Where the state lives.
    background : bool
        Whether training may continue while a checkpoint is written.
    durable : callable
        Called with each checkpoint once it is durable; from the thread.
    warn : callable
        Called with a sentence for the job's owner; from any thread.
    full_disk_seconds : float
        Wait for space on a full disk.
    ranks : Ranks, optional
        Ranks that hold parts of the state. None if this rank has the whole state.
    """

    def __init__(
        self,
        parent: Path,
        *,
        keep_last: int,
        device: torch.device,
        background: bool,
        durable: Callable[[SavedCheckpoint], None],
        warn: Callable[[str], None],
        full_disk_seconds: float = FULL_DISK_SECONDS,
        ranks: Ranks | None = None,
    ):
        super().__init__(device, background=background, warn=warn)
        self._full_disk_seconds, self._ranks = full_disk_seconds, ranks
        self._parent, self._keep_last, self._durable = parent, keep_last, durable
        self.newest: SavedCheckpoint | None = None
        """The newest durable one."""

    def begin(
        self,
        step: int,
        state: State,
        *,
        measured: CheckpointMetric | None = None,
        collected_seconds: float = 0.0,
    ) -> None:
        """Save the state of ``step`` while training continues.

        The state may be changed after the next :meth:`poll`. ``collected_seconds`` is the time that
        its collection took; it is part of the duration of the save.

        Raises
        ------
        EngineError
            ``storage``, if the checkpoint before this one could not be written.
        """

        def save(taken: State, started: float) -> None:
            self._save(step, taken, measured, None, started - collected_seconds)

        self._start(step, state, save)

    def write(
        self,
        step: int,
        state: State,
        *,
        measured: CheckpointMetric | None = None,
        others: Mapping[str, Part] | None = None,
        collected_seconds: float = 0.0,
    ) -> SavedCheckpoint:
        """Save the state of ``step`` and wait until it is durable. Nothing is copied.

        Raises
        ------
        EngineError
            ``storage``, if this checkpoint, or the one before it, could not be written.
        """
        self.finish()
        started = time.monotonic() - collected_seconds
        return self._save(step, state, measured, others, started)

    def _save(
        self,
        step: int,
        state: State,
        measured: CheckpointMetric | None,
        others: Mapping[str, Part] | None,
        started: float,
    ) -> SavedCheckpoint:
        receiver = None if self._ranks is None else Receiver(self._ranks, scattered_in(state))

        def save() -> SavedCheckpoint:
            return checkpoint.save(
                self._parent, step, state, measured=measured, others=others, receiver=receiver
            )

        try:
            saved = self._with_room(step, save, receiver)
        except EngineError:
            self._release(receiver)
            raise
        self.newest = saved = replace(saved, seconds=time.monotonic() - started)
        self._durable(saved)  # First: a rank that has gone since does not make it less durable.
        self._release(receiver)
        try:
            checkpoint.prune(self._parent, saved, keep_last=self._keep_last)
        except OSError as error:
            self._warn(f"older checkpoints could not be deleted: {error}")
        return saved

    def _release(self, receiver: Receiver | None) -> None:
        if receiver is not None:
            receiver.answer(again=False)

    def _with_room(
        self, step: int, save: Callable[[], SavedCheckpoint], receiver: Receiver | None
    ) -> SavedCheckpoint:
        """Save, on a full disk once there is space again.

        Raises
        ------
        EngineError
            ``storage``, if there is none in time, or the disk fails for another reason.
        """
        deadline = time.monotonic() + self._full_disk_seconds
        warned = False
        while True:
            try:
                return save()
            except EngineError as error:
                cause = error.__cause__
                if not isinstance(cause, OSError) or cause.errno not in FULL:
                    raise
                if not warned and self._full_disk_seconds:
                    self._warn(
                        f"the disk is full: the checkpoint of step {step} waits for space, at most "
                        f"{self._full_disk_seconds:g} s"
                    )
                warned = True
                if not self._wait_for_room(deadline):
                    raise
                if receiver is not None:
                    receiver.answer(again=True)

    def _wait_for_room(self, deadline: float) -> bool:
        """Wait until a checkpoint as large as the last one fits; False if the time is over."""
        needed = self.newest.size_bytes if self.newest is not None else 0
        while time.monotonic() < deadline:
            time.sleep(_FULL_POLL_SECONDS)
            folder = self._parent if self._parent.exists() else self._parent.parent
            if shutil.disk_usage(folder).free > needed:
                return True
        return False
