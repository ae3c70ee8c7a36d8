"""The dashboard's files, as they were built into ``api/pages``, held in memory by the address that each answers.

An address is looked up among the files that were found, never joined to a path: no request reaches any other file. All of
them are some two megabytes. They are read anew when a build has replaced them, and then all at once, because a page and its
scripts belong to one build.

Not here: building them (``dashboard/build.py``), and answering requests (``api.routes.pages``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lockstep.api.http.conditional import digest, tag_of

FOLDER: Final = Path(__file__).parents[1] / "pages"
DIGEST: Final = "digest"
"""Written last by a build; its time says which build is there."""
INDEX: Final = "/index.html"
ASSETS: Final = "/assets/"
"""Their names carry a digest of their content."""
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
"""Written down, because what a machine's own table says differs from machine to machine."""


@dataclass(frozen=True)
class File:
    """One file, ready to be sent."""

    content: bytes
    compressed: bytes | None
    media_type: str
    tag: str


class Dashboard:
    """The files of the newest build in ``folder``."""

    def __init__(self, folder: Path = FOLDER):
        self._folder = folder
        self._files: Mapping[str, File] = {}
        self._built_ns: int | None = None

    def files(self) -> Mapping[str, File]:
        """By address, such as ``/index.html``; empty where nothing was built."""
        try:
            built_ns = (self._folder / DIGEST).stat().st_mtime_ns
            if built_ns != self._built_ns:
                self._files, self._built_ns = _read(self._folder), built_ns
        except OSError:
            # Never built, or being replaced at this moment: what is held stays good until the new one is whole.
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
