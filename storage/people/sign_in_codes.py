"""Codes that start one session: each hands the access of a command over to a browser.

A code is used once, within a minute. The session has the rights of the caller who asked for the
code: those of a token, or all of a person who has signed in.

Not here: the session (``storage.people.sessions``), invitations (``storage.people.users``).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Select, delete, insert, select
from sqlalchemy.orm import Session

from lockstep.domain.rights import UserState
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.dialects import changed, write
from lockstep.storage.db.people_tables import SignInCodeRow, UserRow
from lockstep.storage.people import credentials, sessions
from lockstep.storage.people.credentials import digest

LIFE_SECONDS: Final = 60.0


def create(session: Session, user_name: str, *, token_id: str | None) -> tuple[str, float]:
    """Store a new code; return it and its end. Codes that are over are deleted.

    Parameters
    ----------
    session : Session
    user_name : str
    token_id : str, optional
        Token of the caller, or None after a sign-in with a password.
    """
    write(session, delete(SignInCodeRow).where(SignInCodeRow.expires_at <= db_now()))
    # The lock of the person makes this wait for a rotation, which ends the codes of its token.
    session.execute(select(UserRow.name).where(UserRow.name == user_name).with_for_update())
    code = credentials.make(credentials.SIGN_IN_CODE)
    end = min(now(session) + LIFE_SECONDS, sessions.overlap_end(session, token_id))
    row = {
        "sha256": digest(code),
        "user_name": user_name,
        "token_id": token_id,
        "expires_at": end,
    }
    write(session, insert(SignInCodeRow).values(row))
    return code, end


def owner(session: Session, code: str) -> str | None:
    """Return the name of the active person of a code that is still valid."""
    if not credentials.is_whole(code, credentials.SIGN_IN_CODE):
        return None
    return session.scalars(_valid(code).with_only_columns(UserRow.name)).one_or_none()


def use(session: Session, code: str) -> SignInCodeRow | None:
    """Use a code up, and return its row. None if it is not valid, or another request was first."""
    # The lock of the person makes this wait for a deactivation, which ends all sessions.
    row = session.scalars(_valid(code).with_for_update(of=UserRow)).one_or_none()
    used = delete(SignInCodeRow).where(SignInCodeRow.sha256 == digest(code))
    return row if row is not None and changed(session, used) == 1 else None


def _valid(code: str) -> Select[SignInCodeRow]:
    return (
        select(SignInCodeRow)
        .join(UserRow, UserRow.name == SignInCodeRow.user_name)
        .where(
            SignInCodeRow.sha256 == digest(code),
            SignInCodeRow.expires_at > db_now(),
            UserRow.state == UserState.ACTIVE,
        )
    )
