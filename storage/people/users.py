"""People who use the service.

Not here: their roles in projects (``storage.people.projects``), their tokens
(``storage.people.tokens``).
"""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from lockstep.domain.rights import ServiceRole, UserState
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import upsert, write
from lockstep.storage.db.people_tables import UserRow


def ensure(
    session: Session,
    name: str,
    *,
    role: ServiceRole | None = None,
    state: UserState = UserState.ACTIVE,
) -> None:
    """Add a person, if the name is not in use yet."""
    row = upsert(session, UserRow).values(name=name, role=role, state=state, created_at=db_now())
    write(session, row.on_conflict_do_nothing())


def get(session: Session, name: str) -> UserRow | None:
    """Return a person by name."""
    return session.get(UserRow, name, populate_existing=True)


def is_alone(session: Session, name: str) -> bool:
    """Return whether no other person is active."""
    others = select(UserRow.name).where(UserRow.state == UserState.ACTIVE, UserRow.name != name)
    return session.scalars(others.limit(1)).first() is None
