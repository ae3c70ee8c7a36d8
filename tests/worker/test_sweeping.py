"""End of every process of an attempt. Real processes: each test starts those that it kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from lockstep.system import processes
from lockstep.system.processes import ProcessKey, ProcessSnapshot
from lockstep.worker.folders import Folder
from lockstep.worker.launch import launching
from lockstep.worker.launch.identity import started_in
from lockstep.worker.launch.sweeping import Children, ProcessTree
from tests.harness.processes import until
from tests.worker.subreaper import as_agent

SUBREAPER = "import ctypes; ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)\n"
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:          # forked twice, in a session of its own
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open(sys.argv[1] + "/grandchild", "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
os.wait()
"""
LAUNCHER = SUBREAPER + "import os\n" + STUBBORN + "time.sleep(600)\n"


def _start(
    children: Children, tmp_path: Path, source: str
) -> tuple[Folder, ProcessKey, ProcessKey]:
    folder = Folder(tmp_path / "0000-attempt")
    folder.create()
    launcher = launching.launch(
        folder, children, None, [sys.executable, "-c", source], dict(os.environ)
    )
    mark = folder.file("grandchild")
    until(lambda: mark.exists() and mark.read_text() != "")
    grandchild = processes.process(int(mark.read_text()))
    assert launcher is not None
    assert grandchild is not None
    return folder, launcher, grandchild.key


def _kill_all(tree: ProcessTree) -> None:
    assert tree.kill(seconds=60)


@as_agent
def test_a_grandchild_in_its_own_session_that_ignores_sigterm_is_killed(
    tmp_path: Path, children: Children
) -> None:
    folder, launcher, grandchild = _start(children, tmp_path, LAUNCHER)
    _kill_all(ProcessTree(folder.path, launcher))
    assert not processes.is_alive(launcher)
    assert not processes.is_alive(grandchild)


@as_agent
def test_processes_of_a_killed_launcher_are_adopted_and_swept(
    tmp_path: Path, children: Children
) -> None:
    _, launcher, grandchild = _start(children, tmp_path, LAUNCHER)
    processes.send(launcher, signal.SIGKILL)
    until(lambda: children.exit_status(launcher.pid) == -signal.SIGKILL)
    children.forget(launcher.pid)
    assert processes.is_alive(grandchild)
    until(lambda: children.sweep_orphans() == 0)
    assert not processes.is_alive(grandchild)


@as_agent
def test_a_live_launcher_is_no_orphan(tmp_path: Path, children: Children) -> None:
    folder, launcher, grandchild = _start(children, tmp_path, LAUNCHER)
    assert children.sweep_orphans() == 0
    assert processes.is_alive(launcher)
    assert processes.is_alive(grandchild)
    _kill_all(ProcessTree(folder.path, launcher))


@as_agent
def test_known_descendants_are_killed_after_the_launchers_death(
    tmp_path: Path, children: Children
) -> None:
    _, launcher, grandchild = _start(children, tmp_path, LAUNCHER)
    tree = ProcessTree(
        tmp_path / "another-name", launcher
    )  # so that a search for the mark in the environment finds no process
    tree.remember(ProcessSnapshot.take())
    processes.send(launcher, signal.SIGKILL)
    until(lambda: children.exit_status(launcher.pid) is not None)
    assert processes.is_alive(grandchild)
    _kill_all(tree)
    assert not processes.is_alive(grandchild)


@as_agent
def test_processes_started_for_a_folder_are_found_without_any_memory_of_them(
    tmp_path: Path, children: Children
) -> None:
    folder, launcher, grandchild = _start(children, tmp_path, LAUNCHER)
    found = {process.key for process in started_in(folder.path, ProcessSnapshot.take())}
    assert {launcher, grandchild} <= found
    _kill_all(ProcessTree(folder.path, None))
    assert not processes.is_alive(grandchild)


def test_a_program_that_only_reads_the_folder_is_not_killed(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "0000-attempt")
    folder.create()
    looker = subprocess.Popen(
        ["sleep", "600"], cwd=folder.path, env={**os.environ, "PWD": str(folder.path)}
    )
    try:
        assert ProcessTree(folder.path, None).kill()
        assert looker.poll() is None
    finally:
        looker.kill()
        looker.wait()


