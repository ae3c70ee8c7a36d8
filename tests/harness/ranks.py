"""Ranks: a pool of Gloo processes for cases.

The pool runs cases one after another, because four imports of torch per case would take a minute.
Its ranks are forked from a process that has imported the needed modules, as a launcher forks the
ranks of a job; that process is a fork itself (``tests.harness.forks``). A case runs on the first W
ranks over a group of their own; the others wait.

Not here: the cases (``tests.engine.cases``), and the folders of attempts with a real launcher
(``tests.harness.attempts``).
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import psutil

from tests.harness import forks

SIZE = 4
START_SECONDS = 120.0
CASE_SECONDS = 120.0
GROUPS_MAX = 1_000
"""Groups that a case makes, at most."""
START = (
    "import sys; from tests.harness.ranks import fork; "
    "fork(sys.argv[1], sys.argv[2], int(sys.argv[3]))"
)
HEAVY = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.nn.parallel",
    "torch.profiler",
    "tests.engine.cases",
)
"""Imported before the fork: otherwise the first case of each world size imports them in every
rank."""


class Pool:
    """Parent's side of the pool."""

    def __init__(self, folder: Path, size: int = SIZE):
        self._folder, self._size = folder, size
        self._starts = self._cases = 0
        self._start()

    def _start(self) -> None:
        self._starts += 1
        address = str(self._folder / f"pool{self._starts}.sock")
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        store = str(self._folder / f"store{self._starts}")
        self._listener = Listener(address, family="AF_UNIX")
        self._parent = forks.Forked(
            [sys.executable, "-c", START, address, store, str(self._size)],
            forks.ENGINE,
            env=environment,
            cwd=Path(__file__).parents[2],
            start_new_session=True,  # for a common process group
        )
        self._grouped: set[int] = set()
        self._connections: dict[int, Connection] = {}
        for _ in range(self._size):
            connection = self._listener.accept()
            self._connections[receive(connection)] = connection

    def run(self, function: Callable[..., Any], *arguments: Any, world_size: int) -> list[Any]:
        """Run ``function(ranks, *arguments)`` on the first ``world_size`` ranks; return their
        results in rank order."""
        self._cases += 1
        try:
            results = self._run(function, arguments, world_size)
        except (EOFError, ConnectionError, TimeoutError) as error:
            self._replace()  # For the tests that follow.
            raise AssertionError(f"a rank of the pool hangs or has ended: {error!r}") from error
        errors = [result for result in results if isinstance(result, Raised)]
        if errors:
            raise errors[0].error from RuntimeError(errors[0].text)
        return results

    def _run(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], world_size: int
    ) -> list[Any]:
        if world_size > 1 and world_size not in self._grouped:
            self._grouped.add(world_size)
            self._tell(self._size, "group", world_size)
        self._tell(world_size, "run", function, arguments, world_size, self._cases)
        results = []
        for rank in range(world_size):
            if not self._connections[rank].poll(CASE_SECONDS):
                raise TimeoutError(f"rank {rank} did not answer within {CASE_SECONDS} s")
            results.append(receive(self._connections[rank]))
        self._tell(world_size, "forget")
        return results

    def _tell(self, world_size: int, *message: Any) -> None:
        for rank in range(world_size):
            send(self._connections[rank], message)

    def close(self) -> None:
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                send(connection, None)
        try:
            self._parent.wait(60)  # It waits for them.
        except subprocess.TimeoutExpired:
            os.killpg(self._parent.pid, signal.SIGKILL)
        self._forget()

    def _replace(self) -> None:
        """Print where each process of the pool hangs, and start another pool for later tests."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._print_stacks(psutil.Process(self._parent.pid).children(recursive=True))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._parent.pid, signal.SIGKILL)
        self._forget()
        self._start()

    def _print_stacks(self, processes: list[psutil.Process]) -> None:
        for process in processes:
            where = f"process {process.pid} of {process.ppid()} is {process.status()}:"
            print(where, flush=True)  # noqa: T201 - shown with the failed test
            if process.status() != psutil.STATUS_ZOMBIE:
                process.send_signal(signal.SIGUSR1)
                time.sleep(0.5)  # The processes write to one file.

    def _forget(self) -> None:
        self._parent.wait()
        for connection in self._connections.values():
            connection.close()
        self._listener.close()


def send(connection: Connection, value: Any) -> None:
    """Send by plain pickle: that of the connection would pass tensors as file descriptors, which
    need an authenticated server."""
    connection.send_bytes(pickle.dumps(value))


def receive(connection: Connection) -> Any:
    return pickle.loads(connection.recv_bytes())


class Raised:
    """Exception of a rank, in place of a result."""

    def __init__(self, error: Exception):
        self.error, self.text = error, traceback.format_exc()


def fork(address: str, store: str, size: int) -> None:
    """Run the parent of the ranks until all have ended. It has no threads: importing starts
    none."""
    import torch

    torch.set_num_threads(1)
    for name in HEAVY:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # As the launcher does: a collection in a rank skips what was imported.
    for rank in range(size):
        if os.fork() == 0:
            try:
                serve(address, rank, store, size)
            except BaseException:  # noqa: BLE001 - a fork must not start the other ranks
                traceback.print_exc()
            finally:
                os._exit(1)
    for _ in range(size):
        pid, status = os.wait()
        print(f"rank process {pid} ended with status {status}", flush=True)  # noqa: T201


def serve(address: str, rank: int, store: str, count: int) -> None:
    """Run the child's side: one rank."""
    import torch.distributed as dist

    from lockstep.engine.runtime.ranks import give_way

    faulthandler.register(signal.SIGUSR1, file=sys.stdout)
    give_way()
    share_gloo()
    dist.init_process_group("gloo", store=dist.FileStore(store, count), rank=rank, world_size=count)
    served = Served(rank)
    with Client(address, family="AF_UNIX") as connection:
        send(connection, rank)
        while (message := receive(connection)) is not None:
            what, *arguments = message
            if what == "run":
                send(connection, served.run(*arguments))
            else:
                getattr(served, what)(*arguments)
            del message, arguments
    # Not destroy_process_group: a case that failed may have left a DDP wrapper behind.
    sys.stdout.flush()
    os._exit(0)


