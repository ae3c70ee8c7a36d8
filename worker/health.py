"""Sign of life of a node agent.

A file that is touched with every heartbeat that reached the database.

The containers' health check reads it (``docker/health.py``), with nothing but the standard library:
one that asked the database for its node cost a second of CPU every ten seconds on each node.

Not here: heartbeats (``worker.agent.supervisor``).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

NAME: Final = ".health"


class HealthFile:
    """A file in the node's folder. It holds the seconds for which a heartbeat is a sign of life."""

    def __init__(self, node_dir: Path, valid_seconds: float):
        self._path = node_dir / NAME
        self._valid_seconds = valid_seconds

    def note_heartbeat(self) -> None:
        """Note a heartbeat. Where the file is there, this needs no space on the disk."""
        if not self._path.exists():
            self._path.write_text(f"{self._valid_seconds}\n")
        os.utime(self._path)

    def remove(self) -> None:
        """Remove the sign of an agent that ends, or that was killed before this one began."""
        self._path.unlink(missing_ok=True)
