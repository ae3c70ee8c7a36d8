"""Code archives for tests, harmless and harmful."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Iterable


def member(
    name: str, content: bytes = b"print(1)\n", **fields: object
) -> tuple[tarfile.TarInfo, bytes]:
    """Return one member.

    ``fields`` override those of ``TarInfo`` (``type``, ``linkname``, ``size``).
    """
    found = tarfile.TarInfo(name)
    found.size = len(content)
    for field, value in fields.items():
        setattr(found, field, value)
    return found, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, b"", type=kind, linkname=target)


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return a gzipped tar archive."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for found, content in members:
            tar.addfile(found, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), mtime=0)


def code(names: Iterable[str] = ("train.py",)) -> bytes:
    return packed(*(member(name) for name in names))


def digest(archive: bytes) -> str:
    return hashlib.sha256(archive).hexdigest()
