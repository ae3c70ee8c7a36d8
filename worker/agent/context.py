"""Dependencies of every attempt on this node, as one value.

Not here: its construction (``worker.agent.supervisor``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from lockstep.domain.life.timings import Timings
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.worker.folders import Folder
from lockstep.worker.launch.fork_client import ForkServer
from lockstep.worker.launch.sweeping import Children


@dataclass(frozen=True)
class AttemptContext:
    """See the module."""

    database: Database
    blobs: BlobStore
    children: Children
    timings: Timings
    node_name: str
    node_address: Callable[[], str]
    """Return this node's address for other nodes.

    May raise OSError while a name does not resolve.
    """
    fork_server: ForkServer | None
    """Process that forks launchers; None starts each by ``launcher_command``."""
    launcher_command: Sequence[str]
    environment: Mapping[str, str]
    """The part of the agent's environment that launchers receive."""
    freed: Callable[[], None]
    """Called when devices have become free. Must not block."""
    retire: Callable[[Folder], None]
    """Delete the folder of an attempt that is over, or keep it for a look."""
