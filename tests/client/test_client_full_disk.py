"""``lockstep up`` and ``migrate`` on a full disk say so, although no log can be written there."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness import disks
from tests.harness.processes import ROOT, inherited


@pytest.fixture
def full_home(tmp_path: Path) -> Iterator[Path]:
    """Return a home on a file system without free space."""
    with disks.small_disk(tmp_path / "disk", "size=1m") as folder:
        disks.fill(folder)
        yield folder / "home"


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
