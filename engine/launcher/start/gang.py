"""Interface between an attempt and the way its ranks are started.

``engine.launcher.start.one_node`` starts ranks on one node, ``engine.launcher.start.elastic`` on
several. The rest of this package does not depend on the choice.

Not here: watching the ranks (``engine.launcher.watch``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


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


class Launcher(Protocol):
    """Method of starting a gang."""

    def run(self, gang: Gang, on_started: Callable[[Mapping[int, RankProcess]], None]) -> None:
        """Start the ranks and return once each of them has ended.

        Runs in the main thread, which must not end before the ranks do. Once one rank has failed
        the others get SIGTERM. Ranks are never restarted, because retries belong to the service.

        Parameters
        ----------
        gang : Gang
        on_started : callable
            Called once, when all ranks of this node run, with their processes by global rank.

        Raises
        ------
        PeersUnreachableError
            If the rendezvous of the nodes failed.
        Exception
            Any other error that prevented the start of the ranks.
        """
