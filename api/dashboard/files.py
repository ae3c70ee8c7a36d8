"""Files of the built dashboard (``api/pages``), held in memory by address.

An address is looked up among the files that were found and never joined to a path: no request can
reach any other file. All files together are about two megabytes. After a new build they are all
read again at once, because a page and its scripts belong to the same build.

Not here: the build (``dashboard/build.py``), handling requests (``api.routes.pages``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lockstep.api.http.conditional import digest, tag_of

FOLDER: Final = Path(__file__).parents[1] / "pages"
DIGEST: Final = "digest"
"""File that a build writes last; its modification time identifies the build."""
INDEX: Final = "/index.html"
ASSETS: Final = "/assets/"
"""Folder of files whose names contain a digest of their content."""
MEDIA_TYPES: Final[Mapping[str, str]] = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".woff2": "font/woff2",
}
"""A fixed table, because the system's own table differs between machines."""


@dataclass(frozen=True)
class File:
    """One file, ready to be sent."""

    content: bytes
    compressed: bytes | None
    media_type: str
    tag: str


class Dashboard:
    """Files of the newest build in ``folder``."""

    def __init__(self, folder: Path = FOLDER):
        self._folder = folder
        self._files: Mapping[str, File] = {}
        self._built_ns: int | None = None

    def files(self) -> Mapping[str, File]:
        """Return the files by address, such as ``/index.html``; empty without a build."""
        try:
            built_ns = (self._folder / DIGEST).stat().st_mtime_ns
            if built_ns != self._built_ns:
                self._files, self._built_ns = _read(self._folder), built_ns
        except OSError:
            # Never built, or being replaced now: the files in memory stay valid until the new build
            # is complete.
            pass
        return self._files


def _read(folder: Path) -> dict[str, File]:
    found: dict[str, File] = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".gz" and path.name != DIGEST:
            content = path.read_bytes()
            beside = path.with_name(f"{path.name}.gz")
            found["/" + path.relative_to(folder).as_posix()] = File(
                content,
                beside.read_bytes() if beside.is_file() else None,
                MEDIA_TYPES.get(path.suffix, "application/octet-stream"),
                tag_of(digest([content])),
            )
    return found
