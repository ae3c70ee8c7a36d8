"""Store through which the ranks of one node find each other, out of reach of other machines.

torch's own store listens on every interface, whatever address it is given. Whoever reaches its port
can read and set its keys, and so join the ranks.

Not here: the store of a script (``engine.launcher.start.site``), ranks of several nodes or under
torchrun, which use torch's store.
"""

from __future__ import annotations

import socket
from datetime import timedelta
from pathlib import Path

from torch._C._distributed_c10d import FileStore, Store, TCPStore


def store_in(folder: Path, world_size: int) -> Store:
    """Return a store in a file of ``folder``, which the launcher makes and removes: no port."""
    return FileStore(str(folder / "store"), world_size)


def store_on_loopback(port: int, rank: int, world_size: int, timeout: timedelta) -> Store:
    """Return a store that rank 0 serves on the loopback address alone.

    All ranks must call this.
    """
    address = "127.0.0.1"
    # torch closes the socket with its store.
    listener = socket.create_server((address, port)).detach() if rank == 0 else None
    return TCPStore(address, port, world_size, rank == 0, timeout, master_listen_fd=listener)
