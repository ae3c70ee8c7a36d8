"""Address, port and interface of this node for the other nodes of a gang.

The address is ``LOCKSTEP_NODE_ADDRESS``; by default the one from which this node reaches the job
database, because the other nodes are on that network, too. With a database on this machine it is
the loopback, which only serves a service on one machine.

The port must stay free between the claim, which publishes it, and its use by the launcher after
code and checkpoints are fetched. It is therefore bound meanwhile (``Reservation``), in a way that
lets the launcher open it.

Not here: publication (``storage.attempts.claiming.claim``), and the rendezvous
(``engine.launcher.start.rendezvous``).
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final

import psutil
from sqlalchemy import make_url

from lockstep.system import ports

LOOPBACK: Final = "127.0.0.1"
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
    family, kind, protocol, _name, there = socket.getaddrinfo(
        host, _ANY_PORT, type=socket.SOCK_DGRAM
    )[0]
    with socket.socket(family, kind, protocol) as route:
        route.connect(there)
        address: str = route.getsockname()[0]
        return address


def is_loopback(address: str) -> bool:
    """Return whether the address can only be this host.

    A name that does not resolve here may resolve elsewhere.
    """
    try:
        found = (
            {address}
            if _is_number(address)
            else {str(one[4][0]) for one in socket.getaddrinfo(address, None)}
        )
    except OSError:
        return False
    return all(ipaddress.ip_address(one.partition("%")[0]).is_loopback for one in found)


def interface_of(address: str) -> str | None:
    """Name of the network interface with an address, or None if this node has none."""
    try:
        wanted = (
            {address}
            if _is_number(address)
            else {str(one[4][0]) for one in socket.getaddrinfo(address, None)}
        )
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
    """TCP port of this node, reserved for the lifetime of this object.

    It is below the kernel's range for outgoing connections. It is bound with SO_REUSEADDR and
    without listening: programs that set SO_REUSEADDR, too, as torch's store does, can open it, and
    others cannot.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for port in (*ports.candidates(), 0):
            # A port that is reserved already may be bound again with SO_REUSEADDR: ask without.
            if port and not ports.is_free(port):
                continue
            try:
                self._socket.bind(("", port))
            except OSError:
                continue
            break
        self.port: int = self._socket.getsockname()[1]

    def release(self) -> None:
        self._socket.close()
