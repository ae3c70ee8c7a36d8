"""Heartbeat of a rank, which separates a slow rank from one that hangs.

Each rank keeps these files beside the attempt's other files:

* ``heartbeats/rank<R>``: a page of shared memory with the step, the current phase and its start
  (``HeartbeatReading``). The rank writes it at every change of phase; the launcher reads it every
  second.
* ``heartbeats/rank<R>.ask``: a named pipe; one byte requests the trace of the collectives.
* ``stacks/rank<R>.txt``: Python stacks of every thread, appended by the rank at each
  ``STACKS_SIGNAL``.
* ``stacks/rank<R>.json``: the last collectives that the rank entered, if this torch records them.

A mark costs less than a microsecond and no system call. A signal handler in C writes the stacks, so
they also come from a rank that is blocked in a collective or in code that holds the interpreter's
lock.

This module imports no torch because the launcher imports it.

Not here: detection of stalls (``engine.launcher.stall.stalls``).
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import os
import signal
import sys
import threading
from pathlib import Path
from struct import Struct
from time import monotonic
from typing import Any, Final, NamedTuple

from lockstep.domain.life import attempt
from lockstep.system.files import write_atomically
from lockstep.system.untrusted import Untrusted

PHASES: Final = (
    "setup",
    "data",
    "forward",
    "backward",
    "communication",
    "optimizer",
    "eval",
    "checkpoint",
    "other",
    "done",
    "tensor",
    "activation",
    "gradient",
)
"""Phases of a rank.

``done``: the run is complete and the process is exiting. ``tensor``: it exchanges parts of
activations with the ranks that hold slices of the same layers. ``activation``, ``gradient``: it
waits for that message of the stage before, or of the stage after."""
STACKS_SIGNAL: Final = signal.SIGRTMIN + 5
"""No framework that a task may use listens to this one. Without a handler it would end a process:
ask ``catches``."""

_NUMBERS: Final = {name: number for number, name in enumerate(PHASES)}
_NOT_COMPARED: Final = frozenset(
    _NUMBERS[phase]
    for phase in ("communication", "tensor", "activation", "gradient", "eval", "checkpoint")
)
_MARK: Final = Struct("@ddqq")
_STEPS: Final = Struct("@qqqq")
_RECORD: Final = Struct("@ddqqqqqq")
"""The mark, followed by fields that change once per step or never."""
_PAGE_BYTES: Final = mmap.PAGESIZE
_COLLECTIVES_MAX: Final = 100
"""Newest collectives that are kept of a trace: about 50 KB."""


class HeartbeatReading(NamedTuple):
    """Heartbeat of a rank at one moment."""

    since: float
    """Start of the phase, in seconds of ``time.monotonic()``, which all processes of a machine
    share."""
    not_compared_seconds: float
    """Time spent in phases that are unrelated to the speed of a rank: waits for other ranks,
    evaluations and checkpoints, of which ranks have unequal parts."""
    step: int
    """Completed optimizer steps, those before a resume included."""
    phase: str
    mark_count: int
    """Number of marks. Two equal readings mean that the rank did not change phase in between."""
    thread: int
    """Identity of its main thread, as faulthandler prints it."""
    first_step: int
    """Steps that were complete when this process began to train."""
    steps: int = 0
    """Steps of the whole run; 0 while they are not known."""


class Heartbeat:
    """The writing side. ``memory`` is anything that a record can be packed into."""

    def __init__(self, memory: mmap.mmap | bytearray):
        self._memory = memory
        self._since, self._not_compared_seconds, self._phase = monotonic(), 0.0, _NUMBERS["setup"]
        self._first_step = self._steps = self._mark_count = 0
        self._thread = threading.main_thread().ident or 0
        self.train_from(0)
        self.mark("setup")

    def mark(self, phase: str) -> float:
        """From here on the rank does ``phase``, one of ``PHASES``.

        Returns the time, in seconds of ``time.monotonic()``.
        """
        now = monotonic()
        if self._phase in _NOT_COMPARED:
            self._not_compared_seconds += now - self._since
        self._since = now
        self._phase = number = _NUMBERS[phase]
        self._mark_count = mark_count = self._mark_count + 1
        _MARK.pack_into(self._memory, 0, now, self._not_compared_seconds, number, mark_count)
        return now

    def train_from(self, step: int, steps: int = 0) -> None:
        """Training begins, or continues, after ``step``, and is over after ``steps``."""
        self._first_step, self._steps = step, steps
        self.step(step)

    def step(self, done: int) -> None:
        """``done`` optimizer steps are complete."""
        _STEPS.pack_into(
            self._memory, _MARK.size, done, self._thread, self._first_step, self._steps
        )

    @classmethod
    def unseen(cls) -> Heartbeat:
        """Return a heartbeat without a file, for a run without a launcher."""
        return cls(bytearray(_RECORD.size))

    @classmethod
    def begin(cls, folder: Path, rank: int) -> Heartbeat:
        """Publish this process as ``rank`` of the attempt in ``folder``, and serve its stacks.

        Raises
        ------
        OSError
            If the folder cannot be written to.
        """
        path = folder / heartbeat_name(rank)
        path.parent.mkdir(exist_ok=True)
        stacks_of(folder, rank).parent.mkdir(exist_ok=True)
        with path.open("w+b") as file:
            # Written, not only made this long: on a full disk a store into a hole would end the
            # rank by SIGBUS.
            file.write(bytes(_PAGE_BYTES))
            file.flush()
            heartbeat = cls(mmap.mmap(file.fileno(), _PAGE_BYTES))
        # To append, so that the launcher and forked loader workers can write to it too. The handler
        # is in C and keeps
        # the descriptor: it must stay open as long as the process lives.
        stacks = os.open(
            stacks_of(folder, rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        faulthandler.register(STACKS_SIGNAL, file=stacks, all_threads=True, chain=False)
        ask = folder / ask_name(rank)
        ask.unlink(missing_ok=True)
        os.mkfifo(ask, 0o600)
        trace = folder / trace_name(rank)
        threading.Thread(target=_answer, args=(ask, trace), name="heartbeat", daemon=True).start()
        return heartbeat


def heartbeat_name(rank: int) -> str:
    """Return the name of a rank's heartbeat in the attempt's folder."""
    return f"{attempt.HEARTBEATS}/rank{rank}"


def ask_name(rank: int) -> str:
    """Return the name of the pipe that asks a rank for its collectives."""
    return f"{attempt.HEARTBEATS}/rank{rank}.ask"


def stacks_of(folder: Path, rank: int) -> Path:
    """Return the path of a rank's stacks."""
    return folder / stacks_name(rank)


