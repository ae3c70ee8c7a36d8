"""Requests to end an attempt, as its launcher receives them.

Not here: their causes (``tests.worker.test_agent``).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.worker.agent.ending import Ending
from lockstep.worker.folders import Folder
from tests.harness import disks


def test_a_stop_that_a_full_disk_refused_is_passed_on_once_there_is_space(tmp_path: Path) -> None:
    with disks.small_disk(tmp_path / "disk", "size=64k") as disk:
        folder = Folder(disk / "attempt")
        folder.create()
        ending = Ending(folder, least_seconds=30.0)
        filler = disks.fill(disk)
        assert ending.request_stop("cancelled")
        with pytest.raises(OSError, match="No space left"):
            ending.obey(None)
        filler.unlink()
        assert ending.obey(None)
        stop = folder.stop()
        assert stop is not None
        assert stop.reason == "cancelled"
        assert 25.0 < stop.grace_seconds <= 30.0
        assert not ending.obey(None)
