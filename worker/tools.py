"""What every attempt on this node works with, as one value.

Not here: making it (``worker.supervisor``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from domain.timings import Timings
from storage.blobs import BlobStore
from storage.database import Database
from worker.folders import Folder
from worker.sweeping import Children


@dataclass(frozen=True)
class Tools:
    """See the module."""

    database: Database
    blobs: BlobStore
    children: Children
    timings: Timings
    node_name: str
    node_address: Callable[[], str]
    """Where other nodes reach this one. May raise OSError while a name cannot be looked up."""
    launcher_command: Sequence[str]
    environment: Mapping[str, str]
    """The agent's own; what of it a launcher sees is ``launching.environment_of``."""
    freed: Callable[[], None]
    """Called when devices have become free. Must not block."""
    retire: Callable[[Folder], None]
    """Delete the folder of an attempt that is over, or keep it for a look."""
