"""Ports on which the ranks of an attempt meet.

Not here: which node says the port (``engine.launcher.start.rendezvous``).
"""

from __future__ import annotations

import random
import socket
from pathlib import Path


def quiet_port() -> int:
    """A free port that the kernel gives to nobody by itself.

    Rank 0 binds it later, perhaps after importing torch for seconds. A port from the range that outgoing connections are
    given would be taken meanwhile now and then, on a busy node about once in a thousand starts.
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
    """Whether a server could listen on it now."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
