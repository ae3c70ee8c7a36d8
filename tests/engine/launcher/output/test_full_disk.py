"""With a full disk an attempt ends with that result; with a full disk under its log alone it
continues.

The disk is a small tmpfs, which needs root; otherwise the module is skipped with a message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.domain.life.outcomes import Reason
from tests.harness import disks
from tests.harness.attempts import Attempt
from tests.harness.drills import Drill

FILL = """
import os
hog = open("hog", "wb", buffering=0)
try:
    while True: hog.write(b"x" * 4096)
except OSError: pass
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Attempt]:
    """An attempt on a disk of two megabytes."""
    with disks.small_disk(tmp_path / "disk", "size=2m") as disk:
        folder = disk / "attempt"
        folder.mkdir()
        made = Attempt(folder)
        yield made
        made.end()


@pytest.mark.row
def test_a_full_disk_under_a_rank_is_a_storage_failure(small_disk: Attempt, drill: Drill) -> None:
    drill.begin("F18", "a rank finds its node's disk full")
    drill.injected += 1
    small_disk.script(FILL + "hog.write(b'x' * 4096)").start()
    outcome = small_disk.outcome()
    assert outcome.reason is Reason.STORAGE
    assert outcome.exception == "OSError: [Errno 28] No space left on device"
    assert (outcome.rank, outcome.exit_code) == (0, 1)


def test_a_full_disk_under_the_log_does_not_stop_training(
    small_disk: Attempt,
) -> None:
    # There is room only after the file is closed.
    flood = "import sys\nfor number in range(5_000): print(number)\nsys.stdout.flush()\n"
    small_disk.script(FILL + flood + "os.unlink('hog'); hog.close(); print('room again')").start()
    assert small_disk.outcome().reason is Reason.SUCCEEDED
    stored = small_disk.lines()
    assert stored[-1] == "room again"
    lost = [
        re.match(r"(\d+) lines of output were lost", record.text) for record in small_disk.records()
    ]
    assert len(stored) - 1 + sum(int(found[1]) for found in lost if found) == 5_000
