"""Stop of a run on request, also in the middle of a step that does not end.

The request is a file, or without the service SIGTERM (``engine.runtime.torchrun``). Rank 0 checks
for the file once per step and sends the flag in the control operation. All ranks leave together
after the step's checkpoint.

A step may also hang: in a wait for data, in a collective with a rank that is gone, in an
evaluation. A thread of rank 0 therefore checks too. After half the grace period it abandons the
current step, saves the last completed one alone, and ends the process; the launcher ends the
others. The saved state does not change between two updates, so a copy made by another thread is
consistent; during an update the thread waits for its end. If the strategy needs all ranks to save,
the run ends with the last checkpoint.

Not here: the action of the launcher after the grace period (``engine.launcher.watch``).
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from pydantic import ValidationError

from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import StopFile
from lockstep.engine.runtime.device import is_accelerator, module_of

_LOOK_SECONDS: Final = 0.2
_READS_APART_SECONDS: Final = 0.01
"""From one read of the loop to the next: a call to the kernel in each of a thousand steps a second
would cost a hundredth."""
_ABANDON_AFTER: Final = 0.5
"""Part of the grace. The rest is for the checkpoint and for the ranks that are left."""


class StopRequest:
    """Stop request, read by one rank.

    Parameters
    ----------
    folder : Path
        The attempt's folder.
    reads_file : bool
        True on the rank that checks for the file.
    device : torch.device
        Device of the training state.
    """

    def __init__(self, folder: Path, *, reads_file: bool, device: torch.device):
        self._file, self._reads_file = folder / attempt.STOP, reads_file
        self._requested, self._read_again_at = False, 0.0
        self._save: Callable[[], None] = lambda: None
        self._begun = False
        self._requested_grace_seconds: float | None = None
        self._code = 0
        self._lock = threading.Lock()
        self._whole = True
        self._over = threading.Event()
        self._device = device
        waits = reads_file and is_accelerator(device)
        self._updated = module_of(device).Event() if waits else None

    def requested(self) -> bool:
        """True after a request by file, which only rank 0 checks, or by :meth:`request`."""
        now = time.monotonic()
        if self._reads_file and not self._requested and now >= self._read_again_at:
            self._requested = self._is_there()
            self._read_again_at = now + _READS_APART_SECONDS
        return self._requested

    def request(self, grace_seconds: float, *, code: int) -> bool:
        """Ask for the stop from inside this process; any rank and any thread may.

        Returns
        -------
        bool
            Whether the run has begun to train. If not, there is nothing to save.

        Parameters
        ----------
        grace_seconds : float
            When the process will be killed.
        code : int
            Exit code of a process that gives up the step under way.
        """
        self._requested_grace_seconds, self._code = grace_seconds, code
        self._requested = True
        return self._begun

    def watch(self) -> None:
        """Start the thread that abandons a step after half the grace period."""
        if self._reads_file:
            threading.Thread(target=self._watch, name="stopping", daemon=True).start()

    def begin(self, save: Callable[[], None]) -> None:
        """From here on there is something to save.

        ``save`` makes the last completed step durable, on this rank alone.
        """
        self._save, self._begun = save, True

    def over(self) -> None:
        """Nothing is to be abandoned any more, or nothing can be. Returns once that is certain."""
        with self._lock:
            self._over.set()

    @contextmanager
    def update(self) -> Iterator[None]:
        """Around whatever changes the state or counts the step.

        Nothing is saved by another thread meanwhile.
        """
        with self._lock:
            self._whole = False
            yield
            self._whole = True
            if self._updated is not None:
                self._updated.record()

    @contextmanager
    def save(self) -> Iterator[None]:
        """Around a checkpoint that the loop makes: the thread waits until it is there."""
        with self._lock:
            yield

    def rescue(self) -> None:
        """This rank fails.

        If the run was to stop anyway, the last completed step is saved first.
        """
        if self._reads_file and self._is_there():
            with self._lock:
                if not self._over.is_set():
                    self._over.set()
                    self._save_alone()

    def _watch(self) -> None:
        while not (self._requested or self._is_there()):
            if self._over.wait(_LOOK_SECONDS):
                return
        grace_seconds = self._grace_seconds()
        if grace_seconds is None or self._over.wait(_ABANDON_AFTER * grace_seconds):
            return
        with self._lock:
            if self._over.is_set():
                return
            code = self._save_alone() or self._code
            sys.stdout.flush()
            sys.stderr.flush()
            # The main thread is stuck, and with it everything that ends a process in order.
            os._exit(code)

    def _is_there(self) -> bool:
        return os.access(self._file, os.F_OK)  # Path.exists() takes ten times as long.

    def _save_alone(self) -> int:
        """Save the last completed step; returns an exit code."""
        if not self._whole:
            return 1
        try:
            if self._updated is None:
                self._save()
            else:
                # The device's own queue may be stuck behind a collective: go past it, from where
                # the last update ended.
                module = module_of(self._device)
                stream = module.Stream(self._device)
                stream.wait_event(self._updated)
                with module.stream(stream):
                    self._save()
        except BaseException:  # noqa: BLE001 - the process ends here, whatever it was
            traceback.print_exc()
            return 1
        return 0

    def _grace_seconds(self) -> float | None:
        """Grace period of the request; None for a file that a user made by hand."""
        if self._requested_grace_seconds is not None:
            return self._requested_grace_seconds
        try:
            return StopFile.model_validate_json(self._file.read_bytes()).grace_seconds
        except (OSError, ValidationError):
            return None
