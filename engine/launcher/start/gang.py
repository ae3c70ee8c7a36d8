"""Description of a node's ranks, for their start.

Not here: the start (``engine.launcher.start.ranks``), watching the ranks
(``engine.launcher.watch``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol


class PeersUnreachableError(Exception):
    """The nodes of the attempt did not connect in time, or not at the agreed address."""


class RankProcess(Protocol):
    """One started rank, leader of its own process group. ``subprocess.Popen`` is one."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """Return the exit code, the negative signal number, or None while it runs. Thread-safe."""


@dataclass(frozen=True)
class Gang:
    """Description of this node's ranks for a launcher."""

    run_id: str
    node_rank: int
    node_count: int
    ranks_here: int
    world_size: int
    rendezvous_host: str
    rendezvous_port: int
    argv: tuple[str, ...]
    """Command of every rank that is started by exec."""
    launch_folder: Path
    """Folder with the files of ``engine.launcher.start.stub``."""
    prepare: Callable[[int], Mapping[str, str]]
    """Called once per rank, with its global rank, before any is started. Opens the rank's pipes and
    returns the variables that override torchrun's."""
    error_file: Callable[[int], Path]
    """Path of a rank's exception, written by torch's ``record`` decorator."""
    ended: Callable[[], bool]
    """Return whether the attempt was ended: no further rank is started."""
    log_line: Callable[[str], None]
    """Writes a line into the job's log."""
    stopping: Callable[[], bool]
    """Return whether the ranks were asked to stop. An exit is then not a failure, and the others
    may finish."""
    settle: Callable[[], object]
    """Finds the rank that the failed ones have lost, before the others are ended."""


class GangPlace(NamedTuple):
    """Place of a node's ranks among those of all nodes."""

    first: int
    """Global rank of the node's first."""
    port: int
    """Port at which rank 0 opens the ranks' own store."""
