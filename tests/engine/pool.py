"""Four real gloo processes that stay up and are fed cases: importing torch four times per case would take a minute.

A case runs on the first W of them over a group of their own; the others wait.

Not here: what a case does (``tests.engine.cases``).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

SIZE = 4
START_SECONDS = 120.0
CASE_SECONDS = 60.0
START = "import sys; from tests.engine.pool import serve; serve(sys.argv[1], int(sys.argv[2]), sys.argv[3])"


class Pool:
    """The parent's side."""

    def __init__(self, folder: Path):
        address = str(folder / "pool.sock")
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._listener = Listener(address, family="AF_UNIX")
        self._processes = [
            subprocess.Popen(
                [sys.executable, "-c", START, address, str(rank), str(folder / "store")],
                env=environment,
                cwd=Path(__file__).parents[2],
            )
            for rank in range(SIZE)
        ]
        self._connections: dict[int, Connection] = {}
        for _ in range(SIZE):
            connection = self._listener.accept()
            self._connections[receive(connection)] = connection

    def run(self, function: Callable[..., Any], *arguments: Any, world_size: int) -> list[Any]:
        """``function(ranks, *arguments)`` on the first ``world_size`` ranks; their results in rank order."""
        for rank in range(world_size):
            send(self._connections[rank], (function, arguments, world_size))
        results = []
        for rank in range(world_size):
            if not self._connections[rank].poll(CASE_SECONDS):
                self.close()
                raise AssertionError(f"rank {rank} of {world_size} did not answer within {CASE_SECONDS} s: it hangs")
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
        for process in self._processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def send(connection: Connection, value: Any) -> None:
    """Plain pickle: the connection's own would pass tensors as file descriptors, which need an authenticated server."""
    connection.send_bytes(pickle.dumps(value))


def receive(connection: Connection) -> Any:
    return pickle.loads(connection.recv_bytes())


class Raised:
    """What a rank raised instead of returning."""

    def __init__(self, error: Exception):
        self.error, self.text = error, traceback.format_exc()


def serve(address: str, rank: int, store: str) -> None:
    """The child's side: one rank."""
    import torch
    import torch.distributed as dist

    from engine.ranks import Ranks

    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(store, SIZE), rank=rank, world_size=SIZE)
    groups = {size: dist.new_group(list(range(size))) for size in range(2, SIZE + 1)}
    with Client(address, family="AF_UNIX") as connection:
        send(connection, rank)
        while (message := receive(connection)) is not None:
            function, arguments, world_size = message
            group = groups.get(world_size)
            ranks = Ranks(rank=rank, world_size=world_size, local_rank=rank, host_group=group, device_group=group)
            try:
                result = function(ranks, *arguments)
            except Exception as error:  # noqa: BLE001 - raised again in the test
                result = Raised(error)
            send(connection, result)
    # Not destroy_process_group: a case that failed may have left a DDP wrapper behind.
    sys.stdout.flush()
    os._exit(0)
