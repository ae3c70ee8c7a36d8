"""Connections of all ranks with rank 0, for a few numbers per step.

Gloo hands each message to its own threads, on both sides. For a message of a hundred bytes their
wake-ups take most of the time, and on a machine with as many ranks as cores they interrupt the
ranks. Here the thread that needs the answer sends and receives itself: on a node about 20 µs
instead of 300.

Not here: the numbers (``engine.runtime.control``), everything else that ranks exchange
(``engine.runtime.ranks``).
"""

from __future__ import annotations

import hmac
import secrets
import socket
import time
from collections.abc import Sequence
from struct import Struct
from typing import Final

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import LOOPBACK, Ranks

_PATIENCE_SECONDS: Final = 1800.0
"""Timeout where the ranks have none; torch's own for Gloo."""
_GREETING_SECONDS: Final = 10.0
"""Time for a new connection to send the secret."""
_RANK: Final = Struct("!I")
_SECRET_BYTES: Final = 32


class Star:
    """Open connections of one rank: on rank 0 one with each other rank, there one with rank 0.

    Parameters
    ----------
    ranks : Ranks
    sums, maxima : int
        Numbers of each kind in a message.
    """

    def __init__(self, ranks: Ranks, *, sums: int, maxima: int):
        self._first, self._sums = ranks.first, sums
        self._format = Struct(f"!{sums + maxima}d")
        patience = ranks.patience
        seconds = _PATIENCE_SECONDS if patience is None else patience.total_seconds()
        self._peers = _connected(ranks, seconds) if ranks.world_size > 1 else []
        """By rank."""

    def reduce(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return the sums and maxima over all ranks, equal on all. All ranks must call this.

        Sums are added in the order of the ranks.

        Raises
        ------
        EngineError
            ``network``, if a rank is gone or sends nothing in time.
        """
        if not self._first:
            (first,) = self._peers
            first.send(self._format.pack(*numbers))
            return self._received(first)
        whole = list(numbers)
        for peer in self._peers:
            for index, number in enumerate(self._received(peer)):
                if index < self._sums:
                    whole[index] += number
                else:
                    whole[index] = max(whole[index], number)
        message = self._format.pack(*whole)
        for peer in self._peers:
            peer.send(message)
        return whole

    def close(self) -> None:
        """End the connections: a rank that still waits for this one fails."""
        for peer in self._peers:
            peer.connection.close()
        self._peers = []

    def _received(self, peer: _Peer) -> tuple[float, ...]:
        return self._format.unpack(peer.receive(self._format.size))


class _Peer:
    """Connection with another rank."""

    def __init__(self, rank: int, connection: socket.socket, seconds: float):
        self.rank, self.connection = rank, connection
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.settimeout(seconds)

    def send(self, content: bytes) -> None:
        try:
            self.connection.sendall(content)
        except OSError as error:
            raise _lost(self.rank, error) from error

    def receive(self, count: int) -> bytes:
        try:
            return _read(self.connection, count)
        except OSError as error:
            raise _lost(self.rank, error) from error


def _connected(ranks: Ranks, seconds: float) -> list[_Peer]:
    """Connect rank 0 with all others. All ranks must call this."""
    listener = _listener(ranks.host) if ranks.first else None
    place = ranks.from_first("" if listener is None else _place_of(listener))
    secret = bytes.fromhex(ranks.from_first(secrets.token_hex(_SECRET_BYTES)))
    if listener is None:
        try:
            connection = _connection(ranks.host, place, seconds)
        except OSError as error:
            raise _lost(0, error) from error
        first = _Peer(0, connection, seconds)
        first.send(secret + _RANK.pack(ranks.rank))
        return [first]
    found: dict[int, _Peer] = {}
    ends = time.monotonic() + seconds
    with listener:
        while missing := set(range(1, ranks.world_size)) - found.keys():
            listener.settimeout(max(0.0, ends - time.monotonic()))
            try:
                connection, _ = listener.accept()
            except OSError as error:
                raise _lost(min(missing), error) from error
            rank = _greeted(connection, secret)
            if rank is None:
                connection.close()
            else:
                found[rank] = _Peer(rank, connection, seconds)
    return [found[rank] for rank in sorted(found)]


def _listener(host: str) -> socket.socket:
    """Return a socket of rank 0 that the others can reach, those of other nodes at ``host``."""
    if not host:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("")  # The kernel chooses a name that is no file.
        listener.listen()
        return listener
    if host == LOOPBACK:
        return socket.create_server((host, 0))
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    return socket.create_server(("", 0))


def _place_of(listener: socket.socket) -> str:
    """Return the port of a socket, or its name on this node."""
    address = listener.getsockname()
    return address.decode() if isinstance(address, bytes) else str(address[1])


def _connection(host: str, place: str, seconds: float) -> socket.socket:
    if host:
        return socket.create_connection((host, int(place)), timeout=seconds)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(place)
    return connection


def _greeted(peer: socket.socket, secret: bytes) -> int | None:
    """Return the rank behind a new connection; None if it is not one of ours."""
    peer.settimeout(_GREETING_SECONDS)
    try:
        content = _read(peer, len(secret) + _RANK.size)
    except OSError:
        return None
    if not hmac.compare_digest(content[: len(secret)], secret):
        return None
    (rank,) = _RANK.unpack(content[len(secret) :])
    return int(rank)


def _read(peer: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        part = peer.recv(count - len(content))
        if not part:
            raise ConnectionResetError("Connection closed by peer")
        content += part
    return content


def _lost(rank: int, error: OSError) -> EngineError:
    return EngineError(
        Reason.NETWORK, f"no answer of rank {rank} in the control operation: {error}"
    )
