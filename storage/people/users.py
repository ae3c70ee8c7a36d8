"""People who use the service, and programs that do.

Not here: their roles in projects (``storage.people.projects``), their tokens and sessions
(``storage.people.tokens``, ``storage.people.sessions``), hashing a password
(``api.auth.passwords``).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.people_views import UserChange, UserNew
from lockstep.domain.rights import ServiceRole, UserState
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import changed, upsert, write
from lockstep.storage.db.people_tables import UserRow
from lockstep.storage.people import credentials
from lockstep.storage.people.credentials import digest

INVITATION_SECONDS: Final = 7 * 86_400.0
RESTORE_SECONDS: Final = 3600.0
"""Life of the code that a command on the server's machine prints."""

RESERVED: Final = frozenset({"admin", "lockstep", "anybody"})
"""Names that the service itself uses."""


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


def find(session: Session, name: str) -> UserRow:
    """Return a person by name.

    Raises
    ------
    LockstepError
        ``NOT_FOUND``.
    """
    row = None if "\0" in name else get(session, name)
    if row is None:
        raise LockstepError(
            ErrorCode.NOT_FOUND,
            f"there is no person {name!r}",
            next_step="List all people with: lockstep user ls",
        )
    return row


def all_users(session: Session) -> list[UserRow]:
    """Return all people, by name."""
    return list(session.scalars(select(UserRow).order_by(UserRow.name)))


def is_alone(session: Session, name: str) -> bool:
    """Return whether no other person is active."""
    others = select(UserRow.name).where(
        UserRow.state == UserState.ACTIVE, UserRow.service.is_(False), UserRow.name != name
    )
    return session.scalars(others.limit(1)).first() is None


def add(session: Session, new: UserNew) -> UserRow:
    """Add a person, invited, or a program, active.

    Raises
    ------
    LockstepError
        ``CONFLICT`` for a name that is or was in use.
    """
    row = upsert(session, UserRow).values(
        name=new.name,
        title=new.title,
        service=new.service,
        role=new.role,
        state=UserState.ACTIVE if new.service else UserState.INVITED,
        created_at=db_now(),
    )
    if new.name in RESERVED or not changed(session, row.on_conflict_do_nothing()):
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"the name {new.name!r} is in use, or was; names are never used again",
            next_step="Choose another name.",
        )
    return session.get_one(UserRow, new.name)


def change(session: Session, name: str, changes: UserChange) -> UserRow:
    """Change the given fields of a person.

    Raises
    ------
    LockstepError
        ``NOT_FOUND``; ``CONFLICT`` if no active admin of the service would be left.
    """
    # Admins in one order: of two that take each other's role, the second waits and is refused.
    admins = select(UserRow).where(
        UserRow.role == ServiceRole.ADMIN,
        UserRow.state == UserState.ACTIVE,
        UserRow.service.is_(False),
    )
    list(session.scalars(admins.order_by(UserRow.name).with_for_update()))
    row = find(session, name)
    given = changes.model_fields_set
    if "title" in given:
        row.title = changes.title or ""
    if "role" in given:
        row.role = changes.role
    if changes.active is not None:
        row.state = _state(row, active=changes.active)
    session.flush()
    if session.scalars(admins.limit(1)).first() is None:
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"{name} is the last active admin of the service; nothing was changed",
            next_step="Make another person an admin first: lockstep user set NAME --role admin",
        )
    return row


def before(session: Session, name: str) -> dict[str, object]:
    """Return the values of a person that a change may give; none for an unknown name.

    The row itself stays unread: a change reads it under its lock.
    """
    if "\0" in name:
        return {}
    values = select(UserRow.title, UserRow.role, UserRow.state).where(UserRow.name == name)
    found = session.execute(values).one_or_none()
    if found is None:
        return {}
    return {
        "title": found.title,
        "role": found.role,
        "active": found.state is UserState.ACTIVE,
    }


def _state(row: UserRow, *, active: bool) -> UserState:
    if not active:
        row.code_sha256 = row.code_until = None  # An old invitation gives no access later.
        return UserState.OFF
    return UserState.ACTIVE if row.state is not UserState.INVITED else UserState.INVITED


def invite(session: Session, name: str, *, life_seconds: float = INVITATION_SECONDS) -> str:
    """Give a person a new invitation code in place of the present one, and return it.

    Raises
    ------
    LockstepError
        ``conflict`` for a person who is unknown or deactivated.
    """
    code = credentials.make(credentials.INVITATION)
    statement = update(UserRow).where(
        UserRow.name == name, UserRow.state != UserState.OFF, UserRow.service.is_(False)
    )
    values = {"code_sha256": digest(code), "code_until": db_now() + life_seconds}
    if not changed(session, statement.values(values)):
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"{name} is no person of this service, or is deactivated; nothing was written",
            next_step="add or activate the person first",
        )
    return code


def invited(session: Session, code: str) -> str | None:
    """Return the name of the person to whom a code that is still valid was given."""
    if not credentials.is_whole(code, credentials.INVITATION):
        return None
    return session.scalars(select(UserRow.name).where(*_may_use(code))).one_or_none()


def accept(session: Session, code: str, password: str) -> bool:
    """Use an invitation code: store the hash of the password, and make its person active.

    Return False if the code is not valid any more: of two requests, one uses it.
    """
    statement = update(UserRow).where(*_may_use(code))
    values = {
        "password": password,
        "state": UserState.ACTIVE,
        "code_sha256": None,
        "code_until": None,
    }
    return changed(session, statement.values(values)) == 1


def _may_use(code: str) -> tuple[ColumnElement[bool], ...]:
    return (
        UserRow.code_sha256 == digest(code),
        UserRow.code_until > db_now(),
        UserRow.state != UserState.OFF,
    )


def password_of(session: Session, name: str) -> str | None:
    """Return the hash of the password of an active person; None without one."""
    row = get(session, name)
    return row.password if row is not None and row.state is UserState.ACTIVE else None


def set_password(session: Session, name: str, password: str, *, before: str) -> bool:
    """Replace the hash of a password; return False if it is not ``before`` any more."""
    same = (UserRow.name == name, UserRow.password == before, UserRow.state == UserState.ACTIVE)
    return changed(session, update(UserRow).where(*same).values(password=password)) == 1


def restore(session: Session, name: str) -> str:
    """Make a person an active admin of the service; return an invitation code of one hour.

    Raises
    ------
    LockstepError
        ``conflict`` for a program, and for a name that the service itself uses.
    """
    if name not in RESERVED - {"admin"}:
        ensure(session, name)
    statement = update(UserRow).where(UserRow.name == name, UserRow.service.is_(False))
    write(session, statement.values(role=ServiceRole.ADMIN, state=UserState.ACTIVE))
    return invite(session, name, life_seconds=RESTORE_SECONDS)
