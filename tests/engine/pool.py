"""Four real Gloo processes that run cases one after another: four imports of torch per case would
take a minute.

They are forked from a process that has imported the needed modules, as a launcher forks the ranks
of a job. A case runs on the first W of them over a group of their own; the others wait.

Not here: the cases (``tests.engine.cases``).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

SIZE = 4
START_SECONDS = 120.0
CASE_SECONDS = 120.0
START = "import sys; from tests.engine.pool import fork; fork(sys.argv[1], sys.argv[2])"
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

    def __init__(self, folder: Path):
        address = str(folder / "pool.sock")
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._listener = Listener(address, family="AF_UNIX")
        self._parent = subprocess.Popen(
            [sys.executable, "-c", START, address, str(folder / "store")],
            env=environment,
            cwd=Path(__file__).parents[2],
            start_new_session=True,  # for a common process group
        )
        self._connections: dict[int, Connection] = {}
        for _ in range(SIZE):
            connection = self._listener.accept()
            self._connections[receive(connection)] = connection

    def run(self, function: Callable[..., Any], *arguments: Any, world_size: int) -> list[Any]:
        """Run ``function(ranks, *arguments)`` on the first ``world_size`` ranks; return their
        results in rank order."""
        for rank in range(world_size):
            send(self._connections[rank], (function, arguments, world_size))
        results = []
        for rank in range(world_size):
            if not self._connections[rank].poll(CASE_SECONDS):
                self.close()
                raise AssertionError(
                    f"rank {rank} of {world_size} did not answer within {CASE_SECONDS} s: it hangs"
                )
            results.append(receive(self._connections[rank]))
        errors = [result for result in results if isinstance(result, Raised)]
        if errors:
            raise errors[0].error from RuntimeError(errors[0].text)
        return results

    def close(self) -> None:
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                send(connection, None)
            connection.close()
        self._connections = {}
        self._listener.close()
        try:
            self._parent.wait(60)  # It waits for them.
        except subprocess.TimeoutExpired:
            os.killpg(self._parent.pid, signal.SIGKILL)
            self._parent.wait()


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


def fork(address: str, store: str) -> None:
    """Run the parent of the ranks until all have ended. It has no threads: importing starts
    none."""
    import torch

    torch.set_num_threads(1)
    for name in HEAVY:
        importlib.import_module(name)
    for rank in range(SIZE):
        if os.fork() == 0:
            try:
                serve(address, rank, store)
            except BaseException:  # noqa: BLE001 - a fork must not start the other ranks
                traceback.print_exc()
            finally:
                os._exit(1)
    for _ in range(SIZE):
        os.wait()


def serve(address: str, rank: int, store: str) -> None:
    """Run the child's side: one rank."""
    import torch.distributed as dist

    from lockstep.engine.runtime.ranks import Ranks

    dist.init_process_group("gloo", store=dist.FileStore(store, SIZE), rank=rank, world_size=SIZE)
    groups = {size: dist.new_group(list(range(size))) for size in range(2, SIZE + 1)}
    with Client(address, family="AF_UNIX") as connection:
        send(connection, rank)
        while (message := receive(connection)) is not None:
            function, arguments, world_size = message
            group = groups.get(world_size)
            ranks = Ranks(
                rank=rank,
                world_size=world_size,
                local_rank=rank,
                host_group=group,
                device_group=group,
            )
            try:
                result = function(ranks, *arguments)
            except Exception as error:  # noqa: BLE001 - raised again in the test
                result = Raised(error)
            send(connection, result)
    # Not destroy_process_group: a case that failed may have left a DDP wrapper behind.
    sys.stdout.flush()
    os._exit(0)
