"""Requests for the ranks' stacks, and their parsing.

Python stacks are requested by signal, in the format of ``faulthandler``: one block per thread, its
innermost frame first. A rank's forked loader workers have inherited its handler and its file, and
a Python that a script starts has its own, so they are asked too, one after the other, each under a
header line with its pid. Only a process that has a handler and the file open is signalled. The
trace of collectives is requested through a pipe and written by a thread of the rank, if its
interpreter is not blocked.

Not here: the time of a request, and its consequence (``engine.launcher.stall.stalls``).
"""

from __future__ import annotations

import contextlib
import os
import re
import sysconfig
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lockstep.engine.launcher.files import read_object
from lockstep.engine.launcher.start import processes
from lockstep.engine.runtime import heartbeat

WORKERS_MAX = 4
"""Loader workers asked per rank. All workers are usually stuck in the same place."""
_STACKS_SECONDS = 1.5
"""A stack is written within milliseconds, unless the process is frozen or waits for a disk."""
_TRACE_SECONDS = 1.5
_STILL_SECONDS = 0.1
"""Time without growth after which a file is complete. On a busy machine a process may pause between
two of its lines."""
_POLL_SECONDS = 0.02
_THREAD = re.compile(
    r"^(?:Current thread|Thread) 0x([0-9a-f]+)(?: \[.*\])? \(most recent call first\):$"
)
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$')
_ASKED = re.compile(r"^--- process (\d+)")
_ENGINE = str(Path(__file__).parents[2]) + os.sep
_LIBRARIES = tuple(
    {sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


class Frame(NamedTuple):
    """One line of a stack."""

    file: str
    line: str
    function: str

    @property
    def users(self) -> bool:
        """True for the job's own code, not Python's, a library's or Lockstep's."""
        return (
            not self.file.startswith(("<", _ENGINE, *_LIBRARIES))
            and "site-packages" not in self.file
        )

    def __str__(self) -> str:
        return f"{Path(self.file).name} line {self.line} in {self.function}"


class Thread(NamedTuple):
    """One thread's stack, the innermost frame first."""

    pid: int
    identity: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True)
class StackDump:
    """Stacks and collectives of one rank."""

    pid: int
    state: str
    """State letter of the kernel: ``R`` runs, ``S`` sleeps, ``D`` waits for a device, ``T`` was
    stopped."""
    threads: tuple[Thread, ...] = ()
    collectives: int | None = None
    """Collectives entered so far, over all groups; None if unknown."""

    def where(self, main: Thread | None) -> Frame | None:
        """Innermost frame of the job's own code, in the main thread if possible.

        Without one, the innermost frame of any code.
        """
        threads = ([main] if main else []) + [
            thread for thread in self.threads if thread is not main
        ]
        for thread in threads:
            found = next((frame for frame in thread.frames if frame.users), None)
            if found is not None:
                return found
        return next((thread.frames[0] for thread in threads if thread.frames), None)

    def excerpt(self, head: str, main: Thread | None, *, frames_max: int | None = None) -> str:
        """Return the stacks as text, below the line ``head``.

        Threads of the engine that only wait for requests are omitted.
        """
        lines = [head]
        for thread in self.threads:
            if any(frame.file.endswith("engine/runtime/heartbeat.py") for frame in thread.frames):
                continue
            name = "main thread" if thread is main else "thread"
            name += "" if thread.pid == self.pid else f" of its process {thread.pid}"
            lines.append(f"  {name}, innermost frame first:")
            lines += [
                f'    File "{file}", line {line}, in {function}'
                for file, line, function in thread.frames[:frames_max]
            ]
        return "\n".join(lines if len(lines) > 1 else [head, "  no response"])


def gather(folder: Path, pids: Mapping[int, int]) -> dict[int, StackDump]:
    """Request the stacks of all ranks at once. Takes a few seconds, whatever the ranks do.

    Parameters
    ----------
    folder : Path
        The attempt's folder.
    pids : mapping of int to int
        Process ids of the ranks to ask, by rank.
    """
    sizes = {rank: _size_of(heartbeat.stacks_of(folder, rank)) for rank in pids}
    traced = [rank for rank in pids if _ask_for_trace(folder, rank)]
    askers = [
        threading.Thread(target=_ask_for_stacks, args=(folder, rank, pid))
        for rank, pid in pids.items()
    ]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    deadline = time.monotonic() + _TRACE_SECONDS
    while (
        not all(heartbeat.trace_of(folder, rank).exists() for rank in traced)
        and time.monotonic() < deadline
    ):
        time.sleep(_POLL_SECONDS)
    return {rank: _answer_of(folder, rank, pid, sizes[rank]) for rank, pid in pids.items()}


class StackRequest(threading.Thread):
    """Request for the stacks of ranks, in a thread of its own: ``answers`` is complete at its end.

    Parameters
    ----------
    folder : Path
        The attempt's folder.
    pids : mapping of int to int
        Process ids of the ranks to ask, by rank.
    """

    def __init__(self, folder: Path, pids: Mapping[int, int]):
        super().__init__(name="stacks", daemon=True)
        self._folder, self._pids = folder, dict(pids)
        self.answers: dict[int, StackDump] = {}

    def run(self) -> None:
        """Fill ``answers``."""
        self.answers.update(gather(self._folder, self._pids))


def parse(text: str, pid: int) -> tuple[Thread, ...]:
    """Return the stacks in a rank's file. ``pid`` is the process before the first header line."""
    threads: list[tuple[int, int, list[Frame]]] = []
    for line in text.splitlines():
        if asked := _ASKED.match(line):
            pid = int(asked[1])
        elif thread := _THREAD.match(line):
            threads.append((pid, int(thread[1], 16), []))
        elif (frame := _FRAME.match(line)) and threads:
            threads[-1][2].append(Frame(*frame.groups()))
    return tuple(Thread(speaker, identity, tuple(frames)) for speaker, identity, frames in threads)


def _ask_for_trace(folder: Path, rank: int) -> bool:
    """Return whether the rank was asked. A script's ranks have no pipe."""
    heartbeat.trace_of(folder, rank).unlink(missing_ok=True)
    # Without O_NONBLOCK, open would wait for a reader, and a frozen rank does not read.
    with contextlib.suppress(OSError):
        pipe = os.open(heartbeat.ask_of(folder, rank), os.O_WRONLY | os.O_NONBLOCK)
        try:
            return os.write(pipe, b"?") > 0
        finally:
            os.close(pipe)
    return False


def _ask_for_stacks(folder: Path, rank: int, pid: int) -> None:
    file = heartbeat.stacks_of(folder, rank)
    children = [
        child for child in processes.living_descendants(pid) if heartbeat.serves(child, file)
    ]
    for process in [pid, *children[:WORKERS_MAX]]:
        if not heartbeat.serves(process, file):
            continue
        with contextlib.suppress(OSError):
            with file.open("ab") as answer:
                answer.write(
                    f"--- process {process}{'' if process == pid else ', below the rank'}\n".encode()
                )
            asked_size = file.stat().st_size
            os.kill(process, heartbeat.STACKS_SIGNAL)
            _wait_until_written(file, asked_size)


def _wait_until_written(file: Path, size: int) -> None:
    """Wait until the file has grown and then has not changed for a moment."""
    asked_size, grew_at = size, time.monotonic()
    deadline = grew_at + _STACKS_SECONDS
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        previous, size = size, file.stat().st_size
        if size != previous:
            grew_at = time.monotonic()
        elif size > asked_size and time.monotonic() - grew_at >= _STILL_SECONDS:
            return


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _answer_of(folder: Path, rank: int, pid: int, asked_size: int) -> StackDump:
    """Return the answer. Stacks before ``asked_size`` are those of an earlier request."""
    try:
        with heartbeat.stacks_of(folder, rank).open("rb") as file:
            file.seek(asked_size)
            text = file.read().decode(errors="replace")
    except OSError:
        text = ""
    return StackDump(
        pid,
        processes.state_of(pid),
        parse(text, pid),
        _entered(read_object(heartbeat.trace_of(folder, rank))),
    )


def _entered(trace: dict[str, Any] | None) -> int | None:
    status = None if trace is None else trace.get("pg_status")
    if not isinstance(status, dict):
        return None
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return sum(int(group["last_enqueued_collective"]) for group in status.values())
    return None
