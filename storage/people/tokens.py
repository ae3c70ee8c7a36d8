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

from lockstep.domain.rights import Rights, Scope, ServiceRole, UserState
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.dialects import changed, upsert
from lockstep.storage.db.people_tables import TokenRow
from lockstep.storage.people import projects, users


def digest(plaintext: str) -> str:
    """Return the stored form of a token."""
    return hashlib.sha256(plaintext.encode("utf-8", "surrogatepass")).hexdigest()


def ensure(session: Session, plaintext: str, *, name: str, actor: str) -> str | None:
    """Store a token of an admin of the service, and the admin, if they are not stored yet.

    Returns the id of a new token.

    Parameters
    ----------
    session : Session
    plaintext : str
    name : str
        Label of the token.
    actor : str
        User as whom its bearer acts.
    """
    users.ensure(session, actor, role=ServiceRole.ADMIN)
    token_id = str(uuid_utils.uuid7())
    row = upsert(session, TokenRow).values(
        id=token_id,
        name=name,
        sha256=digest(plaintext),
        actor=actor,
        created_at=db_now(),
    )
    return token_id if changed(session, row.on_conflict_do_nothing()) else None


def find(session: Session, plaintext: str) -> TokenRow | None:
    """Return a token's row, valid or not."""
    statement = select(TokenRow).where(TokenRow.sha256 == digest(plaintext))
    return session.scalars(statement).one_or_none()


def why_refused(session: Session, token: TokenRow) -> tuple[str, float | None] | None:
    """Return why a token is refused and since when, or None if it is valid."""
    if token.revoked_at is not None:
        return "was revoked", token.revoked_at
    if token.expires_at is not None and token.expires_at <= now(session):
        return "has expired", token.expires_at
    owner = users.get(session, token.actor)
    if owner is None or owner.state is not UserState.ACTIVE:
        return "belongs to a person who is not active", None
    return None


def rights(session: Session, token: TokenRow) -> Rights:
    """Return the rights of a valid token: its owner's present ones in its scopes and projects."""
    owner = users.get(session, token.actor)
    assert owner is not None
    return Rights(
        service=owner.role,
        roles=projects.roles_of(session, owner.name),
        internal=projects.internal(session),
        scopes=None if token.scopes is None else frozenset(map(Scope, token.scopes)),
        projects=None if token.projects is None else frozenset(token.projects),
    )
