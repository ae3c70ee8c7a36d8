"""Authentication by bearer token, and the first token of an installation.

Everything under ``/v1`` needs a token, unless authentication is off (``Guard.required``). It is
looked up by its SHA-256. Digests are compared in an index, and the duration reveals nothing about
the token. Results are cached for seconds, since a dashboard sends several requests per second.

A token that begins with ``lst_`` is of a session. It has all rights of its owner, or those of the
token by which it was started.

Not here: the rights of a caller (``api.access``), storing tokens and sessions
(``storage.people.tokens``, ``storage.people.sessions``).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from lockstep.api import changes
from lockstep.domain.audit import Action
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.rights import Rights, ServiceRole
from lockstep.storage.db.clock import now
from lockstep.storage.db.database import Database
from lockstep.storage.people import credentials, sessions, tokens
from lockstep.storage.people.audit import Sender

REMEMBER_SECONDS: Final = 10.0
"""Maximum time for which a revoked token, or a right that was taken, remains valid."""
REMEMBERED_MAX: Final = 1_000
TOKEN_CHARS_MIN: Final = 20
TOKEN_CHARS_MAX: Final = 500
_HOW_TO_SEND: Final = (
    "send Authorization: Bearer TOKEN; on the service's machine the token is in "
    "LOCKSTEP_TOKEN_FILE "
    "(with lockstep up: the file token in LOCKSTEP_HOME)"
)


@dataclass(frozen=True)
class Caller:
    """Sender of a request."""

    name: str
    rights: Rights
    credential: Literal["token", "session", "none"] = "none"
    session: str | None = None
    """SHA-256 of the session's token, of a caller who has signed in."""
    expires_at: float | None = None
    token: str | None = None
    """Id of the token, or of the one by which the session was started."""


WITHOUT_SIGN_IN: Final = Caller("admin", Rights(service=ServiceRole.ADMIN))
"""Caller of all requests if authentication is off."""


class Guard:
    """Authenticator of bearer tokens with a cache. One per application; thread-safe."""

    def __init__(
        self, database: Database, *, required: bool, clock: Callable[[], float] = time.monotonic
    ):
        self._database = database
        self.required = required
        """False if authentication is off."""
        self._clock = clock
        self._known: OrderedDict[bytes, tuple[Caller, float]] = OrderedDict()
        self._forgotten = 0
        """Number of calls of :meth:`forget`."""
        self._lock = threading.Lock()

    def remembered(self, authorization: str | None) -> Caller | None:
        """Return the caller if no database look-up is needed, else None.

        Raises
        ------
        LockstepError
            ``unauthenticated`` without a bearer token.
        """
        if not self.required:
            return WITHOUT_SIGN_IN
        with self._lock:
            found = self._known.get(_digest(_bearer(authorization)))
        return found[0] if found is not None and found[1] > self._clock() else None

    def forget(self) -> None:
        """Look all callers up again: a right or a token has changed."""
        with self._lock:
            self._known.clear()
            self._forgotten += 1

    def look_up(self, authorization: str | None) -> Caller:
        """Look the caller up in the database.

        Raises
        ------
        LockstepError
            ``unauthenticated`` when the token is missing or not valid.
        """
        token = _bearer(authorization)
        forgotten = self._forgotten
        if token.startswith(credentials.SESSION):
            caller, at = self._of_session(token)
        else:
            caller, at = self._of_token(token)
        # Not beyond its end: an expired token is refused at once.
        left = REMEMBER_SECONDS if caller.expires_at is None else caller.expires_at - at
        seconds = min(REMEMBER_SECONDS, left)
        with self._lock:
            # A change since then has forgotten a caller who was read before it.
            if forgotten == self._forgotten:
                self._known[_digest(token)] = (caller, self._clock() + seconds)
            while len(self._known) > REMEMBERED_MAX:
                self._known.popitem(last=False)
        return caller

    def _of_token(self, token: str) -> tuple[Caller, float]:
        """Return the caller, and the database's time."""
        with self._database.read_jobs() as session:
            row = None if credentials.is_mistyped(token) else tokens.find(session, token)
            if row is None:
                raise _refusal("is unknown to this service", None)
            if (refused := tokens.why_refused(session, row)) is not None:
                raise _refusal(*refused)
            rights = tokens.rights(session, row)
            at = now(session)
            is_due = row.used_at is None or row.used_at < at - tokens.USED_SECONDS
        if is_due:
            self._store(lambda session: tokens.note_use(session, row.id))
        return Caller(row.actor, rights, "token", expires_at=row.expires_at, token=row.id), at

    def _store(self, write: Callable[[Any], None]) -> None:
        """Store that a credential is in use. A full disk must refuse no caller."""
        with contextlib.suppress(LockstepError), changes.unaudited(self._database) as session:
            write(session)

    def _of_session(self, token: str) -> tuple[Caller, float]:
        with self._database.read_jobs() as session:
            row = sessions.find(session, token)
            if row is None:
                raise _refusal("is of a session that is over", None)
            by_token = None if row.token_id is None else tokens.get(session, row.token_id)
            rights = (
                tokens.rights_of(session, row.user_name)
                if by_token is None
                else tokens.rights(session, by_token)
            )
            at = now(session)
            is_due = row.seen_at < at - sessions.TOUCH_SECONDS
        if is_due:
            self._store(lambda session: sessions.touch(session, row.sha256))
        end, token_id = row.expires_at, row.token_id
        return Caller(row.user_name, rights, "session", row.sha256, end, token=token_id), at


