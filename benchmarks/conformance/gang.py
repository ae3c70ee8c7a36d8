"""Ranks of one run, each in a process of its own, started and awaited with a deadline.

A rank that hangs is killed and raises ``HangError``; one that exits early raises ``DeadRankError``.
No state of an engine's process survives a run: every rank is a new fork of a server that has only
imported modules (the start method ``forkserver``). This takes a tenth of the time of a new
interpreter. Ranks are not forked from the caller, which may have threads.

The rendezvous is a file, so no free port is needed. The process group and the variables of torchrun
are ready when a rank's work starts.

Not here: the work of a rank (``benchmarks.conformance.engines``).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Final

RUN_SECONDS: Final = 60.0
"""Deadline of one run: a hundred times the longest run on an idle machine."""
_LEAVE_SECONDS: Final = 5.0
_HEAVY: Final = (
    "torch.distributed",
    "torch._dynamo",
    "torch.nn.parallel",
    "torch.profiler",
    "lockstep.engine.loop.trainer",
    "benchmarks.conformance.engines",
    "benchmarks.conformance.runs",
)
"""Modules that are imported once, before any rank is forked. Engines may add their own."""


class HangError(Exception):
    """A rank returned no result in time."""


class DeadRankError(Exception):
    """A rank exited without a result."""


@dataclass(frozen=True)
class RankIdentity:
    """Rank of a process, and the folder of its run."""

    rank: int
    world_size: int
    folder: Path
    """Shared by the ranks of a run, and by the run that resumes it."""


@dataclass(frozen=True)
class Failed:
    """Result of a rank's work that cannot continue.

    The process exits at once, so the other ranks notice the failure.
    """

    answer: Any


Work = Callable[[RankIdentity], Any]
"""Work of one rank, called in an initialised process group. It and its result must be picklable."""


class RankPool:
    """Runs work on ranks.

    Parameters
    ----------
    seconds : float
        Deadline of one run.
    modules : iterable of str
        Modules that the work needs, which are imported once.
    """

    def __init__(self, seconds: float = RUN_SECONDS, modules: Iterable[str] = ()):
        self._seconds = seconds
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*_HEAVY, *modules])
        # The server and its ranks inherit this. Two ranks with a pool of threads each would slow
        # each other down.
        os.environ.setdefault("OMP_NUM_THREADS", "1")

    def run(self, work: Work, world_size: int, folder: Path) -> list[Any]:
        """Run the work and return the result of each rank, in rank order, failed or not.

        Raises
        ------
        HangError
            A rank returned no result in time. No rank is left running.
        DeadRankError
            A rank exited without a result.
        """
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="rendezvous-") as rendezvous:
            ends, ranks = [], []
            for rank in range(world_size):
                ours, theirs = self._context.Pipe()
                place = RankIdentity(rank, world_size, folder)
                process = self._context.Process(
                    target=_rank,
                    args=(theirs, work, place, f"{rendezvous}/store", self._seconds),
                    daemon=True,
                )
                process.start()
                theirs.close()  # Otherwise this end never reports the end of the rank.
                ends.append(ours)
                ranks.append(process)
            try:
                return self._answers(ends, ranks)
            finally:
                _end(ends, ranks)

    def _answers(self, ends: list[Connection], ranks: list[ForkServerProcess]) -> list[Any]:
        deadline = time.monotonic() + self._seconds
        answers = []
        for rank, end in enumerate(ends):
            if not end.poll(max(0.0, deadline - time.monotonic())):
                ranks[rank].kill()
                raise HangError(f"rank {rank} gave no answer within {self._seconds:g} s")
            try:
                answer = pickle.loads(end.recv_bytes())
            except EOFError:
                ranks[rank].join(_LEAVE_SECONDS)
                raise DeadRankError(
                    f"rank {rank} ended with exit code {ranks[rank].exitcode}"
                ) from None
            answers.append(answer.answer if isinstance(answer, Failed) else answer)
        return answers


def _end(ends: list[Connection], ranks: list[ForkServerProcess]) -> None:
    """Release the ranks, and kill those that do not exit.

    A rank exits only on this message, because an early exit would look like a failure.
    """
    for end in ends:
        with suppress(OSError):
            end.send_bytes(b"leave")
        end.close()
    for process in ranks:
        process.join(_LEAVE_SECONDS)
        if process.is_alive():
            process.kill()
            process.join()


def _rank(end: Connection, work: Work, place: RankIdentity, store: str, seconds: float) -> None:
    """Run one rank, from its start to its exit."""
    import torch
    import torch.distributed as dist

    gc.freeze()  # A garbage collection would copy every page of the imported modules.
    log = os.open(place.folder / f"rank{place.rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    torch.set_num_threads(1)
    if place.world_size > 1:
        os.environ.update(_environment(place))
        # No rank starts before all are connected: the early exit of one would break the start of
        # another that is still connecting.
        os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, place.world_size),  # type: ignore[attr-defined] # missing in torch's stub
            rank=place.rank,
            world_size=place.world_size,
            timeout=timedelta(
                seconds=2 * seconds
            ),  # The parent's deadline is earlier, and identifies the rank that hangs.
        )
    code = 0
    try:
        answer = work(place)
        content = pickle.dumps(answer)
    except BaseException:  # noqa: BLE001 - it is logged, and the parent detects the exit
        traceback.print_exc()
        code = 1
    else:
        end.send_bytes(content)
        if not isinstance(answer, Failed):
            with suppress(EOFError, OSError):
                end.recv_bytes()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(
        code
    )  # Not destroy_process_group: with a wrapper of DDP alive, Gloo may wait there forever.


def _environment(place: RankIdentity) -> dict[str, str]:
    """Return the variables that torchrun sets for a rank.

    Address and port are read but not used, because the group is initialised already.
    """
    return {
        "RANK": str(place.rank),
        "LOCAL_RANK": str(place.rank),
        "WORLD_SIZE": str(place.world_size),
        "LOCAL_WORLD_SIZE": str(place.world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "conformance",
    }
