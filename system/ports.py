"""Free TCP ports outside of the kernel's range for outgoing connections.

A port inside of that range may be taken between its choice and its use, on a busy node about once
in a thousand times.
"""

from __future__ import annotations

import random
import socket
from pathlib import Path
from typing import Final

_PORT_MIN: Final = 10_000
_TRIES: Final = 64


def candidates() -> list[int]:
    """Return some ports in random order. They may be in use."""
    range_file = Path("/proc/sys/net/ipv4/ip_local_port_range")
    ports = range(_PORT_MIN, int(range_file.read_text().split()[0]))
    return random.sample(ports, min(_TRIES, len(ports)))


def quiet_port() -> int:
    """Return a free port. The caller binds it later."""
    for port in candidates():
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
