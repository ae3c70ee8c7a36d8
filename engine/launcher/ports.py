"""Detection of a port that another process holds, in the last exception of a rank.

Only the exceptions that ended the rank count: a program may log a port in use and choose another.

Not here: the other evidence (``engine.launcher.evidence``).
"""

from __future__ import annotations

import re
from typing import Final

from lockstep.engine.launcher.evidence import Evidence

_PORT: Final = re.compile(
    r"""\bport[:=\s]+['"]?(\d{1,5})\b"""
    r"""|(?:\d{1,3}(?:\.\d{1,3}){3}|localhost|\]|\*|//[\w.-]+):(\d{1,5})\b"""
    r"""|\(\s*['"][^'"]*['"]\s*,\s*(\d{1,5})\b""",
    re.IGNORECASE,
)
"""``port: 29533``, ``127.0.0.1:29533``, ``('127.0.0.1', 29533)``."""


def in_use(rank: int, node: str, found: Evidence) -> str:
    """Return the sentence about a rank whose port another process of its node holds."""
    port = _port_in(found.exception or "") or _port_in(found.traceback or "")
    named = f"port {port}" if port else "a port"
    return (
        f"rank {rank} could not listen on {named}: another process on {node} holds it (EADDRINUSE)"
    )


def _port_in(text: str) -> str | None:
    """Return the last port that a text names, or None."""
    ports = [next(filter(None, match.groups())) for match in _PORT.finditer(text)]
    return next((port for port in reversed(ports) if 0 < int(port) < 65_536), None)