def token_key(authorization: str | None) -> bytes:
    """Return the digest of a bearer token: the key of its quota, which does not reveal the token.

    Raises
    ------
    LockstepError
        ``unauthenticated`` without a bearer token.
    """
    return _digest(_bearer(authorization))


def _bearer(authorization: str | None) -> str:
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        got = (
            "no Authorization header"
            if not authorization
            else f"the scheme {scheme[:20]!r} without a bearer token"
        )
        raise LockstepError(
            ErrorCode.UNAUTHENTICATED,
            f"missing bearer token, got {got}; nothing was written",
            next_step=_HOW_TO_SEND,
        )
    return token.strip()


def _refusal(why: str, since: float | None) -> LockstepError:
    """Return the error for a token that is not valid.

    Only the bearer of a revoked token learns that it was revoked.
    """
    moment = (
        "" if since is None else f" at {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC"
    )
    return LockstepError(
        ErrorCode.UNAUTHENTICATED,
        f"the bearer token {why}{moment}; nothing was written",
        next_step=f"use a valid token of this service; {_HOW_TO_SEND}",
    )


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="surrogateescape")).digest()


def ensure_token(path: Path, database: Database) -> None:
    """Register the token that the file holds, and create the file if it is missing.

    Raises
    ------
    LockstepError
        If the file exists and holds no token, or if other users may read it.
    """
    token = _read_token(path) or _create_token(path)
    with changes.of(database, Sender("lockstep"), Action.TOKEN_ENSURE) as change:
        change.target = tokens.ensure(change.session, token, name=path.name, actor="admin")
        change.repeated = change.target is None


def _create_token(path: Path) -> str:
    """Write a new token, or return the one that a concurrent api process wrote first."""
    token = f"lockstep_{secrets.token_urlsafe(32)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
            file.flush()
            os.fsync(file.fileno())
        # A hard link fails if the file exists. A rename would replace a token that is already in
        # use.
        os.link(draft, path)
    except FileExistsError:
        return _read_token(path) or token
    finally:
        draft.unlink()
    return token


def _read_token(path: Path) -> str | None:
    try:
        readable_by_others = path.stat().st_mode & 0o077
        token = path.read_text().strip()
    except FileNotFoundError:
        return None
    if readable_by_others:
        raise LockstepError(
            ErrorCode.INVALID,
            f"{path} is readable by other users, and a token is a password",
            next_step=f"chmod 600 {path}",
        )
    visible = all("!" <= character <= "~" for character in token)
    if not visible or not TOKEN_CHARS_MIN <= len(token) <= TOKEN_CHARS_MAX:
        raise LockstepError(
            ErrorCode.INVALID,
            f"{path} contains no valid token; expected {TOKEN_CHARS_MIN} to {TOKEN_CHARS_MAX} "
            "visible characters on one line",
            next_step="remove the file; the next start creates a token",
        )
    return token