def stacks_name(rank: int) -> str:
    """Return the name of a rank's stacks in the attempt's folder."""
    return f"{attempt.STACKS}/rank{rank}.txt"


def trace_name(rank: int) -> str:
    """Return the name of a rank's last collectives."""
    return f"{attempt.STACKS}/rank{rank}.json"


def read(folder: Path, rank: int) -> HeartbeatReading | None:
    """A rank's newest heartbeat; None before its first."""
    try:
        with Untrusted(folder).open(heartbeat_name(rank)) as file:
            record = b""
            # The rank may be in the middle of writing: two equal readings hold no half of another.
            for _ in range(10):
                again = os.pread(file.fileno(), _RECORD.size, 0)
                if again == record:
                    break
                record = again
    except OSError:
        return None
    if len(record) < _RECORD.size:
        return None
    since, not_compared_seconds, phase, mark_count, step, thread, first_step, steps = (
        _RECORD.unpack(record)
    )
    return (
        HeartbeatReading(
            since, not_compared_seconds, step, PHASES[phase], mark_count, thread, first_step, steps
        )
        if mark_count and 0 <= phase < len(PHASES)
        else None
    )


def catches(pid: int, number: int = STACKS_SIGNAL) -> bool:
    """Return whether a process handles a signal. Without a handler, the signal terminates it."""
    return _is_in("SigCgt:", pid, number)


def ignores(pid: int, number: int) -> bool:
    """Return whether a process ignores a signal."""
    return _is_in("SigIgn:", pid, number)


def _is_in(field: str, pid: int, number: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    mask = next((line for line in status.splitlines() if line.startswith(field)), ": 0")
    return bool(int(mask.split()[1], 16) >> (number - 1) & 1)


def serves(pid: int, stacks: Path) -> bool:
    """Return whether a process writes its stacks to this file when asked.

    A handler writes to a number. A process that closed its descriptors may have given the number to
    another file.
    """
    try:
        places = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    return stacks.resolve() in map(_target, places) and catches(pid)


def _target(link: Path) -> Path | None:
    try:
        return link.readlink()
    except OSError:  # closed in the meantime
        return None


def _answer(ask: Path, trace: Path) -> None:
    """Write the trace of the collectives at each request. Blocks in the kernel in between."""
    while True:
        try:
            with ask.open("rb") as pipe:
                asked = pipe.read()
            if asked:
                write_atomically(trace, json.dumps(_collectives()))
        except OSError:  # the folder is gone or the disk full: a trace is worth no more trouble
            return


def _collectives() -> dict[str, Any]:
    """The newest collectives that torch's flight recorder has; an explanation where it has none.

    The recorder is no public interface: torch 2.13 records Gloo and NCCL under one name, earlier
    versions NCCL only.
    """
    torch = sys.modules.get("torch")
    module = getattr(getattr(torch, "_C", None), "_distributed_c10d", None)
    for name in ("_dump_fr_trace_json", "_dump_nccl_trace_json"):
        dump = getattr(module, name, None)
        if dump is None:
            continue
        try:
            document: dict[str, Any] = json.loads(dump(includeCollectives=True, onlyActive=False))
        except (TypeError, ValueError, RuntimeError) as error:
            return {"missing": f"{name}: {error}"}
        document["entries"] = document.get("entries", [])[-_COLLECTIVES_MAX:]
        return document
    return {"missing": "this torch records no collectives"}
