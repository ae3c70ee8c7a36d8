"""``lockstep up`` and ``migrate`` on a full disk say so, although no log can be written there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.processes import ROOT, inherited


@pytest.fixture
def full_home(tmp_path: Path) -> Iterator[Path]:
    """Return a home on a file system without free space."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("NOT RUN: mounting a file system needs root")
    with pytest.raises(OSError, match="No space left"):
        (folder / "filler").write_bytes(bytes(2**21))
    yield folder / "home"
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("words", [("up",), ("up", "--detach"), ("migrate",)])
def test_a_start_on_a_full_disk_is_refused_with_the_reason(
    words: tuple[str, ...], full_home: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lockstep", *words],
        env={**inherited(), "LOCKSTEP_HOME": str(full_home), "COLUMNS": "300"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr == (
        f"lockstep: {full_home}: cannot store the service's data: its disk has 0.0 MiB free, and "
        "8 MiB are required\n"
        "          free space there, or give another folder with --home or LOCKSTEP_HOME\n"
    )
