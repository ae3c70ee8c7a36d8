"""Bearer tokens, of which only the SHA-256 is kept.

A token is 128 random bits or more, so a fast hash without salt is enough: there is no dictionary of
them to try.

Not here: reading it from a request, and making and keeping the first one (``api.auth.bearer``).
"""

from __future__ import annotations

import hashlib

import uuid_utils
from sqlalchemy import select
from sqlalchemy.orm import Session

from lockstep.storage.db.clock import db_now
from lockstep.storage.db.dialects import upsert, write
from lockstep.storage.db.tables import TokenRow


def digest(plaintext: str) -> str:
    """Return the stored form of a token."""
    return hashlib.sha256(plaintext.encode("utf-8", "surrogatepass")).hexdigest()


def ensure(session: Session, plaintext: str, *, name: str, actor: str) -> None:
    """Store a token, if it is not stored yet.

    Parameters
    ----------
    session : Session
    plaintext : str
    name : str
        Label of the token.
    actor : str
        User as whom its bearer acts.
    """
    row = upsert(session, TokenRow).values(
        id=str(uuid_utils.uuid7()),
        name=name,
        sha256=digest(plaintext),
        actor=actor,
        created_at=db_now(),
    )
    write(session, row.on_conflict_do_nothing())


def verify(session: Session, plaintext: str) -> TokenRow | None:
    """The token's row if it is valid."""
    statement = select(TokenRow).where(
        TokenRow.sha256 == digest(plaintext), TokenRow.revoked_at.is_(None)
    )
    return session.scalars(statement).one_or_none()


def revoked_at(session: Session, plaintext: str) -> float | None:
    """The time at which a stored token was revoked; None for valid and unknown tokens."""
    statement = select(TokenRow.revoked_at).where(TokenRow.sha256 == digest(plaintext))
    return session.scalars(statement).one_or_none()
