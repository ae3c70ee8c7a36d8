"""Where the other nodes of a gang reach this one: an address, a port, an interface.

The address is ``LOCKSTEP_NODE_ADDRESS``; without it, the one from which this node reaches the job database, because the
other nodes are on that network, too. With a database on this very machine that is the loopback, which serves a service on
one machine and no other.

Nothing may take the port between the claim, which publishes it, and the launcher, which opens it after code and
checkpoints are there. So it is bound all the while (``Reservation``), which does not keep the launcher from it.

Not here: publishing them (``storage.attempts.attempts.claim``), and meeting there (``engine.launcher.start.rendezvous``).
"""

from __future__ import annotations

import ipaddress
import random
import socket
from pathlib import Path
from typing import Final

import psutil
from sqlalchemy import make_url

LOOPBACK: Final = "127.0.0.1"
_PORT_MIN: Final = 10_000
_TRIES: Final = 64
_ANY_PORT: Final = 9
"""Discard (RFC 863): a datagram socket is asked for its route, and nothing is sent."""


def address_of(node_address: str | None, database_url: str) -> str:
    """The address under which other nodes' ranks reach this one.

    Parameters
    ----------
    node_address : str or None
        As the settings name it.
    database_url : str

    Raises
    ------
    OSError
        If the database's host has no address, or there is no way to it.
    """
    if node_address is not None:
        return node_address
    host = make_url(database_url).host
    if not host:
        return LOOPBACK
    family, kind, protocol, _name, there = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as route:
        route.connect(there)
        address: str = route.getsockname()[0]
        return address


def is_loopback(address: str) -> bool:
    """Whether only this host can be meant. A name that cannot be looked up here may be known elsewhere."""
    try:
        found = {address} if _is_number(address) else {str(one[4][0]) for one in socket.getaddrinfo(address, None)}
    except OSError:
        return False
    return all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)


def interface_of(address: str) -> str | None:
    """Name of the network interface that has an address, or None where none of this node's has it."""
    try:
        wanted = {address} if _is_number(address) else {str(one[4][0]) for one in socket.getaddrinfo(address, None)}
    except OSError:
        return None
    for name, addresses in sorted(psutil.net_if_addrs().items()):
        if any(one.address.partition("%")[0] in wanted for one in addresses):
            return name
    return None


def _is_number(address: str) -> bool:
    try:
        ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return True


class Reservation:
    """A TCP port of this node that nobody else gets as long as this lives.

    It lies below the range that the kernel takes ports of outgoing connections from. It is bound but not listened to,
    with SO_REUSEADDR, so that who sets that too (torch's store does) can still open it, and nobody else can.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for port in (*_candidates(), 0):
            # A port that is reserved already may be bound again with SO_REUSEADDR: ask without.
            if port and not _is_free(port):
                continue
            try:
                self._socket.bind(("", port))
            except OSError:
                continue
            break
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()


def _candidates() -> list[int]:
    lowest_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = range(_PORT_MIN, lowest_given)
    return random.sample(ports, min(_TRIES, len(ports)))


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
