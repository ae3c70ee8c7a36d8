"""Hashes of passwords, their limits, and delays after wrong ones."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from lockstep.api.auth import passwords
from lockstep.api.auth.passwords import Delays, Passwords, Turn
from lockstep.domain.errors import ErrorCode, LockstepError
from tests.harness.processes import until

RIGHT = "correct horse battery"


def test_a_password_is_hashed_with_the_chosen_parameters() -> None:
    one = Passwords()
    stored = one.hash(RIGHT)
    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert one.check(RIGHT, stored, Turn.KNOWN) == (True, None)
    assert one.check(RIGHT + " ", stored, Turn.KNOWN) == (False, None)
    assert one.check(RIGHT, None, Turn.KNOWN) == (False, None)
    assert not Argon2Hasher(2, 19 * 1024, 1).check_needs_rehash(passwords.UNKNOWN)


def test_a_hash_of_other_parameters_is_replaced() -> None:
    stored = PasswordHash((Argon2Hasher(1, 1024, 1),)).hash(RIGHT)
    is_right, new = Passwords().check(RIGHT, stored, Turn.KNOWN)
    assert is_right
    assert new is not None
    assert Passwords().check(RIGHT, new, Turn.KNOWN) == (True, None)


@pytest.mark.parametrize(
    ("password", "is_accepted"),
    [
        ("x" * 11, False),
        ("x" * 12, True),
        ("ж🔑" * 6, True),
        ("x" * 1_024, True),
        ("x" * 1_025, False),
    ],
)
def test_only_the_length_of_a_new_password_is_limited(password: str, is_accepted: bool) -> None:
    if is_accepted:
        passwords.require(password, "/password")
        return
    with pytest.raises(LockstepError, match=f"12 to 1024 characters, got {len(password)}") as no:
        passwords.require(password, "/password")
    assert no.value.fields[0].value is None


class _Counting:
    """Hasher that counts the hashes in progress, and waits until it is released."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.threads: set[int] = set()
        self.order: list[str] = []
        self.release = threading.Event()
        self.lock = threading.Lock()

    def hash(self, password: str) -> str:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            self.threads.add(threading.get_ident())
            self.order.append(password)
        assert self.release.wait(30)
        with self.lock:
            self.now -= 1
        return password

    def verify_and_update(self, password: str, _stored: str) -> tuple[bool, str | None]:
        return bool(self.hash(password)), None


def test_two_passwords_are_hashed_at_a_time_and_few_wait() -> None:
    hasher = _Counting()
    one = Passwords(hasher)
    refused = threading.Semaphore(0)

    def check(_number: int) -> ErrorCode | None:
        try:
            one.check(RIGHT, "stored", Turn.FAILING)
        except LockstepError as error:
            refused.release()
            return error.code
        return None

    with ThreadPoolExecutor(30) as pool:
        found = [pool.submit(check, number) for number in range(30)]
        for _ in range(20):
            assert refused.acquire(timeout=30)
        # The second thread may begin later than the refusals come.
        until(lambda: hasher.most == passwords.HASHES_AT_ONCE, 30, "two hashes at once")
        hasher.release.set()
        codes = [each.result() for each in found]
    assert hasher.most == passwords.HASHES_AT_ONCE
    # The allocator keeps the memory of a hash for each thread that had one.
    assert len(hasher.threads) == passwords.HASHES_AT_ONCE
    assert codes.count(None) == passwords.HASHES_AT_ONCE + passwords.WAITING_MAX
    assert codes.count(ErrorCode.UNAVAILABLE) == 20


