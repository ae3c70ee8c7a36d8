"""A line for the user whose token ends soon.

Not here: the header (``api.access``), and a new secret (``lockstep token rotate``).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import httpx2

from lockstep.domain.people_views import TOKEN_EXPIRES

WARNED_DAYS: Final = 14


class ExpiryWarning:
    """Reads the end of the token from responses, and calls ``say`` once if it is near.

    Parameters
    ----------
    say : callable
        Receives the line.
    now : callable
        Returns the present time, with its zone.
    """

    def __init__(
        self, say: Callable[[str], None], now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ):
        self._say = say
        self._now = now
        self._has_said = False

    def __call__(self, response: httpx2.Response) -> None:
        try:
            end = datetime.fromisoformat(response.headers[TOKEN_EXPIRES])
            left = end - self._now()
        except (KeyError, ValueError, TypeError):
            return  # no token, one without an end, or a server with other words
        if left.days >= WARNED_DAYS or self._has_said:
            return
        self._has_said = True
        days = "in less than a day" if left.days < 1 else f"in {left.days} days"
        self._say(
            f"the token in use expires {days}, on {end.astimezone():%Y-%m-%d %H:%M}; "
            "`lockstep token ls` has its id, and `lockstep token rotate ID` gives a new secret"
        )
