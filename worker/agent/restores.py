"""Rules for the leases of an agent whose database is restored from a backup.

==================================  ==========================================================
the database                        the ranks of this node
==================================  ==========================================================
does not answer                     live until their fence
is not whole, on the same server    live on: each look moves the fence, for an hour at most. No
                                    scheduler can give their work away
has no row of an assignment         live until their fence, and are killed then. No job starts on
                                    this node before
has the row, with another token or  are killed at once
in another state
==================================  ==========================================================

A scheduler that finds a restored database extends all leases, and starts no job before every fence
of the time before has passed (``scheduler.reconcile``).

Not here: recognition of a database that is not whole (``storage.db.whole``).
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from lockstep.system import processes
from lockstep.worker.folders import Folder
from lockstep.worker.launch.identity import launcher_key

log = structlog.get_logger(__name__)

HOLD_SECONDS_MAX = 3_600.0
"""Limit of one hold. A restore that failed must not keep devices busy without end."""


class Restores:
    """The restores that an agent sees. For one thread."""

    def __init__(self) -> None:
        self._absent: set[str] = set()
        self._held_since: float | None = None
        self._place: str | None = None

    def is_elsewhere(self, place: str) -> bool:
        """Return whether a backup was restored since the last heartbeat that was committed."""
        return self._place not in {None, place}

    def renewed(self, place: str) -> bool:
        """Note a heartbeat that was committed, and the place of the jobs database then.

        Returns
        -------
        bool
            Whether a backup was restored since the one before.
        """
        moved = self.is_elsewhere(place)
        self._place, self._held_since = place, None
        return moved

    def present(self, assignment_id: str) -> None:
        """Note that an assignment was renewed."""
        self._absent.discard(assignment_id)

    def is_over(self, assignment_id: str, fence_deadline: float, now: float) -> bool:
        """Return whether the fence of an assignment without a row has passed.

        Parameters
        ----------
        assignment_id : str
        fence_deadline, now : float
            Boottime.
        """
        if assignment_id not in self._absent:
            log.warning(
                "the database was restored without this assignment: it ends at its fence",
                assignment=assignment_id,
                seconds=round(max(0.0, fence_deadline - now)),
            )
            self._absent.add(assignment_id)
        return now >= fence_deadline

    def in_doubt(self, running: Iterable[str]) -> bool:
        """Return whether ranks of an absent assignment may live. Then no job may start here."""
        self._absent &= set(running)
        return bool(self._absent)

    def may_hold(self, now: float) -> bool:
        """Return whether a database that is not whole moves the fences; ``now`` is boottime."""
        if self._held_since is None:
            log.warning("the jobs database is not whole: the ranks are kept running")
            self._held_since = now
        return now - self._held_since < HOLD_SECONDS_MAX


def may_live(folders: Iterable[Folder], now: float) -> bool:
    """Return whether ranks of these attempts may live at this boottime."""
    return any(
        folder.fence() > now
        and (launcher := launcher_key(folder.launcher())) is not None
        and processes.is_alive(launcher)
        for folder in folders
    )
