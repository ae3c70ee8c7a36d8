"""Hashes of passwords, and delays after wrong ones.

A password is hashed with argon2id: 19 MiB, two iterations, one lane. At most two are hashed at a
time in a process; few others wait, and the rest is refused, since a waiting request holds a thread.
Who waits is ordered by :class:`Turn`: guesses from many addresses keep no one out who signs in from
a known one.

A wrong password delays sign-ins of that name from that address: 1, 2, 4 … 60 s. An address has 20
wrong ones a minute for all names. A refused request computes no hash. No one is locked out:
other addresses are not delayed. The state is in memory, and bounded. An attempt counts as wrong
until it is right. Concurrent ones for a name from an address go one after the other, so wrong ones
do not pass together, and right ones do not delay each other.

Not here: stored hashes (``storage.people.users``), the requests (``api.routes.session``).
"""

from __future__ import annotations

import bisect
import itertools
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from enum import IntEnum
from typing import Final, Protocol, TypeVar

from pwdlib import PasswordHash
from pwdlib.hashers.argon2 import Argon2Hasher

from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.spec.reading import invalid

CHARS_MIN: Final = 12
CHARS_MAX: Final = 1_024
HASHES_AT_ONCE: Final = 2
WAITING_MAX: Final = 8
WAITING_SECONDS_MAX: Final = 30.0
DELAY_SECONDS_MAX: Final = 60.0
WRONG_PER_ADDRESS: Final = 20
ADDRESS_SECONDS: Final = 60.0
REMEMBERED_MAX: Final = 10_000
"""Names with addresses, and addresses, of which wrong passwords are remembered. The oldest one is
forgotten first."""
UNKNOWN: Final = (
    "$argon2id$v=19$m=19456,t=2,p=1$yX93cHkKe4WM6cggx8tjCQ$"
    "RV5ttUZURDTrPZq3UNKcePNO4FENhCQmnE4mjsE6LNs"
)
"""Hash of an unknown random text: the check of an unknown name costs the same."""

T = TypeVar("T")


class Turn(IntEnum):
    """Place of an attempt among those that wait for a hash: the lowest goes first."""

    KNOWN = 0
    """The person has signed in from this address, or the caller has a valid code or token."""
    QUIET = 1
    """The address has no wrong password or code in the last minute."""
    FAILING = 2


class Hasher(Protocol):
    """The used part of ``pwdlib.PasswordHash``."""

    def hash(self, password: str) -> str: ...

    def verify_and_update(self, password: str, hash: str) -> tuple[bool, str | None]: ...  # noqa: A002 -- the name in pwdlib


def argon2id() -> Hasher:
    """Return the hasher of passwords."""
    return PasswordHash((Argon2Hasher(time_cost=2, memory_cost=19 * 1024, parallelism=1),))


class Passwords:
    """Hasher of one application with its limits. Thread-safe."""

    def __init__(self, hasher: Hasher | None = None):
        self._hasher = hasher or argon2id()
        # Threads of their own: the allocator keeps the 19 MiB of a hash for each thread that had
        # one, and the api has 40 threads for requests.
        self._threads = ThreadPoolExecutor(HASHES_AT_ONCE, thread_name_prefix="password")
        self._lock = threading.Lock()
        self._hashing = 0
        self._waiting: list[tuple[Turn, int, Future[bool]]] = []
        """In order; the future is True once it is its turn, and False if it is refused."""
        self._arrivals = itertools.count()

    def hash(self, password: str) -> str:
        """Return the stored form of a new password."""
        return self._run(lambda: self._hasher.hash(password), Turn.KNOWN)

    def check(self, password: str, stored: str | None, turn: Turn) -> tuple[bool, str | None]:
        """Compare a password with the stored hash, if there is one.

        Return whether it is right, and a new hash if the stored one has other parameters.

        Raises
        ------
        LockstepError
            ``unavailable`` if too many others go first.
        """
        is_right, new = self._run(
            lambda: self._hasher.verify_and_update(password, stored or UNKNOWN), turn
        )
        return is_right and stored is not None, new

    def _run(self, work: Callable[[], T], turn: Turn) -> T:
        if not self._enter(turn).result():
            raise LockstepError(
                ErrorCode.UNAVAILABLE,
                "too many sign-ins at once; this one was not processed",
                next_step="try again in a few seconds",
            )
        try:
            return self._threads.submit(work).result()
        finally:
            self._leave()

    def _enter(self, turn: Turn) -> Future[bool]:
        """Wait behind the others; the last one is refused if too many wait."""
        mine: Future[bool] = Future()
        with self._lock:
            if self._hashing < HASHES_AT_ONCE:
                self._hashing += 1
                mine.set_result(True)
                return mine
            bisect.insort(self._waiting, (turn, next(self._arrivals), mine))
            if len(self._waiting) > WAITING_MAX:
                _, _, last = self._waiting.pop()
                last.set_result(False)
        return mine

    def _leave(self) -> None:
        """Pass the place on to the first one that waits."""
        with self._lock:
            if self._waiting:
                _, _, first = self._waiting.pop(0)
                first.set_result(True)
            else:
                self._hashing -= 1


