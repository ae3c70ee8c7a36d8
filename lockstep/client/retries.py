"""Rules of retries: which answers and errors, after how long, and of which requests.

Not here: the retries themselves (``client.transport``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import httpx2

from lockstep.client.answers import why_of
from lockstep.client.errors import UncertainError

RETRIED_STATUS: Final = frozenset({429, 502, 503, 504})
NOT_CARRIED_OUT: Final = frozenset({429, 503})
"""Answers of a server that did nothing."""
NOT_SENT: Final = (
    httpx2.ConnectError,
    httpx2.ConnectTimeout,
    httpx2.PoolTimeout,
    httpx2.UnsupportedProtocol,
    httpx2.LocalProtocolError,
)
FIRST_DELAY_SECONDS: Final = 0.25
DELAY_SECONDS_MAX: Final = 8.0
RETRY_AFTER_SECONDS_MAX: Final = 60.0
"""A server that asks for more patience than this is asked again anyway."""


def delay(tries: int, response: httpx2.Response | None, draw: Callable[[], float]) -> float:
    """Return the seconds before the next try.

    The server's ``Retry-After``, or twice the last, with jitter: ``draw`` returns 0 to 1.
    """
    asked = response.headers.get("Retry-After", "") if response is not None else ""
    if asked.isdigit():
        return min(float(asked), RETRY_AFTER_SECONDS_MAX)
    longest = min(DELAY_SECONDS_MAX, FIRST_DELAY_SECONDS * 2.0 ** min(tries - 1, 30))
    return longest * (0.5 + 0.5 * draw())


def sent_once(
    attempt: Callable[[], httpx2.Response], request: str, *, look: str
) -> httpx2.Response:
    """Return the answer of one try of a request that must not be carried out twice.

    Raises
    ------
    UncertainError
        If it may have been carried out; ``look`` is how to see that.
    """
    try:
        response = attempt()
    except NOT_SENT:
        raise
    except httpx2.TransportError as error:
        why = why_of(error)
    else:
        if response.status_code < 500 or response.status_code in NOT_CARRIED_OUT:
            return response
        why = f"it answered {response.status_code}"
    raise UncertainError(
        f"{request} may have been carried out, and is not sent again: {why}", next_step=look
    )
