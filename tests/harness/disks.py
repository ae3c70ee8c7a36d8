"""Small file systems of their own, for tests of full disks, and of one that becomes read-only."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import NoReturn

import pytest


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """Mount a file system in memory at ``folder``, and skip the test where root is missing.

    ``options`` are those of tmpfs, such as ``size=8m``.
    """
    with _mounted(folder, ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]):
        yield folder


@contextmanager
def ext4_disk(folder: Path, *, mebibytes: int) -> Iterator[Path]:
    """Mount an ext4 file system in a file beside ``folder`` there, for :func:`abort`."""
    image = folder.with_name(f"{folder.name}.image")
    with image.open("wb") as file:
        file.truncate(mebibytes * 2**20)
    make = ["mkfs.ext4", "-q", str(image)]
    with _mounted(folder, make, ["mount", "-o", "loop", str(image), str(folder)]):
        yield folder


def abort(disk: Path) -> None:
    """Let an ext4 file system become read-only, as after an error: open files stay open."""
    subprocess.run(["mount", "-o", "remount,abort", str(disk)], check=True)


@contextmanager
def _mounted(folder: Path, *commands: list[str]) -> Iterator[None]:
    folder.mkdir()
    for command in commands:
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("NOT RUN: mounting a file system needs root, and ext4 needs e2fsprogs")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Write a file until the disk has no space, and return it."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (2**20, 4096, 1):
            with pytest.raises(OSError, match="No space left"):
                _write_on(file, bytes(size))
    return filler


def _write_on(file: FileIO, piece: bytes) -> NoReturn:
    while True:
        file.write(piece)


@contextmanager
def kept_full(disk: Path) -> Iterator[None]:
    """Fill a disk, and fill again at once what programs free on it. At the end it has space."""
    over, filler = threading.Event(), fill(disk)

    def keep() -> None:
        with filler.open("ab", buffering=0) as file:
            while not over.wait(0.001):
                with suppress(OSError):
                    file.write(bytes(4096))

    keeper = threading.Thread(target=keep)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()
        filler.unlink()
