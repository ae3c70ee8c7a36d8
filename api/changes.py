"""Write transactions of the api. Each writes its row of the audit.

:func:`of` is the only way to one: a change without a row, and a row without its change, are
impossible. Refused requests have rows too, in transactions of their own (:class:`Refusals`).

Not here: the rows (``storage.people.audit``), rights (``api.access``).
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import structlog

from lockstep.domain.audit import Action, AuditOutcome
from lockstep.domain.errors import LockstepError
from lockstep.domain.rights import ForbiddenError
from lockstep.storage.db.database import Database
from lockstep.storage.people import audit
from lockstep.storage.people.audit import AuditedChange, Sender

REFUSALS_MAX: Final = 20
"""Rows about refusals of one caller in ``REFUSALS_SECONDS``: a loop must not fill the disk."""
REFUSALS_SECONDS: Final = 60.0
CALLERS_MAX: Final = 1_000
"""Callers whose refusals are counted; the one with the oldest row is forgotten first."""

log = structlog.get_logger("api.changes")


@contextmanager
def of(
    database: Database,
    sender: Sender,
    action: Action,
    *,
    target: str | None = None,
    project: str | None = None,
) -> Iterator[AuditedChange]:
    """Begin a write transaction on the jobs database; at its end, add its row to the audit.

    An exception inside the block rolls both back.

    Parameters
    ----------
    database : Database
    sender : Sender
    action : Action
    target : str, optional
        Id or name of the changed object. A block that learns it later sets ``target``.
    project : str, optional
        Its project, if it has one.

    Raises
    ------
    RuntimeError
        At the end of a block that set no target, a defect. The change is rolled back.
    """
    with database.jobs() as session:
        change = AuditedChange(session, target, project)
        yield change
        if change.repeated:
            return
        if change.target is None:
            raise RuntimeError(f"the change {action} names no target for its row of the audit")
        audit.add(
            session,
            sender,
            action,
            target=change.target,
            project=change.project,
            detail=change.detail,
        )


def unaudited(database: Database) -> AbstractContextManager[Any]:
    """Begin a write transaction without a row: no person changes anything by it.

    For the time of the last use of a credential.
    """
    return database.jobs()


class Refusals:
    """Rows about missing rights. One per application; thread-safe.

    Parameters
    ----------
    database : Database
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic):
        self._database = database
        self._clock = clock
        self._written: OrderedDict[str, deque[float]] = OrderedDict()
        """Times of each caller's last rows."""
        self._lock = threading.Lock()

    def note(self, sender: Sender, refusal: ForbiddenError, target: str) -> None:
        """Add the row about a refusal, unless its caller has too many.

        A database that does not answer is logged: the request is refused without it, too.
        """
        if not self._may_write(sender.actor):
            return
        try:
            with self._database.jobs() as session:
                audit.add(
                    session,
                    sender,
                    refusal.right,
                    target=target,
                    project=refusal.project,
                    outcome=AuditOutcome.DENIED,
                )
        except LockstepError as error:
            log.warning("a refusal is not in the audit", actor=sender.actor, why=error.message)

    def _may_write(self, actor: str) -> bool:
        with self._lock:
            at = self._clock()
            times = self._written.setdefault(actor, deque(maxlen=REFUSALS_MAX))
            if len(times) == REFUSALS_MAX and at - times[0] < REFUSALS_SECONDS:
                return False
            times.append(at)
            self._written.move_to_end(actor)
            while len(self._written) > CALLERS_MAX:
                self._written.popitem(last=False)
        return True
