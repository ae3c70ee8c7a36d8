"""Starts the ranks of one run, each in a process of its own, and waits for them with a deadline.

A rank that hangs is killed, and the run is a ``HangError``; one that dies is a ``DeadRankError``.
Nothing that an engine keeps in its process survives a run: every rank is forked anew from a server
that has only imported things (the start method ``forkserver``), which takes a tenth of the time of
a new interpreter. Not a fork of the caller, which may have threads.

The rendezvous is a file, so no port has to be free. Ranks find the group ready, and the variables
that torchrun sets.

Not here: what a rank trains (``benchmarks.conformance.engines``).
"""

from __future__ import annotations

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
"""Deadline of one run: a hundred times what the longest takes on a quiet machine."""
_LEAVE_SECONDS: Final = 5.0
_HEAVY: Final = (
    "torch.distributed",
    "torch._dynamo",
    "torch.nn.parallel",
    "torch.profiler",
    "lockstep.engine.loop.trainer",
)
"""Imported once, before any rank is forked; what an engine needs comes on top."""


class HangError(Exception):
    """Ranks that gave no answer in time."""


class DeadRankError(Exception):
    """A rank that ended without an answer."""


@dataclass(frozen=True)
class RankIdentity:
    """Which rank a process is, and where its run's files go."""

    rank: int
    world_size: int
    folder: Path
    """Shared by the ranks, and by the runs that resume one another."""


@dataclass(frozen=True)
class Failed:
    """What the work of a rank returns that cannot go on.

    The others hear of it, because the process leaves at once.
    """

    answer: Any


Work = Callable[[RankIdentity], Any]
"""What a rank does, after the group is up. Picklable, and so is what it returns."""


class RankPool:
    """Runs work on ranks.

    Parameters
    ----------
    seconds : float
        Deadline of one run.
    modules : iterable of str
        What the work will import, to be imported once.
    """

    def __init__(self, seconds: float = RUN_SECONDS, modules: Iterable[str] = ()):
        self._seconds = seconds
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([*_HEAVY, *modules])
        # Inherited by the server and its ranks: two ranks with a pool of threads each would disturb
        # one another.
        os.environ.setdefault("OMP_NUM_THREADS", "1")

    def run(self, work: Work, world_size: int, folder: Path) -> list[Any]:
        """What each rank returned, in rank order, whether it failed or not.

        Raises
        ------
        HangError
            A rank gave no answer in time. None is left running.
        DeadRankError
            A rank ended without an answer.
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
                theirs.close()  # Else the end of a rank would not show on our end.
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
    """Let the ranks go.

    A rank leaves when it hears so, because one that is gone early looks like one that failed.
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
    """One rank, from its start to its end."""
    import torch
    import torch.distributed as dist

    log = os.open(place.folder / f"rank{place.rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    torch.set_num_threads(1)
    if place.world_size > 1:
        os.environ.update(_environment(place))
        # Nobody begins before all are connected: one that leaves at once would break the start of
        # one that is still connecting.
        os.environ["TORCH_DIST_INIT_BARRIER"] = "1"
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(store, place.world_size),  # type: ignore[attr-defined] # missing in torch's stub
            rank=place.rank,
            world_size=place.world_size,
            timeout=timedelta(
                seconds=2 * seconds
            ),  # The parent's deadline is the first, and it knows who hangs.
        )
    code = 0
    try:
        answer = work(place)
        content = pickle.dumps(answer)
    except BaseException:  # noqa: BLE001 - whatever it is, it is in the log, and the parent sees a rank that died
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
    )  # Not destroy_process_group: with a wrapper of DDP alive, Gloo may wait there for ever.


def _environment(place: RankIdentity) -> dict[str, str]:
    """What torchrun tells a rank.

    Address and port are only looked at, since the group is up already.
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