def test_known_and_quiet_addresses_go_before_those_that_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(passwords, "HASHES_AT_ONCE", 1)
    hasher = _Counting()
    one = Passwords(hasher)

    def check(turn: Turn) -> bool:
        try:
            one.check(turn.name, "stored", turn)
        except LockstepError:
            return False
        return True

    def waiting(turn: Turn, count: int) -> list[Future[bool]]:
        found = [pool.submit(check, turn) for _ in range(count)]
        until(lambda: [each[0] for each in one._waiting].count(turn) == count, 30, "they wait")
        return found

    with ThreadPoolExecutor(30) as pool:
        first = pool.submit(check, Turn.FAILING)
        until(lambda: hasher.now == 1, 30, "a hash")
        failing = waiting(Turn.FAILING, passwords.WAITING_MAX)
        better = waiting(Turn.QUIET, 1) + waiting(Turn.KNOWN, 2)
        # So many others were refused for them, while no hash ended; one more is refused at once.
        until(lambda: sum(each.done() for each in failing) == 3, 30, "refusals")
        assert not check(Turn.FAILING)
        hasher.release.set()
        assert all(each.result(30) for each in (first, *better))
        assert [each.result(30) for each in failing].count(True) == passwords.WAITING_MAX - 3
    assert hasher.order[:5] == ["FAILING", "KNOWN", "KNOWN", "QUIET", "FAILING"]


def wait_of(delays: Delays, name: str = "ada", address: str = "10.0.0.1") -> int:
    """Return the seconds for which an attempt is refused; 0 for one that is checked."""
    try:
        delays.begin(name, address)
        delays.wrong(name, address)
    except LockstepError as error:
        return error.retry_after_seconds or 0
    return 0


def test_a_wrong_password_delays_that_name_from_that_address() -> None:
    now = [0.0]
    delays = Delays(clock=lambda: now[0])
    waits = []
    for _ in range(9):
        assert wait_of(delays) == 0
        waits.append(wait_of(delays))
        assert wait_of(delays, address="10.0.0.2") <= 1
        now[0] += 200.0
        delays.right("ada", "10.0.0.2")
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    delays.right("ada", "10.0.0.1")
    assert [wait_of(delays), wait_of(delays)] == [0, 1]


@pytest.mark.parametrize("is_right", [True, False])
def test_attempts_at_once_go_one_after_the_other(is_right: bool) -> None:
    delays, checked = Delays(clock=lambda: 0.0), threading.Event()

    def attempt(_number: int) -> int:
        try:
            delays.begin("ada", "10.0.0.1")
        except LockstepError as error:
            return error.retry_after_seconds or 0
        assert checked.wait(30)
        (delays.right if is_right else delays.wrong)("ada", "10.0.0.1")
        return 0

    with ThreadPoolExecutor(10) as pool:
        found = [pool.submit(attempt, number) for number in range(10)]
        until(lambda: sum(each.done() for each in found) == 1, 30, "a refusal: too many wait")
        checked.set()
        waits = sorted(each.result(30) for each in found)
    assert waits == ([0] * 9 + [1] if is_right else [0] + [1] * 9)


def test_a_password_that_was_not_checked_delays_nobody() -> None:
    delays = Delays(clock=lambda: 0.0)
    for _ in range(50):
        assert wait_of(delays) == 0
        delays.unchecked("ada", "10.0.0.1")


def test_an_address_has_twenty_wrong_passwords_a_minute() -> None:
    now = [0.0]
    delays = Delays(clock=lambda: now[0])
    assert [wait_of(delays, f"name-{number}") for number in range(21)] == [0] * 20 + [60]
    assert wait_of(delays, "ada", "10.0.0.2") == 0
    delays.right("name-3", "10.0.0.1")
    assert [wait_of(delays, "ada"), wait_of(delays, "bob")] == [0, 60]
    now[0] += 60.0
    assert wait_of(delays, "cy") == 0


def test_the_memory_of_wrong_passwords_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "REMEMBERED_MAX", 5)
    delays = Delays(clock=lambda: 0.0)
    for number in range(20):
        assert wait_of(delays, f"name-{number}", f"10.0.0.{number}") == 0
    assert len(delays._wrong) == len(delays._of_address) == 5
