"""Programs that live without progress: ``lockstep up`` ends them and starts them again."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockstep.broker.server import command, find_server
from lockstep.client.local.supervisor import Program, ServiceSupervisor
from tests.harness.processes import until

PROGRAM = """
import time
from lockstep.system.watchdog import Watchdog
watchdog = Watchdog("test loop", look_seconds=0.05)
watchdog.watch()
while True:
    watchdog.report()
    time.sleep(0.05)
"""


@contextmanager
def supervised(tmp_path: Path, program: Program) -> Iterator[tuple[ServiceSupervisor, list[str]]]:
    told: list[str] = []
    supervisor = ServiceSupervisor(
        (program,),
        folder=tmp_path,
        logs=tmp_path,
        environment=dict(os.environ),
        tell=told.append,
        silent_seconds=3.0,
    )
    try:
        yield supervisor, told
    finally:
        supervisor.stop()


def tended(supervisor: ServiceSupervisor, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        supervisor.tend()
        time.sleep(0.05)


def programs(tmp_path: Path) -> dict[str, Program]:
    socket = tmp_path / "broker.sock"
    return {
        "ours": Program("ours", (sys.executable, "-c", PROGRAM), stop_seconds=1.0),
        "broker": Program(
            "broker",
            tuple(command(find_server(), socket=socket, folder=tmp_path)),
            stop_seconds=1.0,
            socket=socket,
        ),
    }


@pytest.mark.parametrize("kind", ["ours", "broker"])
def test_a_stopped_program_is_started_again(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.client.local.liveness.PING_SECONDS", 0.2)
    with supervised(tmp_path, programs(tmp_path)[kind]) as (supervisor, told):
        tended(supervisor, 5.0)
        first = supervisor.pids()[kind]
        assert not told, "it works, and is left alone"
        os.kill(first, signal.SIGSTOP)

        def replaced() -> bool:
            supervisor.tend()
            return supervisor.pids().get(kind, first) != first

        until(replaced, 60, "another process")
    assert told[0] == f"{kind} gave no sign of life for 3 s: killing it"
    assert told[1].startswith(f"{kind} ended (SIGKILL); restarting it in 1 s")


def test_a_program_that_never_gave_a_sign_of_life_is_left_alone(tmp_path: Path) -> None:
    silent = Program("silent", ("sleep", "600"), stop_seconds=1.0)
    with supervised(tmp_path, silent) as (supervisor, told):
        tended(supervisor, 4.0)
        assert supervisor.pids()
    assert not told


def test_a_program_starts_although_its_log_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "ours.log").mkdir()
    with supervised(tmp_path, programs(tmp_path)["ours"]) as (supervisor, _):
        supervisor.tend()
        assert supervisor.pids()
