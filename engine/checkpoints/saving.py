"""Checkpoints during training: a copy between two steps, and a thread that writes it.

1. *Copy.* The state of step t is copied into host memory that is kept from one save to the next;
training waits for this alone. On CUDA the memory is page-locked and the copy runs on a stream of
its own, and the next *update* waits for it; forward and backward of the next step, which change no
parameter, overlap it.
2. *Write.* A thread writes, syncs and renames (``engine.checkpoints.checkpoint``), reports the
checkpoint once it is durable, and only then deletes older ones.

At most one is written at a time. A second one would need a second copy of the state, and more
requests do not make a slow disk faster. A save that starts before the last one has finished waits
for it, and the job receives one warning.

Errors of the thread are raised in the rank's next :meth:`Saver.poll`, :meth:`Saver.begin` or
:meth:`Saver.finish`. Waiting for the thread has no timeout of its own: a disk that never answers is
a stall and is detected as one.

Not here: the files (``engine.checkpoints.checkpoint``), the contents of the state
(``engine.checkpoints.state``).
"""

from __future__ import annotations

import copy
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.checkpoints.checkpoint import CheckpointMetric, Part, SavedCheckpoint, State
from lockstep.engine.runtime.device import is_accelerator, module_of
from lockstep.engine.runtime.errors import EngineError, reason_of
from lockstep.engine.runtime.spool import FULL

_WAIT_WARNED_SECONDS: Final = 1.0
"""A save that had to wait longer for the one before it is worth a warning."""
FULL_DISK_SECONDS: Final = 120.0
"""A checkpoint waits so long for space on a full disk before the attempt fails. Without the wait a
disk that is full for a moment would cost every step since the checkpoint before."""
_FULL_POLL_SECONDS: Final = 1.0
ABANDON_SECONDS: Final = 2.0
"""Time that a failing rank grants to an unfinished checkpoint: the whole gang must be gone within
five seconds."""


_OF_FORWARD: Final = ("model", "held")
"""Parts of a state that a forward may change."""
_NO_PINNED_MEMORY: Final = "out of memory"
"""Part of CUDA's message if page-locked memory is exhausted; torch has no exception type for it."""


