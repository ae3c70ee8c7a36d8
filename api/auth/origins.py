"""Protection from web pages of other origins if authentication is off (``LOCKSTEP_AUTH=off``).

A browser on the same machine reaches loopback addresses for any page that its user opens. With
authentication such a page has no token and can do no harm. Without it, two checks replace the
token:

1. ``Host`` names this service. Otherwise a page whose name resolves to 127.0.0.1 (DNS rebinding)
   could read responses.
2. A request with an unsafe method comes from a page of this service, or from no page at all.
   Browsers send ``Sec-Fetch-Site``, older ones ``Origin``; programs send neither. This is the
   algorithm of Go's ``http.CrossOriginProtection``.

Not here: accepted media types (``api.http.body``).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from lockstep.api.http.problems import problem_response
from lockstep.api.settings import is_loopback
from lockstep.domain.errors import ErrorCode, LockstepError

_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_PAGE: Final = frozenset({"same-origin", "none"})
"""Accepted ``Sec-Fetch-Site`` values: a page of this service, or an address typed by the user."""


class OwnPagesOnly:
    """ASGI middleware that rejects requests of web pages of other origins.

    Parameters
    ----------
    app : ASGIApp
    allowed_hosts : collection of str
        Host names of the service, in addition to loopback.
    """

    def __init__(self, app: ASGIApp, allowed_hosts: Collection[str]):
        self.app = app
        self._allowed = frozenset(allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope) if scope["type"] == "http" else None
        if refused is None:
            await self.app(scope, receive, send)
            return
        response = problem_response(refused, instance=scope["state"]["request_id"])
        await response(scope, receive, send)

    def _refusal(self, scope: Scope) -> LockstepError | None:
        headers = Headers(scope=scope)
        for host in headers.getlist("host"):
            if not self._is_ours(_name_of(f"//{host}")):
                return LockstepError(
                    ErrorCode.FORBIDDEN,
                    f"the Host header is {host[:200]!r}; without authentication, expected "
                    "localhost, a loopback address or a host of LOCKSTEP_ALLOWED_HOSTS; nothing "
                    "was written",
                    next_step=(
                        "use http://127.0.0.1 with the service's port, or set "
                        "LOCKSTEP_ALLOWED_HOSTS"
                    ),
                )
        if scope["method"] not in _SAFE and not self._is_own_page(headers):
            page = (
                headers.get("origin")
                or f"another site (Sec-Fetch-Site: {headers.get('sec-fetch-site')})"
            )
            return LockstepError(
                ErrorCode.FORBIDDEN,
                f"the request was sent by a web page of {page[:200]}; without authentication, "
                "only pages of this service may send changes; nothing was written",
                next_step=(
                    "use the dashboard at the service's own address, or set LOCKSTEP_ALLOWED_HOSTS"
                ),
            )
        return None

    def _is_ours(self, name: str | None) -> bool:
        return name is not None and (is_loopback(name) or name in self._allowed)

    def _is_own_page(self, headers: Headers) -> bool:
        site, origin = headers.get("sec-fetch-site"), headers.get("origin")
        if origin is not None and _name_of(origin) in self._allowed:
            return True
        if site is not None:
            return site in _OWN_PAGE
        return (
            origin is None or origin.partition("://")[2].lower() == headers.get("host", "").lower()
        )


def _name_of(url: str) -> str | None:
    """Return the host of a URL in lower case, without port and brackets; None without a host."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
