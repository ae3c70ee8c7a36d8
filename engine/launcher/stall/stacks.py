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

from lockstep.domain import limits
from lockstep.engine.launcher.files import read_object
from lockstep.engine.launcher.start import processes
from lockstep.engine.runtime import heartbeat
from lockstep.system.untrusted import Untrusted

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
    files = Untrusted(folder)
    sizes = {rank: files.size(heartbeat.stacks_name(rank)) for rank in pids}
    traced = [rank for rank in pids if _ask_for_trace(files, rank)]
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
        not all(files.exists(heartbeat.trace_name(rank)) for rank in traced)
        and time.monotonic() < deadline
    ):
        time.sleep(_POLL_SECONDS)
    return {rank: _answer_of(files, rank, pid, sizes[rank]) for rank, pid in pids.items()}


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


def _ask_for_trace(files: Untrusted, rank: int) -> bool:
    """Return whether the rank was asked. A script's ranks have no pipe."""
    with contextlib.suppress(OSError):
        files.remove(heartbeat.trace_name(rank), seconds=_TRACE_SECONDS)
        return files.signal(heartbeat.ask_name(rank), b"?")
    return False


def _ask_for_stacks(folder: Path, rank: int, pid: int) -> None:
    files, name = Untrusted(folder), heartbeat.stacks_name(rank)
    file = heartbeat.stacks_of(folder, rank)
    children = [
        child for child in processes.living_descendants(pid) if heartbeat.serves(child, file)
    ]
    for process in [pid, *children[:WORKERS_MAX]]:
        if not heartbeat.serves(process, file):
            continue
        with contextlib.suppress(OSError):
            below = "" if process == pid else ", below the rank"
            header = f"--- process {process}{below}\n".encode()
            files.append(name, header, most=limits.SPOOL_LENGTH_MAX)
            asked_size = files.size(name)
            os.kill(process, heartbeat.STACKS_SIGNAL)
            _wait_until_written(files, name, asked_size)


def _wait_until_written(files: Untrusted, name: str, size: int) -> None:
    """Wait until the file has grown and then has not changed for a moment."""
    asked_size, grew_at = size, time.monotonic()
    deadline = grew_at + _STACKS_SECONDS
    while time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        previous, size = size, files.size(name)
        if size != previous:
            grew_at = time.monotonic()
        elif size > asked_size and time.monotonic() - grew_at >= _STILL_SECONDS:
            return


def _answer_of(files: Untrusted, rank: int, pid: int, asked_size: int) -> StackDump:
    """Return the answer. Stacks before ``asked_size`` are those of an earlier request."""
    try:
        most = limits.EVIDENCE_BYTES_MAX
        answer = files.read(heartbeat.stacks_name(rank), most=most, start=asked_size)
        text = (answer or b"").decode(errors="replace")
    except OSError:
        text = ""
    return StackDump(
        pid,
        processes.state_of(pid),
        parse(text, pid),
        _entered(read_object(files, heartbeat.trace_name(rank))),
    )


def _entered(trace: dict[str, Any] | None) -> int | None:
    status = None if trace is None else trace.get("pg_status")
    if not isinstance(status, dict):
        return None
    with contextlib.suppress(KeyError, TypeError, ValueError):
        return sum(int(group["last_enqueued_collective"]) for group in status.values())
    return None
