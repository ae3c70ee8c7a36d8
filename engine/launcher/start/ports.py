"""Ports for the rendezvous of an attempt's ranks.

Not here: the node that chooses the port (``engine.launcher.start.rendezvous``).
"""

from __future__ import annotations

import random
import socket
from pathlib import Path


def quiet_port() -> int:
    """Return a free port outside of the kernel's range for outgoing connections.

    Rank 0 binds it later, perhaps after importing torch for seconds. A port inside of that range
    would sometimes be taken in the meantime, on a busy node about once in a thousand starts.
    """
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    candidates = range(10_000, lowest_given)
    for port in random.sample(candidates, min(64, len(candidates))):
        if is_free(port):
            return port
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def is_free(port: int) -> bool:
    """Return whether a server could listen on it now."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
