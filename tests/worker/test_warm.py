"""Launchers that are forked from a warm process: real ones, which run real scripts."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import ResultFile
from lockstep.domain.life.outcomes import Reason
from lockstep.system import processes
from lockstep.system.processes import ProcessSnapshot
from lockstep.worker.folders import Folder
from lockstep.worker.launch import launching
from lockstep.worker.launch.fork_client import ForkServer, ForkServerError
from lockstep.worker.launch.identity import launcher_key, started_in
from lockstep.worker.launch.sweeping import Children, ProcessTree
from tests.harness.attempts import assignment_of
from tests.harness.processes import until
from tests.worker.subreaper import as_agent, as_agent_that_forks

READY_SECONDS = 60.0
SCRIPT = """
import os, sys, time
print(os.getpid(), flush=True)
print(sorted(os.environ), flush=True)
while not os.path.exists("go"):
    time.sleep(0.01)
"""
EXECUTED = [sys.executable, "-c", "import sys; open(sys.argv[1] + '/executed', 'w')"]


def _folder(tmp_path: Path, name: str = "0000-attempt") -> Folder:
    folder = Folder(tmp_path / name)
    folder.create()
    code = folder.file(attempt.CODE)
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    folder.file(attempt.ASSIGNMENT).write_text(assignment_of().model_dump_json())
    return folder


def _warm() -> ForkServer:
    made = ForkServer(launching.environment_of(os.environ))
    made.tend()
    until(made.is_ready, READY_SECONDS)
    return made


def _launch(folder: Folder, children: Children, warm: ForkServer) -> processes.ProcessKey:
    launcher = launching.launch(
        folder, children, warm, EXECUTED, {**launching.environment_of(os.environ), "GIVEN": "1"}
    )
    assert launcher is not None
    return launcher


def _environment(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return dict(line.decode().split("=", 1) for line in lines if b"=" in line)


def _pid_of(warm: ForkServer) -> int:
    pid = warm.pid
    assert pid is not None
    return pid


def _lives(pid: int) -> bool:
    found = processes.process(pid)
    return found is not None and found.alive


@as_agent
def test_a_forked_launcher_equals_a_started_one(tmp_path: Path, children: Children) -> None:
    warm, folder = _warm(), _folder(tmp_path)
    launcher = _launch(folder, children, warm)
    assert not folder.file("executed").exists()
    ranks = folder.file(attempt.RANKS)
    until(ranks.exists)
    found = processes.process(launcher.pid)
    assert found is not None
    assert (found.parent, found.session) == (os.getpid(), launcher.pid), (
        "the agent's child, in a session of its own"
    )
    assert launcher_key(folder.launcher()) == launcher
    assert Path(f"/proc/{launcher.pid}/cwd").resolve() == folder.path
    assert Path(f"/proc/{launcher.pid}/comm").read_text() == "lockstep-launch\n"
    assert _environment(launcher.pid)[attempt.MARK_VARIABLE] == str(folder.path)
    assert launcher in {process.key for process in started_in(folder.path, ProcessSnapshot.take())}
    opened = {Path(f"/proc/{launcher.pid}/fd/{number}").resolve() for number in (1, 2)}
    assert opened == {folder.file(attempt.LAUNCHER_LOG)}
    assert children.sweep_orphans() == 0, "it is known"
    (folder.file(attempt.CODE) / "go").touch()
    until(lambda: children.exit_status(launcher.pid) is not None)
    assert children.exit_status(launcher.pid) == 0
    children.forget(launcher.pid)
    assert folder.file(attempt.LAUNCHER_LOG).read_text() == ""
    result = ResultFile.model_validate_json(folder.file(attempt.RESULT).read_bytes())
    assert result.outcome.reason is Reason.SUCCEEDED, result
    warm.close()


@as_agent_that_forks
def test_a_killed_forked_launcher_ends_its_ranks_and_not_the_warm_process(
    tmp_path: Path, children: Children
) -> None:
    warm, folder = _warm(), _folder(tmp_path)
    launcher = _launch(folder, children, warm)
    until(folder.file(attempt.RANKS).exists)
    tree = ProcessTree(folder.path, launcher)
    ranks = [process for process in tree.survivors() if process.key != launcher]
    assert len(ranks) == 1
    processes.send(launcher, signal.SIGKILL)
    until(lambda: children.exit_status(launcher.pid) == -signal.SIGKILL)
    until(lambda: not processes.is_alive(ranks[0].key))
    assert tree.kill(seconds=60)
    second = _folder(tmp_path, "0001-attempt")
    again = _launch(second, children, warm)
    until(second.file(attempt.RANKS).exists)
    assert ProcessTree(second.path, again).kill(seconds=60)
    warm.close()


@as_agent_that_forks
def test_without_a_warm_process_a_launcher_is_started_by_its_command(
    tmp_path: Path, children: Children
) -> None:
    warm = ForkServer(launching.environment_of(os.environ))
    folder = _folder(tmp_path)
    _launch(folder, children, warm)  # never started
    until(folder.file("executed").exists)
    warm.tend()
    until(warm.is_ready, READY_SECONDS)
    os.kill(_pid_of(warm), signal.SIGKILL)
    until(lambda: not _lives(_pid_of(warm)))
    second = _folder(tmp_path, "0001-attempt")
    _launch(second, children, warm)  # died in the meantime
    until(second.file("executed").exists)
    warm.close()


@as_agent_that_forks
def test_a_warm_process_without_answer_is_ended_with_its_forks(
    tmp_path: Path, children: Children
) -> None:
    warm, folder = _warm(), _folder(tmp_path)
    pid = _pid_of(warm)
    os.kill(pid, signal.SIGSTOP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "lockstep.worker.launch.fork_client._ANSWER_SECONDS", 0.5
        )  # one that is stopped never answers
        with pytest.raises(ForkServerError, match="started no launcher"):
            _launch(folder, children, warm)
    assert not _lives(pid)
    assert children.sweep_orphans() == 0
    assert not folder.file(attempt.LAUNCHER).exists()
    _launch(folder, children, warm)
    until(folder.file("executed").exists)
    warm.close()


@as_agent_that_forks
def test_the_warm_process_ends_with_its_agent_and_launchers_remain(
    tmp_path: Path, children: Children
) -> None:
    reader, writer = os.pipe()
    agent = os.fork()
    if agent == 0:
        from lockstep.system.processes import become_subreaper

        become_subreaper()
        warm, folder = _warm(), _folder(tmp_path)
        launcher = _launch(folder, Children(), warm)
        os.write(writer, f"{warm.pid} {launcher.pid}".encode())
        os.kill(os.getpid(), signal.SIGKILL)
    warm_pid, launcher_pid = map(int, os.read(reader, 64).split())
    until(lambda: not _lives(warm_pid))
    assert _lives(launcher_pid)
    folder = Folder(tmp_path / "0000-attempt")
    until(folder.file(attempt.RANKS).exists)
    (folder.file(attempt.CODE) / "go").touch()
    until(folder.file(attempt.RESULT).exists)
    os.waitpid(agent, 0)