class HostCopy:
    """Host memory for one copy of a state, filled again by each :meth:`take`.

    It is as large as the state: for AdamW three times the parameters.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._module = module_of(device) if is_accelerator(device) else None
        self._stream = None if self._module is None else self._module.Stream(device)
        self._buffers: list[Tensor] = []
        self._copied: Any = None
        self._sources: State | None = None

    def take(self, state: State) -> State:
        """Return a copy of ``state``. Overwrites the copy of the last :meth:`take`.

        Tensors that are identical in ``state`` (tied weights) are identical in the copy. On GPUs
        the copy is only queued: call :meth:`wait` before reading it, and :meth:`hold` before
        changing the state.
        """
        filling = _Filling(self._buffers, pinned=self._module is not None)
        if self._module is None or self._stream is None:
            taken: State = filling.copy(state)
        else:
            current = self._module.current_stream(self._device)
            self._stream.wait_stream(current)
            with self._module.stream(self._stream):
                # What the next forward may write to comes first: buffers, and the state of the
                # task. Everything behind us waits for it on the device. The rest, the larger part,
                # is only changed by the next update.
                first = {key: filling.copy(state[key]) for key in _OF_FORWARD if key in state}
                current.wait_event(self._stream.record_event())
                taken = {
                    key: first[key] if key in first else filling.copy(value)
                    for key, value in state.items()
                }
                self._copied = self._stream.record_event()
            # Tensors that were gathered for this save alone must not be reused before they are
            # copied.
            self._sources = state
        self._buffers = filling.used
        return taken

    def hold(self) -> None:
        """Let the device finish the copy before it continues with the current stream.

        The host does not wait.
        """
        if self._module is not None and self._copied is not None:
            self._module.current_stream(self._device).wait_event(self._copied)

    def wait(self) -> None:
        """Wait until the copy is on the host."""
        if self._copied is not None:
            self._copied.synchronize()
        self._sources = None

    def give_back(self) -> None:
        """Free the memory."""
        self._buffers, self._sources, self._copied = [], None, None


class _Filling:
    """One walk over a state, which takes the buffers of the walk before it where they fit."""

    def __init__(self, buffers: list[Tensor], *, pinned: bool):
        self._old, self._pinned = buffers, pinned
        self.used: list[Tensor] = []
        self._taken: dict[object, Tensor] = {}

    def copy(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value.detach())
        if isinstance(value, dict):
            copied = copy.copy(
                value
            )  # With its type and attributes: a state_dict carries the versions of its modules.
            copied.update({key: self.copy(each) for key, each in value.items()})
            return copied
        if isinstance(value, list | tuple):
            return type(value)(self.copy(each) for each in value)
        return copy.deepcopy(value)

    def _tensor(self, tensor: Tensor) -> Tensor:
        place = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        buffer = self._taken.get(place)
        if buffer is None:
            buffer = self._taken[place] = self._buffer_for(tensor).copy_(tensor, non_blocking=True)
        return buffer

    def _buffer_for(self, tensor: Tensor) -> Tensor:
        index = len(self.used)
        buffer = self._old[index] if index < len(self._old) else None
        if buffer is None or buffer.shape != tensor.shape or buffer.dtype != tensor.dtype:
            buffer = torch.empty_like(tensor, device="cpu", pin_memory=self._pinned)
        self.used.append(buffer)
        return buffer


class Saver:
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
    ):
        self._full_disk_seconds = full_disk_seconds
        self._parent, self._keep_last, self._background = parent, keep_last, background
        self._durable, self._warn = durable, warn
        self._copies = HostCopy(device)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._warned_of_waiting = False
        self.newest: SavedCheckpoint | None = None
        """The newest durable one."""
        self.newest_step: int | None = None
        """Of the newest one that was begun."""

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
        if not self._background:
            self.write(step, state, measured=measured, collected_seconds=collected_seconds)
            return
        self._wait_for_the_last(step)
        started = time.monotonic() - collected_seconds
        try:
            taken = self._copies.take(state)
        except (RuntimeError, MemoryError) as error:
            if reason_of(error) is not Reason.OUT_OF_MEMORY and _NO_PINNED_MEMORY not in str(error):
                raise
            self._copies.give_back()
            self._background = False
            self._warn(
                f"no memory for a copy of the state: training waits while checkpoints are written "
                f"({error})"
            )
            self.write(step, state, measured=measured, collected_seconds=collected_seconds)
            return
        self.newest_step = step
        self._thread = threading.Thread(
            target=self._run,
            args=(step, taken, measured, started),
            name=f"checkpoint-{step}",
            daemon=True,
        )
        self._thread.start()

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
        self.newest_step = step
        started = time.monotonic() - collected_seconds
        return self._save(step, state, measured, others, started)

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

    def _run(
        self, step: int, taken: State, measured: CheckpointMetric | None, started: float
    ) -> None:
        try:
            self._copies.wait()
            self._save(step, taken, measured, None, started)
        except BaseException as error:  # noqa: BLE001 - raised again in the rank's main thread
            self._failure = error

    def _save(
        self,
        step: int,
        state: State,
        measured: CheckpointMetric | None,
        others: Mapping[str, Part] | None,
        started: float,
    ) -> SavedCheckpoint:
        def save() -> SavedCheckpoint:
            return checkpoint.save(self._parent, step, state, measured=measured, others=others)

        saved = self._with_room(step, save)
        self.newest = saved = replace(saved, seconds=time.monotonic() - started)
        self._durable(saved)
        try:
            checkpoint.prune(self._parent, saved, keep_last=self._keep_last)
        except OSError as error:
            self._warn(f"older checkpoints could not be deleted: {error}")
        return saved

    def _with_room(self, step: int, save: Callable[[], SavedCheckpoint]) -> SavedCheckpoint:
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

    def _wait_for_room(self, deadline: float) -> bool:
        """Wait until a checkpoint as large as the last one fits; False if the time is over."""
        needed = self.newest.size_bytes if self.newest is not None else 0
        while time.monotonic() < deadline:
            time.sleep(_FULL_POLL_SECONDS)
            folder = self._parent if self._parent.exists() else self._parent.parent
            if shutil.disk_usage(folder).free > needed:
                return True
        return False

    def _raise(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
