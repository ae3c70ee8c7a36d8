"""Responses with a file of the blob store.

A file is sent as it is stored. Its entity tag is its SHA-256: clients can verify a download, and
resume it after a broken connection (``Range: bytes=N-`` with ``If-Range``). Jobs write these files,
so a browser must neither show nor run one: it is an attachment without a type, in a sandbox.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from os import SEEK_END
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from lockstep.api.http import conditional
from lockstep.api.http.problems import documented, problem_response, request_id_of
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.objects.blobs import BlobStore

_CHUNK_BYTES: Final = 1 << 20
_FROM: Final = re.compile(r"^bytes=(\d{1,18})-$")
_BINARY: Final = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


class StoredFile(NamedTuple):
    """A file as its row or manifest describes it."""

    name: str
    """Suggested to the client."""
    bytes: int
    sha256: str


class OpenFile(NamedTuple):
    """A file of the store, open."""

    closing: ExitStack
    file: BinaryIO
    bytes: int


def described(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route that sends one."""
    return {
        200: {"content": _BINARY, "description": "The whole file. `ETag` is its SHA-256."},
        206: {
            "content": _BINARY,
            "description": "The rest of the file, from the first byte of `Range`.",
        },
        304: {"description": "Not modified: the caller has this file."},
        **documented(*statuses),
    }


def opened(blobs: BlobStore, key: str) -> OpenFile:
    """Open a file of the store.

    The caller compares its size before the first byte is sent: later, a file that is too short
    could only break the connection, which the client would take for an outage of the service.

    Raises
    ------
    FileNotFoundError
    """
    closing = ExitStack()
    file = closing.enter_context(blobs.open(key))
    return OpenFile(closing, file, file.seek(0, SEEK_END))


def response(request: Request, stored: StoredFile, opens: Callable[[], OpenFile]) -> Response:
    """Return a file, the rest of it, 304, or 416."""
    tag = f'"{stored.sha256}"'
    if (same := conditional.unchanged(request, tag)) is not None:
        return same
    start = _first_byte(request, tag)
    headers = {"ETag": tag, "Accept-Ranges": "bytes", "Cache-Control": "no-cache"}
    if start is not None and start >= stored.bytes:
        refused = LockstepError(
            ErrorCode.RANGE,
            f"{stored.name} has {stored.bytes} bytes; the requested range starts at byte {start}",
            next_step=(
                "send the request without Range: the local part is not a prefix of this file, or "
                "is complete"
            ),
        )
        unsatisfied = {**headers, "Content-Range": f"bytes */{stored.bytes}"}
        return problem_response(refused, instance=request_id_of(request), headers=unsatisfied)
    headers["Content-Length"] = str(stored.bytes - (start or 0))
    headers["Content-Disposition"] = _attachment(stored.name)
    headers["Content-Security-Policy"] = "sandbox; default-src 'none'"
    headers["X-Content-Type-Options"] = "nosniff"
    if start is not None:
        headers["Content-Range"] = f"bytes {start}-{stored.bytes - 1}/{stored.bytes}"
    return StreamingResponse(
        _chunks(opens(), start or 0, stored.bytes),
        status_code=200 if start is None else 206,
        media_type="application/octet-stream",
        headers=headers,
    )


def _attachment(name: str) -> str:
    encoded = quote(name, safe="")
    if encoded == name:
        return f'attachment; filename="{name}"'
    return f"attachment; filename*=UTF-8''{encoded}"


def _first_byte(request: Request, tag: str) -> int | None:
    """Return the first byte of the range, if the client holds the beginning of this same file.

    None for any other range: the response is then the whole file, as RFC 9110 allows.
    """
    found = _FROM.fullmatch(request.headers.get("range", ""))
    if found is None or request.headers.get("if-range", tag) != tag:
        return None
    return int(found[1])


def _chunks(opened: OpenFile, start: int, size: int) -> Iterator[bytes]:
    """Yield at most the announced number of bytes of a file.

    A file that grows meanwhile is damaged; the client detects that by the digest.
    """
    left = size - start
    with opened.closing:
        opened.file.seek(start)
        while left and (chunk := opened.file.read(min(_CHUNK_BYTES, left))):
            left -= len(chunk)
            yield chunk
