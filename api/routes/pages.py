"""Files of the dashboard, and its ``index.html`` for every page address.

The dashboard routes addresses itself: every page address is answered with the same ``index.html``.
API addresses never are: an unknown address below ``/v1`` is a problem document for every client.
Requests that do not accept HTML get no HTML, and a script with a wrong address gets an error.

Files with a digest in their names never change, and browsers cache them permanently. All others are
revalidated on each request, and answered with 304 while they are unchanged.

Not here: the files (``api.dashboard.files``).
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import Request, Response
from starlette.datastructures import Headers
from starlette.routing import Match, Route
from starlette.types import Scope

from lockstep.api.dashboard import fallback_page
from lockstep.api.dashboard.files import ASSETS, INDEX, Dashboard, File
from lockstep.api.http.compression import takes_gzip
from lockstep.api.http.conditional import unchanged
from lockstep.domain.version import VERSION

NOT_PAGES: Final = frozenset(
    {"v1", "openapi.json", "docs", "redoc", "livez", "readyz", "metrics", "assets"}
)
"""First path segments that never belong to a page of the dashboard."""
POLICY: Final = "; ".join(
    (
        "default-src 'self'",
        # Mantine writes its variables into a style element.
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "object-src 'none'",
        "base-uri 'none'",
        # Forms are never submitted: a token in one would be part of an address or a log.
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


_NEVER_SHOWN: Final = frozenset({"text/javascript", "text/css"})
"""A browser shows these as text: a policy of what their content may load has no effect."""


def _security(policy: str) -> dict[str, str]:
    return {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
    }


class PagesRoute(Route):
    """Route that matches addresses of pages and files only.

    Other addresses keep their own response.
    """

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] != "http" or not _is_ours(scope):
            return Match.NONE, {}
        match, more = super().matches(scope)
        return match, {**more, "route": self}


def _is_ours(scope: Scope) -> bool:
    path: str = scope["path"]
    if path == "/" or path in _dashboard(scope).files():
        return True
    first = path.lstrip("/").partition("/")[0]
    asks_for_html = "text/html" in Headers(scope=scope).get("accept", "")
    return scope["method"] in {"GET", "HEAD"} and asks_for_html and first not in NOT_PAGES


def _dashboard(scope: Scope) -> Dashboard:
    found: Dashboard = scope["app"].state.dashboard
    return found


async def _answer(request: Request) -> Response:
    files = _dashboard(request.scope).files()
    path = request.url.path
    if INDEX not in files:
        return Response(
            fallback_page.page(VERSION),
            media_type="text/html",
            headers=_security(fallback_page.POLICY),
        )
    if path in files and path.startswith(ASSETS):
        return _sent(request, files[path], {"Cache-Control": "public, max-age=31536000, immutable"})
    file = files.get(path, files[INDEX])
    return unchanged(request, file.tag) or _sent(
        request, file, {"ETag": file.tag, "Cache-Control": "no-cache"}
    )


def _sent(request: Request, file: File, headers: dict[str, str]) -> Response:
    shown = file.media_type.partition(";")[0] not in _NEVER_SHOWN
    security = _security(POLICY) if shown else {"X-Content-Type-Options": "nosniff"}
    headers = {**headers, **security, "Content-Type": file.media_type}
    if file.compressed is None:
        return Response(file.content, headers=headers)
    headers["Vary"] = "Accept-Encoding"
    if takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(file.compressed, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.content, headers=headers)


route: Final[Any] = PagesRoute("/{path:path}", _answer, methods=["GET"], include_in_schema=False)
"""Last route of the application: all others take precedence."""
