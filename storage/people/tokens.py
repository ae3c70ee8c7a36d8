"""Bearer tokens, of which only the SHA-256 is kept.

A token is 128 random bits or more, so a fast hash without salt is enough: there is no dictionary of
them to try.

Not here: reading it from a request, and making and keeping the first one (``api.auth.bearer``).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import uuid_utils
from sqlalchemy import and_, or_, select, update
from sqlalchemy.orm import Session

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.people_views import TOKEN_DAYS_MAX, TokenNew
from lockstep.domain.rights import Rights, Scope, ServiceRole, UserState
from lockstep.storage.db.clock import db_now, now
from lockstep.storage.db.dialects import changed, upsert, write
from lockstep.storage.db.people_tables import TokenRow, UserRow
from lockstep.storage.people import credentials, projects, sessions, users
from lockstep.storage.people.credentials import digest

_DAY_SECONDS: Final = 24 * 3600
USED_SECONDS: Final = 60.0
"""Between two writes of the last use."""


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
        prefix=plaintext[: credentials.SHOWN_CHARS],
        actor=actor,
        created_at=db_now(),
    )
    return token_id if changed(session, row.on_conflict_do_nothing()) else None


def create(session: Session, new: TokenNew, *, owner: UserRow) -> tuple[TokenRow, str]:
    """Store a new token; return its row and its secret.

    Parameters
    ----------
    session : Session
    new : TokenNew
        Its ``owner`` is not used.
    owner : UserRow
    """
    secret = credentials.make(credentials.PROGRAM if owner.service else credentials.USER)
    at = now(session)
    row = TokenRow(
        id=str(uuid_utils.uuid7()),
        name=new.name,
        sha256=digest(secret),
        prefix=secret[: credentials.SHOWN_CHARS],
        actor=owner.name,
        scopes=None if new.scopes is None else [scope.value for scope in new.scopes],
        projects=new.projects,
        created_at=at,
        expires_at=at + new.days * _DAY_SECONDS,
    )
    session.add(row)
    session.flush()
    return row, secret


def rotate(session: Session, row: TokenRow, *, overlap_hours: int) -> str:
    """Give a token a new secret, and return it; the old one stays valid for some hours.

    The new secret lives as long as the first one. Sessions and codes that the token has started end
    with the old one.

    Parameters
    ----------
    session : Session
    row : TokenRow
        As :func:`hold` returns it.
    overlap_hours : int
        0 ends the old secret at once.

    Raises
    ------
    LockstepError
        ``CONFLICT`` for a token that is not valid, or whose overlap runs, unless ``overlap_hours``
        is 0.
    """
    if (refused := why_refused(session, row)) is not None:
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"token {row.id} {refused[0]}; it gets no new secret",
            next_step="Make a new token: lockstep token create",
        )
    at = now(session)
    if overlap_hours and row.overlap_until is not None and row.overlap_until > at:
        until = f"{datetime.fromtimestamp(row.overlap_until, UTC):%Y-%m-%d %H:%M:%S} UTC"
        raise LockstepError(
            ErrorCode.CONFLICT,
            f"token {row.id} was rotated, and its secret before that is valid until {until}; it "
            "gets no third secret",
            next_step="Wait until then, or rotate it with an overlap of 0 hours: both end at once.",
        )
    secret = credentials.make(row.prefix[:4] or credentials.USER)
    row.overlap_sha256, row.overlap_until = row.sha256, at + overlap_hours * 3600
    sessions.end_with_overlap(session, row.id, row.overlap_until)
    row.sha256, row.prefix = digest(secret), secret[: credentials.SHOWN_CHARS]
    if row.expires_at is not None:
        # A token that an older version has rotated may have more than it had at first.
        life = min(row.expires_at - row.created_at, TOKEN_DAYS_MAX * _DAY_SECONDS)
        row.created_at, row.expires_at = at, at + life
    session.flush()
    return secret


def revoke(session: Session, row: TokenRow) -> None:
    """Revoke a token, if it is not revoked yet."""
    row.revoked_at = row.revoked_at or now(session)
    session.flush()


def get(session: Session, token_id: str) -> TokenRow:
    """Return a token by its id.

    Raises
    ------
    LockstepError
        ``NOT_FOUND``.
    """
    row = None if "\0" in token_id else session.get(TokenRow, token_id)
    if row is None:
        raise unknown(token_id)
    return row


def hold(session: Session, token_id: str) -> TokenRow:
    """Return a token by its id, and keep it and its owner as they are until the transaction ends.

    The use of a sign-in code holds the owner, too: its session is either seen, or begins later.

    Raises
    ------
    LockstepError
        ``NOT_FOUND``.
    """
    row = get(session, token_id)
    owner = select(UserRow.name).where(UserRow.name == row.actor)
    session.execute(owner.with_for_update())
    session.refresh(row, with_for_update=True)
    return row


def unknown(token_id: str) -> LockstepError:
    """Return the refusal of an id of no token, or of one that the caller may not see."""
    return LockstepError(
        ErrorCode.NOT_FOUND,
        f"there is no token {token_id!r}",
        next_step="List your tokens with: lockstep token ls",
    )


def of_owner(session: Session, owner: str) -> list[TokenRow]:
    """Return a person's tokens, newest first."""
    rows = select(TokenRow).where(TokenRow.actor == owner)
    return list(session.scalars(rows.order_by(TokenRow.id.desc())))


def note_use(session: Session, token_id: str) -> None:
    """Store that a token is in use, at most once a minute."""
    old = or_(TokenRow.used_at.is_(None), TokenRow.used_at < db_now() - USED_SECONDS)
    used = update(TokenRow).where(TokenRow.id == token_id, old).values(used_at=db_now())
    write(session, used)


def find(session: Session, plaintext: str) -> TokenRow | None:
    """Return a token's row, valid or not."""
    sha256 = digest(plaintext)
    overlap = and_(TokenRow.overlap_sha256 == sha256, TokenRow.overlap_until > db_now())
    statement = select(TokenRow).where(or_(TokenRow.sha256 == sha256, overlap))
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
    return replace(
        rights_of(session, token.actor),
        scopes=None if token.scopes is None else frozenset(map(Scope, token.scopes)),
        projects=None if token.projects is None else frozenset(token.projects),
    )


def rights_of(session: Session, user_name: str) -> Rights:
    """Return the present rights of a person."""
    owner = users.get(session, user_name)
    assert owner is not None
    return Rights(
        service=owner.role,
        roles=projects.roles_of(session, owner.name),
        internal=projects.internal(session),
    )
