"""An attempt's control group: no process in it escapes, however it left the process tree."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.domain.life import attempt
from lockstep.system.processes import ProcessSnapshot, is_alive, process
from lockstep.worker.launch import launching
from lockstep.worker.launch.groups import ControlGroup
from lockstep.worker.launch.identity import started_in
from lockstep.worker.launch.sweeping import ProcessTree

FLEES = """
import os, sys, time
from lockstep.engine.launcher.start.processes import enter_group
enter_group(os.environ["LOCKSTEP_CGROUP"])
os.environ.clear()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, "-c",
            "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(600)", sys.argv[1]])
    os._exit(0)
os.wait()
"""
"""Leaves a grandchild without parent, session, group or environment of the attempt."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ControlGroup]:
    found = ControlGroup(f"test-{os.getpid()}-{tmp_path.name}")
    if found.create() is None:
        pytest.skip("NOT RUN: this user may make no control group (version 2) here")
    yield found
    found.kill()
    found.remove()


def test_a_process_outside_tree_and_session_is_killed_by_its_group(
    group: ControlGroup, tmp_path: Path
) -> None:
    mark = tmp_path / "pid"
    own = {
        attempt.MARK_VARIABLE: str(tmp_path / "elsewhere"),
        attempt.GROUP_VARIABLE: str(group.path),
    }
    environment = {**launching.environment_of(os.environ), **own}
    subprocess.run(
        [sys.executable, "-c", FLEES, str(mark)],
        env=environment,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    deadline = time.monotonic() + 60
    while not (mark.exists() and mark.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    fled = process(int(mark.read_text()))
    assert fled is not None
    assert group.path is not None
    tree = ProcessTree(tmp_path / group.path.name.removeprefix("lockstep-"), None)
    assert started_in(tree.folder, ProcessSnapshot.take()) == [], (
        "nothing but the group tells whose it is"
    )
    assert [found.key for found in tree.survivors()] == [fled.key]
    assert tree.kill(seconds=60)
    assert not is_alive(fled.key)
    assert not group.path.exists()


def test_groups_that_user_code_made_below_are_killed_and_removed_too(group: ControlGroup) -> None:
    assert group.path is not None
    (group.path / "own" / "inner").mkdir(parents=True)
    sleeper = subprocess.Popen(["sleep", "600"])
    (group.path / "own" / "inner" / "cgroup.procs").write_text(str(sleeper.pid))
    assert group.pids() == [sleeper.pid]
    group.kill()
    assert sleeper.wait(60) == -signal.SIGKILL
    group.remove()
    assert not group.path.exists()


def test_where_no_group_may_be_made_there_is_none_and_nothing_fails(tmp_path: Path) -> None:
    absent = ControlGroup("absent")
    for path in (None, tmp_path / "missing" / "group", tmp_path / "file"):
        (tmp_path / "file").write_text("")
        absent.path = path
        assert absent.create() is None
        absent.kill()
        assert absent.pids() == []
        absent.remove()


def test_the_name_of_the_group_does_not_reach_the_ranks(tmp_path: Path) -> None:
    from lockstep.engine.launcher.environment import scrub

    environment = {attempt.GROUP_VARIABLE: str(tmp_path / "group")}
    scrub(environment)
    assert attempt.GROUP_VARIABLE not in environment
