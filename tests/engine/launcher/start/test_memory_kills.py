"""Kills for lack of memory, as the kernel counts them with and without control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.engine.launcher.start.processes import out_of_memory_kills

GROUP = {"/proc/self/cgroup": "0::/a/b\n", "/proc/vmstat": "pgfault 1\noom_kill 7\n"}
EVENTS = {"/sys/fs/cgroup/a/memory.events": "max 3\noom_kill 2\n"}
FIRST = {"/proc/self/cgroup": "9:name=systemd:/\n8:pids:/\n"}


@pytest.mark.parametrize(
    ("files", "kills"),
    [
        (GROUP | EVENTS, 2),
        (GROUP | FIRST, 7),
        (GROUP, 7),
        (EVENTS, 0),
    ],
    ids=["of a group above", "version 1", "no accounting", "no proc"],
)
def test_kills_are_counted_by_the_nearest_count(
    files: dict[str, str], kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(path: Path) -> str:
        try:
            return files[str(path)]
        except KeyError:
            raise FileNotFoundError(path) from None

    monkeypatch.setattr(Path, "read_text", read)
    assert out_of_memory_kills() == kills