def test_a_pid_given_to_another_process_is_not_signalled() -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        found = processes.process(other.pid)
        assert found is not None
        processes.send(ProcessKey(other.pid, found.key.start_ticks - 1), signal.SIGKILL)
        processes.send(
            found.key, signal.SIGSTOP
        )  # a later signal that does arrive: the first had its time
        until(lambda: (processes.process(other.pid) or found).state == "T")
    finally:
        other.kill()
        other.wait()


def test_the_end_of_a_process_is_reported_also_for_a_reused_pid() -> None:
    other = subprocess.Popen(["sleep", "600"])
    ended, gone = threading.Event(), threading.Event()
    try:
        found = processes.process(other.pid)
        assert found is not None
        processes.at_end_of(ProcessKey(other.pid, found.key.start_ticks - 1), gone.set)
        assert gone.wait(60)
        processes.at_end_of(found.key, ended.set)
        assert not ended.wait(0.2)
        other.kill()
        assert ended.wait(60)
    finally:
        other.kill()
        other.wait()


def test_a_launcher_sees_neither_the_services_settings_nor_its_python_path() -> None:
    seen = launching.environment_of(
        {
            "LOCKSTEP_DATABASE_URL": "postgresql://secret",
            "PYTHONPATH": "/service",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "PATH": "/usr/bin",
            "NCCL_DEBUG": "INFO",
        }
    )
    assert seen["PATH"] == "/usr/bin"
    assert seen["NCCL_DEBUG"] == "INFO"
    assert not {
        name for name in seen if name.startswith(("LOCKSTEP_DATABASE", "PYTHONPATH", "AWS"))
    }


@as_agent
def test_a_launcher_has_no_open_file_of_the_agent(tmp_path: Path, children: Children) -> None:
    folder = Folder(tmp_path / "0000-attempt")
    folder.create()
    held = os.open(tmp_path / "secret", os.O_CREAT | os.O_RDWR)
    os.set_inheritable(held, True)
    try:
        source = (
            "import os, sys; from pathlib import Path; found = []\n"
            "for fd in os.listdir('/proc/self/fd'):\n"
            "    try: found.append(os.readlink('/proc/self/fd/' + fd))\n"
            "    except FileNotFoundError: pass\n"
            "Path(sys.argv[1], 'fds').write_text(' '.join(found))"
        )
        launcher = launching.launch(
            folder, children, None, [sys.executable, "-c", source], dict(os.environ)
        )
        assert launcher is not None
        until(lambda: children.exit_status(launcher.pid) == 0)
    finally:
        os.close(held)
    found = folder.file("fds").read_text()
    assert "launcher.log" in found
    assert "secret" not in found


def test_a_process_lives_as_long_as_any_of_its_threads() -> None:
    leave = 60 if os.uname().machine == "x86_64" else 93  # the system call that ends one thread
    source = (
        f"import ctypes, threading; threading.Thread(target=input).start(); "
        f"ctypes.CDLL(None).syscall({leave}, 0)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )

    def first_thread_ended() -> bool:
        return Path(f"/proc/{started.pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z"

    try:
        until(first_thread_ended)
        found = processes.process(started.pid)
        assert found is not None
        assert found.alive
        assert started.poll() is None
    finally:
        started.kill()
        started.wait()
        assert started.stdin is not None
        started.stdin.close()
    assert processes.process(started.pid) is None


def test_a_name_with_parentheses_and_spaces_does_not_shift_the_fields(tmp_path: Path) -> None:
    program = tmp_path / "a) R 1 (b"
    program.symlink_to("/bin/sleep")
    named = subprocess.Popen([str(program), "600"])
    try:
        until(lambda: "R 1" in Path(f"/proc/{named.pid}/comm").read_text())
        found = processes.process(named.pid)
        assert found is not None
        assert found.parent == os.getpid()
    finally:
        named.kill()
        named.wait()
