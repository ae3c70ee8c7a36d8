"""Messages between an agent and its fork server. The attempt folder is their only other contract.

They use a ``SOCK_SEQPACKET`` pair, one message after another. The fork server sends ``READY`` once.
Each ``LaunchRequest``, sent with the descriptor of the launcher's log, is answered with the
launcher's pid in decimal digits.

Not here: the two sides (``worker.launch.fork_client``, ``engine.launcher.fork_server``).
"""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

READY: Final = b"ready"
BYTES_MAX: Final = 128 * 1024
"""One message; a socket's buffer holds more."""


class LaunchRequest(BaseModel):
    """Fork the launcher of this folder."""

    folder: str
    environ: dict[str, str]
    """All of its environment."""
