"""The audit: a row for each change that a request made, and for each that was refused.

Rows are added, in the transaction of the change, and never changed or deleted.

Not here: the transactions (``api.changes``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import insert, select
from sqlalchemy.orm import Session

from lockstep.domain.audit import Action, AuditOutcome
from lockstep.domain.rights import Right, Within
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import run, table_of
from lockstep.storage.db.people_tables import AUDIT_TARGET_CHARS_MAX, AuditRow

_ADDED: Final = insert(table_of(AuditRow)).values(at=db_now())


@dataclass(frozen=True)
class Sender:
    """Origin of a change: a person, with the token, the client's address and the request."""

    actor: str
    token: str | None = None
    """Id of the token."""
    address: str | None = None
    request_id: str | None = None


@dataclass
class AuditedChange:
    """A write transaction, and the content of its row."""

    session: Session
    target: str | None = None
    """Id or name of the changed object. Required at the end of the transaction."""
    project: str | None = None
    detail: dict[str, Any] = field(default_factory=dict)
    """Facts about the change, such as ``before`` and ``after``. Never a secret."""
    repeated: bool = False
    """True if an earlier request made the change, and this one nothing: there is no row."""

    def of(self, target: str, project: str | None, **detail: object) -> None:
        """Set what is changed."""
        self.target, self.project, self.detail = target, project, detail


def add(
    session: Session,
    sender: Sender,
    action: Action | Right,
    *,
    target: str,
    project: str | None,
    outcome: AuditOutcome = AuditOutcome.OK,
    detail: dict[str, Any] | None = None,
) -> None:
    """Add a row, in the transaction of the change."""
    row = {
        "actor": sender.actor,
        "token": sender.token,
        "address": sender.address,
        "request_id": sender.request_id,
        "action": action,
        "target": target[:AUDIT_TARGET_CHARS_MAX],
        "project": project,
        "outcome": outcome,
        "detail": detail or None,
    }
    run(session, _ADDED, row)


def page(
    session: Session,
    *,
    among: Within,
    actor: str | None = None,
    action: str | None = None,
    project: str | None = None,
    before: int | None = None,
    limit: int,
) -> tuple[list[AuditRow], int | None]:
    """Return rows of some projects, newest first, and ``before`` of the next page, if there is one.

    Rows that belong to no project are only for readers of every project.
    """
    found = select(AuditRow).order_by(AuditRow.id.desc()).limit(limit + 1)
    if among.projects is not None:
        found = found.where(AuditRow.project.in_(sorted(among.projects)))
    for column, value in (
        (AuditRow.actor, actor),
        (AuditRow.action, action),
        (AuditRow.project, project),
    ):
        if value is not None:
            found = found.where(column == value)
    if before is not None:
        found = found.where(AuditRow.id < before)
    rows = list(session.scalars(found))
    return rows[:limit], rows[limit - 1].id if len(rows) > limit else None
