"""``lockstep up`` and ``down`` with stand-in programs: life, end, order, and leftovers."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.client.errors import ClientError, ExitCode, UsageError
from lockstep.client.local import down
from lockstep.client.local.home import Home, RunFile
from lockstep.client.local.settings import Options, require_timings, service
from lockstep.client.local.up import run_detached
from tests.client import standin
from tests.harness.processes import alive, free_port, inherited, until

TABLE = ("broker", "api", "worker", "scheduler")


class Up:
    """A running ``lockstep up`` with stand-ins."""

    def __init__(self, folder: Path):
        self.home = Home(folder)
        self.port = free_port()
        self._started: list[subprocess.Popen[str]] = []

    def start(self, *table: str, port: int | None = None) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, standin.SELF, str(self.home.folder), str(port or self.port), *table],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._started.append(process)
        return process

    def ready(self, *table: str) -> subprocess.Popen[str]:
        process = self.start(*table)
        until(lambda: (running := self.home.running()) is not None and running.ready, what="ready")
        return process

    def diary(self) -> list[str]:
        file = self.home.folder / "diary"
        return file.read_text().splitlines() if file.exists() else []

    def pids(self, name: str) -> list[int]:
        return [
            int(line.split()[1])
            for line in self.diary()
            if line.split()[0] == name and line.split()[1].isdigit()
        ]

    def all_pids(self) -> list[int]:
        return [int(word) for line in self.diary() for word in line.split()[1:2] if word.isdigit()]

    def close(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for pid in self.all_pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    running = Up(tmp_path / "home")
    yield running
    running.close()


def test_the_service_starts_reports_its_address_and_stops_in_order(up: Up) -> None:
    process = up.ready(*TABLE)
    running = up.home.running()
    assert running is not None
    assert running.pid == process.pid
    assert set(running.pids) == set(TABLE)
    written = [up.home.run_file, *up.home.logs.iterdir()]
    assert {path.stat().st_mode & 0o077 for path in written} == {0}
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert [line for line in up.diary() if line.endswith("ends")] == [
        "scheduler ends",
        "worker ends",
        "api ends",
        "broker ends",
    ]
    assert (
        f"Lockstep is up at http://127.0.0.1:{up.port}\n  pages   http://127.0.0.1:{up.port}/ "
        in said
    )
    assert said.rstrip().endswith("stopped")
    assert not up.home.run_file.exists()
    assert not any(alive(pid) for pid in up.all_pids())


def test_only_the_worker_gets_the_setting_to_stop_jobs(up: Up) -> None:
    up.ready(*TABLE)
    told = {line.split()[0]: line.split()[2] for line in up.diary()}
    assert told == {"broker": "-", "api": "-", "scheduler": "-", "worker": "on"}


def test_a_program_that_dies_is_restarted_with_a_message(up: Up) -> None:
    process = up.ready("api", "worker")
    before = up.pids("worker")[0]
    os.kill(before, signal.SIGKILL)
    after = until(lambda: up.pids("worker")[1:], what="the worker again")[0]
    assert after != before
    until(
        lambda: (running := up.home.running()) is not None and running.pids.get("worker") == after,
        what="run.json",
    )
    assert len(up.pids("api")) == 1
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert "worker ended (SIGKILL); restarting it in 1 s" in said


def test_its_programs_die_with_it_when_it_is_killed(up: Up) -> None:
    process = up.ready(*TABLE)
    pids = up.all_pids()
    assert all(alive(pid) for pid in pids)
    process.kill()
    until(lambda: not any(alive(pid) for pid in pids), 60, "the end of every program")
    assert up.home.run_file.exists()
    assert not up.home.is_locked()


def test_a_program_that_ignores_sigterm_is_killed_with_its_children(
    up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STANDIN_STOP_SECONDS", "1")
    process = up.ready("stubborn:stubborn", "family:family")
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=60)
    assert "stubborn did not end within 1 s of SIGTERM and was killed" in said
    assert len(up.all_pids()) == 3
    assert not any(alive(pid) for pid in up.all_pids())


def test_asking_twice_does_not_wait(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STANDIN_STOP_SECONDS", "600")
    process = up.ready(*[f"s{number}:stubborn" for number in range(5)])
    process.send_signal(signal.SIGINT)
    until(lambda: "s4 stays" in up.diary(), what="the first that is asked to end")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert not any(alive(pid) for pid in up.all_pids())


def test_a_second_up_in_the_same_home_names_the_first(up: Up) -> None:
    first = up.ready("api")
    second = up.start("api", port=free_port())
    said, _ = second.communicate(timeout=60)
    assert second.returncode == 1
    assert (
        f"a service already runs in {up.home.folder}, at http://127.0.0.1:{up.port} (process "
        f"{first.pid})"
    ) in said
    assert "lockstep down" in said
    assert up.home.running() is not None
    assert len(up.pids("api")) == 1


def test_after_a_kill_the_next_up_starts_as_if_nothing_had_been(up: Up) -> None:
    up.ready("api").kill()
    until(lambda: not up.home.is_locked(), what="the lock free")
    up.home.run_file.unlink()
    second = up.ready("api")
    second.send_signal(signal.SIGTERM)
    second.communicate(timeout=60)
    assert second.returncode == 0


def test_files_of_a_killed_service_are_removed_first(up: Up) -> None:
    """Its pid may belong to another process by now.

    `lockstep down` would signal that process during the start of the new service.
    """
    up.home.create()
    up.home.write_run_file(
        RunFile(url="http://x", pid=os.getpid(), started=0.0, token_file="t", ready=True)
    )
    with socket.socket() as other:
        other.bind(("127.0.0.1", up.port))
        other.listen()
        up.start("api").communicate(timeout=60)
    assert not up.home.run_file.exists()


def test_a_taken_port_is_named_before_anything_is_started(up: Up) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", up.port))
        other.listen()
        process = up.start("api")
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 2
    assert f"port {up.port} of 127.0.0.1 cannot be used" in said
    assert "--port" in said
    assert up.diary() == []


def test_a_program_that_cannot_start_ends_up_and_shows_its_log(up: Up, tmp_path: Path) -> None:
    process = up.start("api", "scheduler:broken")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "scheduler does not start: it ended 3 times" in said
    assert "cannot work like this" in said
    assert not any(alive(pid) for pid in up.all_pids())


def test_settings_that_a_program_refuses_end_up_with_the_reason(up: Up) -> None:
    process = up.start("api", "worker:refusing", "scheduler:broken")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 2, said
    refusal = "worker refuses its settings: agent: LOCKSTEP_NODE_NAME: 'A' is no name"
    assert f"refused: {refusal} / see: lockstep settings" in said
    assert not any(alive(pid) for pid in up.all_pids())


def test_down_ends_it_from_outside(up: Up) -> None:
    process = up.ready(*TABLE)
    said: list[str] = []
    assert down.run(up.home, tell=said.append) == ExitCode.OK
    process.communicate(timeout=60)
    assert process.returncode == 0
    assert not any(alive(pid) for pid in up.all_pids())
    assert said[0].startswith(f"stopping the service at http://127.0.0.1:{up.port}")
    assert said[1].startswith("stopped after ")


def test_down_without_a_service_removes_the_files_of_a_killed_one(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    said: list[str] = []
    assert down.run(home, tell=said.append) == ExitCode.OK
    home.create()
    home.lock_file.touch()
    home.write_run_file(RunFile(url="http://x", pid=1, started=0.0, token_file="t"))
    assert down.run(home, tell=said.append) == ExitCode.OK
    assert not home.run_file.exists()
    assert "no service runs in" in said[0]
    assert "did not shut down cleanly" in said[1]


def test_a_large_log_is_set_aside_at_the_start(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    up.home.create()
    log = up.home.logs / "api.log"
    with log.open("wb") as file:
        file.truncate(11 * 1024 * 1024)
    up.ready("api")
    assert log.stat().st_size < 1024
    assert log.with_suffix(".log.1").stat().st_size == 11 * 1024 * 1024


# The command itself.


def lockstep(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = inherited()
    return subprocess.run(
        [sys.executable, "-m", "lockstep", *words],
        env=environment | {"LOCKSTEP_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_detached_up_that_cannot_start_has_an_exit_code(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        done = lockstep(tmp_path / "home", "up", "--detach", "--port", str(other.getsockname()[1]))
    assert done.returncode == 2
    assert "choose another port with --port" in done.stderr
    assert not (tmp_path / "home" / "run.json").exists()


def test_the_second_of_two_that_start_at_once_leaves_the_log_of_the_first(
    up: Up, monkeypatch: pytest.MonkeyPatch
) -> None:
    up.ready("api")
    log = up.home.logs / "up.log"
    log.write_text("Lockstep is up\n")
    monkeypatch.setattr(Home, "locked", lambda _: contextlib.nullcontext())  # not yet, at its check
    told: list[str] = []
    code = run_detached(up.home, Options(port=free_port()), tell=told.append)
    assert (code, log.read_text()) == (ExitCode.FAILED, "Lockstep is up\n")
    assert "a service already runs" in told[0]
    assert [path.name for path in up.home.logs.glob("up.log*")] == ["up.log"]


def test_migrate_makes_the_databases(tmp_path: Path) -> None:
    done = lockstep(tmp_path / "home", "migrate")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "home" / "jobs.db").exists()
    assert (tmp_path / "home" / "series.db").exists()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = lockstep(tmp_path / "file" / "home", "up")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"lockstep: {tmp_path}/file/home: cannot store the service's data"
    )
    assert "--home" in done.stderr


# Command lines of the real programs.


def test_the_defaults_stay_in_the_home_and_the_environment_is_kept(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    settled = service(
        home, Options(), {"PATH": "/bin", "OTHER": "kept", "LOCKSTEP_LOG_FORMAT": "json"}
    )
    folder = home.folder
    assert settled.environment == {
        "PATH": "/bin",
        "OTHER": "kept",
        "LOCKSTEP_LOG_FORMAT": "json",
        "LOCKSTEP_HOME": str(folder),
        "LOCKSTEP_HOST": "127.0.0.1",
        "LOCKSTEP_PORT": "8470",
        "LOCKSTEP_DATABASE_URL": f"sqlite:///{folder}/jobs.db",
        "LOCKSTEP_BROKER_URL": f"redis+socket://{home.socket()}",
        "LOCKSTEP_STORE": f"{folder}/store",
        "LOCKSTEP_NODE_DIR": f"{folder}/node",
        "LOCKSTEP_TOKEN_FILE": f"{folder}/token",
    }
    assert [program.name for program in settled.programs] == [
        "broker",
        "api",
        "worker",
        "scheduler",
    ]
    assert settled.programs[0].argv[1:4] == ("-P", "-m", "lockstep.broker")
    assert settled.migrate.argv[1:] == ("-P", "-m", "lockstep.api", "migrate")


def test_flags_win_over_the_environment_and_that_over_the_defaults(tmp_path: Path) -> None:
    environment = {"LOCKSTEP_PORT": "1", "LOCKSTEP_CPU_SLOTS": "3", "LOCKSTEP_HOST": "::1"}
    settled = service(
        Home(tmp_path),
        Options(port=2, node_name="n", database_url="postgresql+psycopg://x"),
        environment,
    )
    assert settled.url == "http://[::1]:2"
    assert settled.environment["LOCKSTEP_CPU_SLOTS"] == "3"
    assert settled.environment["LOCKSTEP_NODE_NAME"] == "n"
    assert settled.environment["LOCKSTEP_DATABASE_URL"] == "postgresql+psycopg://x"


def test_an_existing_broker_is_used_and_none_is_started(tmp_path: Path) -> None:
    settled = service(Home(tmp_path), Options(), {"LOCKSTEP_BROKER_URL": "redis://elsewhere"})
    assert settled.environment["LOCKSTEP_BROKER_URL"] == "redis://elsewhere"
    assert [program.name for program in settled.programs] == ["api", "worker", "scheduler"]


def test_the_worker_has_longer_than_its_ranks(tmp_path: Path) -> None:
    programs = service(Home(tmp_path), Options(), {"LOCKSTEP_TIMINGS_SCALE": "10"}).programs
    (worker,) = (program for program in programs if program.name == "worker")
    assert worker.stop_seconds == 4_500


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LEASE_SECONDS", "20", "fence_seconds must be less than lease_seconds, got 50 and 20"),
        ("LEASE_SECONDS", "long", "LOCKSTEP_LEASE_SECONDS: Input should be a valid number"),
        (
            "FENCE_SECONDS",
            "0",
            "LOCKSTEP_FENCE_SECONDS: Input should be greater than or equal to 4",
        ),
    ],
)
def test_timings_that_the_scheduler_refuses_are_refused(name: str, value: str, said: str) -> None:
    require_timings({})
    with pytest.raises(UsageError, match=said):
        require_timings({f"LOCKSTEP_{name}": value})


def test_the_flags_reach_the_process_in_the_background() -> None:
    words = Options(host="h", cpu_slots=2).words()
    assert words == ["--host", "h", "--cpu-slots", "2"]


def test_the_sockets_path_stays_short_and_its_folder_private(tmp_path: Path) -> None:
    assert Home(Path("/srv/l")).socket() == Path("/srv/l/broker/broker.sock")
    long = Home(tmp_path / ("x" * 120))
    path = long.socket()
    try:
        assert len(os.fsencode(path)) < 108
        assert path == Home(tmp_path / ("x" * 120)).socket()
        assert path != Home(tmp_path / ("y" * 120)).socket()
        assert path.parent.stat().st_mode & 0o777 == 0o700
        path.parent.chmod(0o755)
        with pytest.raises(ClientError, match="not a private folder"):
            long.socket()
    finally:
        path.parent.rmdir()
        Home(tmp_path / ("y" * 120)).socket().parent.rmdir()
