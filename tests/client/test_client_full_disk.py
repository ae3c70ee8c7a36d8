"""``lockstep up`` and ``migrate`` on a full disk say so, although no log can be written there.

``lockstep down`` ends a service whose disk has become read-only.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.client.errors import ExitCode
from lockstep.client.local import down
from lockstep.client.local.home import Home
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


def test_a_home_on_a_disk_that_became_read_only_can_be_stopped(tmp_path: Path) -> None:
    with disks.small_disk(tmp_path / "disk", "size=1m") as folder:
        (folder / "lock").touch()
        (folder / "run.json").write_text(
            '{"url": "http://127.0.0.1:1", "pid": 1, "started": 0, "token_file": "token"}'
        )
        subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
        home, told = Home(folder), list[str]()
        assert down.run(home, tell=told.append) == ExitCode.OK
        assert told[0].startswith(f"no service runs in {folder}; the last one")
        holder = os.open(folder / "lock", os.O_RDONLY)
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert home.is_locked()
        os.close(holder)
