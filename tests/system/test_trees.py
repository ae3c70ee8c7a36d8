"""Removal of trees that no recursion and no single call could remove."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.system.untrusted import Untrusted

LEVELS = 20_000


def _nested(path: Path, levels: int) -> None:
    """Make folders in folders, deeper than any path is long."""
    path.mkdir()
    here = os.open(path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=here))
    os.close(here)


@pytest.fixture
def memory() -> Iterator[Path]:
    """Return a folder in memory: a disk needs up to a millisecond for each folder."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


def _slices(files: Untrusted, name: str, seconds: float) -> int:
    count = 1
    while not files.remove(name, seconds=seconds):
        count += 1
    return count


def test_folders_nested_beyond_any_path_are_removed_in_slices(memory: Path) -> None:
    _nested(memory / "deep", LEVELS)
    assert _slices(Untrusted(memory), "deep", 0.05) > 1
    assert list(memory.iterdir()) == []


def test_many_entries_are_removed_in_slices_and_links_are_not_followed(memory: Path) -> None:
    (memory / "mine").mkdir()
    (memory / "mine/file").write_text("mine")
    wide = memory / "wide"
    for folder in ("x/y", "z"):
        (wide / folder).mkdir(parents=True)
        for number in range(5_000):
            (wide / folder / f"{number}").symlink_to(memory / "mine")
    os.mkfifo(wide / "pipe")
    assert _slices(Untrusted(memory), "wide", 0.01) > 1
    assert (memory / "mine/file").read_text() == "mine"
    assert not wide.exists()


def test_one_file_or_link_is_removed_and_a_missing_name_is_removed_already(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("mine")
    (tmp_path / "mine").write_text("mine")
    files = Untrusted(tmp_path)
    assert files.remove("link", seconds=1)
    assert files.remove("none", seconds=1)
    assert files.remove("none/none", seconds=1)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


AS_A_USER = """
import os, sys
from pathlib import Path
from lockstep.system.untrusted import Untrusted
if os.getuid() == 0:
    os.setuid(65534)
job = Path(sys.argv[1]) / "job"
(job / "a/b").mkdir(parents=True)
(job / "a/b/file").write_text("x")
for name, mode in (("a/b", 0o500), ("a", 0)):
    (job / name).chmod(mode)
assert Untrusted(job.parent).remove("job", seconds=5)
assert not job.exists()
"""


def test_folders_that_the_job_closed_to_its_user_are_removed(memory: Path) -> None:
    memory.chmod(0o777)  # root would ignore the modes, so it becomes another user
    subprocess.run([sys.executable, "-c", AS_A_USER, str(memory)], check=True, timeout=60)


def test_what_cannot_be_removed_is_an_error_and_the_rest_is_gone(tmp_path: Path) -> None:
    if os.getuid() != 0 or subprocess.run(["chattr", "+i", tmp_path], check=False).returncode:
        pytest.skip("only root can make an immutable file, on some file systems")
    subprocess.run(["chattr", "-i", tmp_path], check=True)
    job = tmp_path / "job"
    job.mkdir()
    for name in ("a", "fixed", "z"):
        (job / name).touch()
    subprocess.run(["chattr", "+i", job / "fixed"], check=True)
    try:
        with pytest.raises(PermissionError):
            Untrusted(tmp_path).remove("job", seconds=5)
        assert [path.name for path in job.iterdir()] == ["fixed"]
    finally:
        subprocess.run(["chattr", "-i", job / "fixed"], check=True)
