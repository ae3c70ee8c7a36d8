"""Sessions and invitation codes, on both databases."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import func, select, update

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.rights import ServiceRole, UserState
from lockstep.storage.db.clock import db_now
from lockstep.storage.db.database import Database
from lockstep.storage.db.people_tables import SessionRow, UserRow
from lockstep.storage.people import credentials, sessions, users
from lockstep.storage.people.sessions import Origin

HERE = Origin("10.0.0.1", "curl/8" + "x" * 300)


def started(database: Database, name: str = "ada") -> str:
    with database.jobs() as session:
        users.ensure(session, name)
        return sessions.start(session, name, HERE)[0]


def is_valid(database: Database, token: str) -> bool:
    with database.read_jobs() as session:
        return sessions.find(session, token) is not None


def set_session(database: Database, **values: Any) -> None:
    with database.jobs() as session:
        session.execute(update(SessionRow).values(**values))


def test_a_credential_has_a_checksum_against_typing_errors() -> None:
    one, other = (credentials.make(credentials.SESSION) for _ in range(2))
    assert one != other
    assert credentials.is_whole(one, credentials.SESSION)
    assert not credentials.is_whole(one, credentials.INVITATION)
    for wrong in (one[:-1], one + "0", one[:4] + ("a" if one[4] != "a" else "b") + one[5:], ""):
        assert not credentials.is_whole(wrong, credentials.SESSION)


@pytest.mark.parametrize(
    "over",
    [
        {"ended_at": db_now()},
        {"expires_at": db_now() - 1},
        {"seen_at": db_now() - sessions.IDLE_SECONDS - 1},
    ],
)
def test_a_session_is_valid_until_it_is_over(database: Database, over: dict[str, Any]) -> None:
    token = started(database)
    assert is_valid(database, token)
    assert not is_valid(database, credentials.make(credentials.SESSION))
    set_session(database, **over)
    assert not is_valid(database, token)
    with database.jobs() as session:
        assert sessions.of_user(session, "ada") == []
        assert not sessions.end(session, "ada", credentials.digest(token)[:16])
        sessions.start(session, "ada", HERE)
        assert session.scalar(select(func.count()).select_from(SessionRow)) == 1


def test_the_session_of_a_deactivated_person_is_not_valid(database: Database) -> None:
    token = started(database)
    with database.jobs() as session:
        session.execute(update(UserRow).values(state=UserState.OFF))
    assert not is_valid(database, token)


def test_a_request_is_noted_once_a_minute(database: Database) -> None:
    sha256 = credentials.digest(started(database))
    for seconds, is_noted in ((50, False), (70, True)):
        set_session(database, seen_at=db_now() - seconds)
        with database.jobs() as session:
            before = session.scalar(select(SessionRow.seen_at))
            sessions.touch(session, sha256)
            assert (session.scalar(select(SessionRow.seen_at)) != before) == is_noted


def test_a_person_ends_only_own_sessions(database: Database) -> None:
    kept, ended, foreign = started(database), started(database), started(database, "bob")
    with database.jobs() as session:
        assert not sessions.end(session, "ada", credentials.digest(foreign)[:16])
        assert not sessions.end(session, "ada", credentials.digest(ended)[:15])
        assert sessions.end(session, "ada", credentials.digest(ended)[:16])
        (row,) = sessions.of_user(session, "ada")
        assert (row.sha256, row.address) == (credentials.digest(kept), "10.0.0.1")
        assert len(row.agent) == sessions.AGENT_CHARS_MAX
        assert sessions.end_all(session, "ada", but=row.sha256) == 0
        assert sessions.end_all(session, "ada") == 1
    assert is_valid(database, foreign)


def test_a_further_sign_in_ends_the_oldest_session(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "OF_USER_MAX", 2)
    first = started(database)
    set_session(database, created_at=db_now() - 9)
    later = [started(database) for _ in range(2)]
    assert [is_valid(database, token) for token in (first, *later)] == [False, True, True]


def test_a_code_is_used_once_and_replaced_by_a_new_one(database: Database) -> None:
    with database.jobs() as session:
        users.ensure(session, "bob", state=UserState.INVITED)
        old, code = (users.invite(session, "bob") for _ in range(2))
        assert users.invited(session, old) is None
        assert users.invited(session, code) == "bob"
        assert not users.accept(session, old, "hash")
        assert users.accept(session, code, "hash")
        assert not users.accept(session, code, "other")
        row = users.get(session, "bob")
        assert row is not None
        assert (row.password, row.state, row.code_sha256) == ("hash", UserState.ACTIVE, None)
        assert not users.set_password(session, "bob", "new", before="other")
        assert users.set_password(session, "bob", "new", before="hash")


def test_an_expired_code_and_one_of_a_deactivated_person_are_refused(database: Database) -> None:
    with database.jobs() as session:
        users.ensure(session, "bob", state=UserState.INVITED)
        code = users.invite(session, "bob", life_seconds=-1)
        assert users.invited(session, code) is None
        code = users.invite(session, "bob")
        session.execute(update(UserRow).values(state=UserState.OFF))
        assert users.invited(session, code) is None
        assert not users.accept(session, code, "hash")
        for name in ("bob", "unknown"):
            with pytest.raises(LockstepError) as refused:
                users.invite(session, name)
            assert refused.value.code is ErrorCode.CONFLICT


def test_a_restored_person_is_an_active_admin(database: Database) -> None:
    with database.jobs() as session:
        users.ensure(session, "bob", state=UserState.OFF)
        for name in ("bob", "new"):
            assert users.invited(session, users.restore(session, name)) == name
            row = users.get(session, name)
            assert row is not None
            assert (row.role, row.state) == (ServiceRole.ADMIN, UserState.ACTIVE)
