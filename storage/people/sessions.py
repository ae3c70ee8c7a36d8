"""Sessions of people: each is one sign-in, of which only the SHA-256 of its token is kept.

A session is valid until it is ended, for 12 hours without a request, and for 30 days at most. Its
owner must be active. A session that was started by a token is valid as long as the token, and at
most until the overlap of a rotation ends: the old secret may have started it.

Not here: checks of a password (``api.auth.passwords``), reading a token from a request
(``api.auth.bearer``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, delete, insert, or_, select, update
from sqlalchemy.orm import Session

from lockstep.domain.rights import UserState
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.dialects import changed, write
from lockstep.storage.db.people_tables import SessionRow, SignInCodeRow, TokenRow, UserRow
from lockstep.storage.people import credentials
from lockstep.storage.people.credentials import digest

IDLE_SECONDS: Final = 12 * 3600.0
"""Time without a request after which a session is over."""
LIFE_SECONDS: Final = 30 * 86_400.0
TOUCH_SECONDS: Final = 60.0
"""``seen_at`` is written at most once in this time."""
OF_USER_MAX: Final = 100
"""Valid sessions of one person; a further sign-in ends the oldest."""
AGENT_CHARS_MAX: Final = 200
ADDRESS_CHARS_MAX: Final = 64
ID_CHARS: Final = 16
"""Hexadecimal digits of the SHA-256 that identify a session on a list."""


@dataclass(frozen=True)
class Origin:
    """Sender of a sign-in."""

    address: str
    agent: str


def start(
    session: Session, user_name: str, origin: Origin, *, token_id: str | None = None
) -> tuple[str, float]:
    """Start a session; return its token, which is stored nowhere, and its end.

    Sessions of this person that are over are deleted.

    Parameters
    ----------
    session : Session
    user_name : str
    origin : Origin
    token_id : str, optional
        Token whose rights the session has; by default, it has all rights of its owner.
    """
    token = credentials.make(credentials.SESSION)
    at = now(session)
    end = min(at + LIFE_SECONDS, overlap_end(session, token_id))
    row = {
        "sha256": digest(token),
        "user_name": user_name,
        "address": origin.address[:ADDRESS_CHARS_MAX],
        "agent": origin.agent[:AGENT_CHARS_MAX],
        "created_at": at,
        "seen_at": at,
        "expires_at": end,
        "token_id": token_id,
    }
    write(session, insert(SessionRow).values(row))
    newest = select(SessionRow.sha256).where(SessionRow.user_name == user_name, *_valid())
    kept = newest.order_by(SessionRow.created_at.desc(), SessionRow.sha256).limit(OF_USER_MAX)
    rest = [SessionRow.user_name == user_name, SessionRow.sha256.not_in(kept.scalar_subquery())]
    write(session, delete(SessionRow).where(*rest))
    return token, end


def overlap_end(session: Session, token_id: str | None) -> float:
    """Return the end of a token's overlap; infinity without a token, or if no overlap runs."""
    until = select(TokenRow.overlap_until).where(
        TokenRow.id == token_id, TokenRow.overlap_until > db_now()
    )
    return session.scalars(until).one_or_none() or math.inf


def end_with_overlap(session: Session, token_id: str, until: float) -> None:
    """End at this time what a token has started: its sessions, and codes that would start one."""
    codes = update(SignInCodeRow).where(
        SignInCodeRow.token_id == token_id, SignInCodeRow.expires_at > until
    )
    write(session, codes.values(expires_at=until))
    started = update(SessionRow).where(
        SessionRow.token_id == token_id, SessionRow.expires_at > until
    )
    write(session, started.values(expires_at=until))


def was_started_from(session: Session, user_name: str, address: str) -> bool:
    """Return whether a stored session of a person, over or not, was started from an address."""
    begun = select(SessionRow.sha256).where(
        SessionRow.user_name == user_name, SessionRow.address == address[:ADDRESS_CHARS_MAX]
    )
    return session.scalars(begun.limit(1)).first() is not None


def find(session: Session, token: str) -> SessionRow | None:
    """Return the valid session of a token, if there is one."""
    if not credentials.is_whole(token, credentials.SESSION):
        return None
    owner = UserRow.name == SessionRow.user_name
    statement = (
        select(SessionRow)
        .join(UserRow, owner)
        .where(SessionRow.sha256 == digest(token), UserRow.state == UserState.ACTIVE, *_valid())
    )
    return session.scalars(statement).one_or_none()


def touch(session: Session, sha256: str) -> None:
    """Note a request of a session, at most once a minute."""
    due = SessionRow.seen_at < db_now() - TOUCH_SECONDS
    statement = update(SessionRow).where(SessionRow.sha256 == sha256, due, *_valid())
    write(session, statement.values(seen_at=db_now()))


def of_user(session: Session, user_name: str) -> Sequence[SessionRow]:
    """Return the valid sessions of a person, newest first."""
    rows = select(SessionRow).where(SessionRow.user_name == user_name, *_valid())
    return session.scalars(rows.order_by(SessionRow.created_at.desc(), SessionRow.sha256)).all()


def end(session: Session, user_name: str, session_id: str) -> bool:
    """End a session of a person; return False if there is no valid one of this id.

    Parameters
    ----------
    session : Session
    user_name : str
    session_id : str
        The first 16 digits of its SHA-256, or all of them.
    """
    begins = SessionRow.sha256.startswith(session_id, autoescape=True)
    return len(session_id) >= ID_CHARS and _end(session, user_name, begins) > 0


def end_all(session: Session, user_name: str, *, but: str | None = None) -> int:
    """End the sessions of a person, except the one of the SHA-256 ``but``; return their number.

    Codes that would start one are deleted.
    """
    write(session, delete(SignInCodeRow).where(SignInCodeRow.user_name == user_name))
    return _end(session, user_name, *([] if but is None else [SessionRow.sha256 != but]))


def _end(session: Session, user_name: str, *which: ColumnElement[bool]) -> int:
    statement = update(SessionRow).where(SessionRow.user_name == user_name, *which, *_valid())
    return changed(session, statement.values(ended_at=db_now()))


def _valid() -> tuple[ColumnElement[bool], ...]:
    in_time = or_(TokenRow.expires_at.is_(None), TokenRow.expires_at > db_now())
    valid_tokens = select(TokenRow.id).where(TokenRow.revoked_at.is_(None), in_time)
    return (
        SessionRow.ended_at.is_(None),
        SessionRow.seen_at > db_now() - IDLE_SECONDS,
        SessionRow.expires_at > db_now(),
        or_(SessionRow.token_id.is_(None), SessionRow.token_id.in_(valid_tokens)),
    )