def require(password: str, pointer: str) -> None:
    """Refuse a new password that is too short or too long. There are no other rules.

    Raises
    ------
    LockstepError
        ``invalid``; it does not contain the password.
    """
    if not CHARS_MIN <= len(password) <= CHARS_MAX:
        expected = f"expected a password of {CHARS_MIN} to {CHARS_MAX} characters"
        field = FieldError(
            pointer, f"{expected}, got {len(password)}", None, "choose another password"
        )
        raise invalid((field,))


class Delays:
    """Wrong passwords of one application. Thread-safe.

    Parameters
    ----------
    clock : callable
        Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self._clock = clock
        self._lock = threading.Lock()
        self._checked = threading.Condition(self._lock)
        self._checking: set[tuple[str, str]] = set()
        """Names and addresses of which a password is being checked."""
        self._waiting = 0
        self._wrong: OrderedDict[tuple[str, str], tuple[int, float]] = OrderedDict()
        """For a name and an address: wrong passwords in a row, and the end of the delay."""
        self._of_address: OrderedDict[str, deque[float]] = OrderedDict()
        """Times of the newest wrong passwords."""

    def begin(self, name: str | None, address: str) -> Turn:
        """Note an attempt as wrong, before its password is checked.

        ``name`` is None for a code: codes are random, and only the address has a limit. Otherwise
        :meth:`right`, :meth:`wrong` or :meth:`unchecked` must follow. Return the turn of the
        address, from which the person may be known. May wait for the attempt before.

        Raises
        ------
        LockstepError
            ``too_many_requests``: the password must not be checked now.
        """
        with self._lock:
            if name is not None:
                self._wait((name, address))
            at = self._clock()
            times = self._of_address.setdefault(address, deque(maxlen=WRONG_PER_ADDRESS))
            if len(times) == WRONG_PER_ADDRESS and at < times[0] + ADDRESS_SECONDS:
                raise _too_many(times[0] + ADDRESS_SECONDS - at, "from this address")
            if name is not None:
                self._delay(name, address, at)
            is_quiet = not times or at >= times[-1] + ADDRESS_SECONDS
            times.append(at)
            self._of_address.move_to_end(address)
            for known in (self._wrong, self._of_address):
                while len(known) > REMEMBERED_MAX:
                    known.popitem(last=False)
        return Turn.QUIET if is_quiet else Turn.FAILING

    def _wait(self, attempt: tuple[str, str]) -> None:
        """Wait until no other attempt of the same name and address is being checked."""
        free = attempt not in self._checking
        if not free and self._waiting < WAITING_MAX:
            self._waiting += 1
            free = self._checked.wait_for(
                lambda: attempt not in self._checking, WAITING_SECONDS_MAX
            )
            self._waiting -= 1
        if not free:
            raise _too_many(1.0, "at once for this name from this address")

    def _delay(self, name: str, address: str, at: float) -> None:
        count, until = self._wrong.get((name, address), (0, -math.inf))
        if at < until:
            raise _too_many(until - at, "for this name from this address")
        delay = min(2.0 ** min(count, 16), DELAY_SECONDS_MAX)
        self._checking.add((name, address))
        self._wrong[name, address] = (count + 1, at + delay)
        self._wrong.move_to_end((name, address))

    def right(self, name: str | None, address: str) -> None:
        """Forget the wrong passwords of a name from an address: the last attempt was right."""
        with self._lock:
            if name is not None:
                self._wrong.pop((name, address), None)
                self._end(name, address)
            self._take_back(address)

    def wrong(self, name: str, address: str) -> None:
        """End an attempt that was wrong, as it was noted."""
        with self._lock:
            self._end(name, address)

    def unchecked(self, name: str, address: str) -> None:
        """Take an attempt back whose password was not checked: it causes no delay."""
        with self._lock:
            count, _ = self._wrong.get((name, address), (1, 0.0))
            self._wrong[name, address] = (count - 1, -math.inf)
            self._end(name, address)
            self._take_back(address)

    def _end(self, name: str, address: str) -> None:
        self._checking.discard((name, address))
        self._checked.notify_all()

    def _take_back(self, address: str) -> None:
        if times := self._of_address.get(address):
            times.pop()


def _too_many(seconds: float, whose: str) -> LockstepError:
    wait = max(1, math.ceil(seconds))
    return LockstepError(
        ErrorCode.TOO_MANY_REQUESTS,
        f"too many wrong passwords or codes {whose}; this request was not processed",
        next_step=f"wait {wait} s; sign-ins from other addresses are not delayed",
        retry_after_seconds=wait,
    )