def share_gloo() -> None:
    """Let all groups of this process use one device of Gloo, as Gloo's own interface allows: torch
    makes one for each, with a thread that wakes a hundred times a second."""
    from torch.distributed import distributed_c10d

    gloo: Any = distributed_c10d.ProcessGroupGloo
    device = gloo.create_default_device()

    class Sharing(gloo):  # type: ignore[misc] # of a class that is found late
        def __init__(self, store: Any, rank: int, size: int, timeout: Any):
            options = gloo._Options()
            options._devices, options._timeout = [device], timeout
            super().__init__(store, rank, size, options)

    distributed_c10d.ProcessGroupGloo = Sharing  # type: ignore[misc] # for the groups made later


class Served:
    """One rank of a pool, with the groups that it keeps.

    A group has threads and connections, so it is made for the first case that needs it, and those
    of a case are gone after it.
    """

    def __init__(self, rank: int):
        from torch.distributed import distributed_c10d

        self._rank, self._world = rank, distributed_c10d._world
        self._groups: dict[int, list[Any]] = {1: [None, None]}
        self._kept = set(self._world.pg_map)

    def group(self, size: int) -> None:
        """Make the groups of the first ranks. All ranks of the pool must call this."""
        import torch.distributed as dist

        self._world.group_count = 2 * size  # Names of groups are counted in each process.
        self._groups[size] = [dist.new_group(list(range(size))) for _ in range(2)]
        self._kept = set(self._world.pg_map)

    def run(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], size: int, number: int
    ) -> Any:
        """Return the result of a case on the first ranks."""
        from lockstep.engine.runtime.ranks import Ranks

        self._world.group_count = GROUPS_MAX * number
        group, stream = self._groups[size]
        ranks = Ranks(
            rank=self._rank,
            world_size=size,
            local_rank=self._rank,
            host_group=group,
            device_group=group,
            stream_group=stream,
        )
        try:
            return function(ranks, *arguments)
        except Exception as error:  # noqa: BLE001 - raised again in the test
            return Raised(error)

    def forget(self) -> None:
        """Destroy the groups of the case, which all ranks have ended."""
        import torch.distributed as dist
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache

        for group in self._world.pg_map.keys() - self._kept:
            dist.destroy_process_group(group)
        # It finds a mesh by its ranks: that of this case, whose groups are gone.
        _clear_sharding_prop_cache()
        gc.collect()  # A group lives as long as a wrapper of DDP that has it.
        gc.freeze()  # Caches grow: the next collection would look at all of them again.
