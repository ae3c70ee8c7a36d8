"""Folders of attempts, with their real launcher.

Not here: the pool of ranks for cases (``tests.harness.ranks``).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import AssignmentFile, FenceFile, LogRecord, ResultFile, StopFile
from lockstep.domain.life.outcomes import Outcome
from lockstep.domain.spec.job import JobSpec
from lockstep.worker.launch.fork_client import ForkServer
from tests.harness import forks
from tests.harness.processes import free_port, until

_RUN = """
import sys, pathlib
from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.run import run_attempt
run_attempt(pathlib.Path(sys.argv[1]), Bounds(**{bounds!r}))
"""

_RUN_HANGING = """
import sys, pathlib, time
from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.run import run_attempt
class Hanging:
    def run(self, gang, on_started):
        time.sleep(600)
run_attempt(pathlib.Path(sys.argv[1]), Bounds(stuck_seconds=0.2), Hanging())
"""


def script_spec(
    command: tuple[str, ...], *, ranks: int, env: dict[str, str] | None
) -> dict[str, Any]:
    script = {"command": list(command)}
    return {
        "name": "job",
        "kind": "script",
        "script": script,
        "env": env or {},
        "resources": {"gpus": ranks},
    }


def assignment_of(
    *,
    spec: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    ranks: int = 1,
    **fields: Any,
) -> AssignmentFile:
    """Return an assignment of ranks on CPU slots, changed by ``fields``."""
    document = {
        "job_id": "0190-job",
        "attempt_number": 2,
        "assignment_id": "0190-assignment",
        "spec": JobSpec.model_validate(spec or script_spec(("train.py",), ranks=1, env=env)),
        "plan": None,
        "node_name": "node-a",
        "ranks_here": ranks,
        "world_size": ranks,
        "devices": list(range(ranks)),
        "device_kind": "cpu",
        "rendezvous_port": free_port(),
        "stop_grace_seconds": 1.0,
        "exit_stall_seconds": 30.0,
    }
    return AssignmentFile.model_validate({**document, **fields})


class Forked:
    """Launcher that is not a child of this process, with the needed part of ``Popen``."""

    def __init__(self, pid: int):
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return 0 once it has ended; only its parent gets its exit code."""
        return 0 if select.select([self._descriptor], [], [], 0)[0] else None

    def wait(self, timeout: float | None = None) -> int:
        if not select.select([self._descriptor], [], [], timeout)[0]:
            raise subprocess.TimeoutExpired(f"launcher {self.pid}", timeout or 0.0)
        return 0

    def send_signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Attempt:
    """Folder of one attempt and, once started, its launcher: forked by a warm process if there is
    one, or by exec."""

    def __init__(self, folder: Path, warm: ForkServer | None = None):
        self.folder = folder
        self.process: subprocess.Popen[bytes] | Forked | None = None
        self._warm = warm

    def script(self, source: str, *args: str, name: str = "train.py", **assignment: Any) -> Attempt:
        """Assign a script job whose code is one Python file."""
        code = self.folder / attempt.CODE
        code.mkdir(exist_ok=True)
        (code / name).write_text(source)
        return self.command(name, *args, **assignment)

    def command(
        self, *command: str, ranks: int = 1, env: dict[str, str] | None = None, **fields: Any
    ) -> Attempt:
        """Assign a script job that runs a command."""
        return self.assign(script_spec(command, ranks=ranks, env=env), ranks=ranks, **fields)

    def assign(self, spec: dict[str, Any], *, ranks: int, **fields: Any) -> Attempt:
        """Assign any job."""
        assignment = assignment_of(spec=spec, ranks=ranks, **fields)
        (self.folder / attempt.ASSIGNMENT).write_text(assignment.model_dump_json())
        return self

    def start(
        self, *, environ: dict[str, str] | None = None, hanging: bool = False, **bounds: float
    ) -> Attempt:
        """Start the launcher in a session of its own, as the agent does.

        With ``hanging`` the start of ranks never returns; ``bounds`` replace the launcher's own. A
        launcher with such changes, or with another environment, is not forked.
        """
        command = (
            ["-c", _RUN.format(bounds=bounds)] if bounds else ["-m", "lockstep.engine.launcher"]
        )
        command = ["-c", _RUN_HANGING] if hanging else command
        with (self.folder / attempt.LAUNCHER_LOG).open("ab") as log:
            if self._warm is not None and not (environ or hanging or bounds):
                pid = self._warm.fork(self.folder, os.environ, log.fileno())
                assert pid is not None
                self.process = Forked(pid)
                return self
            self.process = forks.Forked(
                [sys.executable, *command, self.folder],
                forks.ENGINE,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=None if environ is None else {**os.environ, **environ},
            )
        return self

    def write(self, name: str, text: str) -> None:
        temporary = self.folder / f"{name}.tmp"
        temporary.write_text(text)
        temporary.replace(self.folder / name)

    def fence(self, seconds: float) -> None:
        deadline = time.clock_gettime(time.CLOCK_BOOTTIME) + seconds
        self.write(attempt.FENCE, FenceFile(deadline_boottime=deadline).model_dump_json())

    def stop(self, reason: Any, grace_seconds: float) -> None:
        self.write(
            attempt.STOP, StopFile(reason=reason, grace_seconds=grace_seconds).model_dump_json()
        )

    def outcome(self, seconds: float = 60.0) -> Outcome:
        """Return the outcome, once the launcher has written it and exited."""
        assert self.process is not None
        result = self.folder / attempt.RESULT
        until(
            lambda: result.exists() or self.process_ended(),
            seconds=seconds,
            what=f"a result in {self.folder}",
        )
        self.process.wait(timeout=60)
        assert result.exists(), (self.folder / attempt.LAUNCHER_LOG).read_text()
        return ResultFile.model_validate_json(result.read_bytes()).outcome

    def process_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def ranks(self) -> dict[int, int]:
        """Return the pids by rank, once all ranks were started."""
        path = self.folder / attempt.RANKS
        until(path.exists, seconds=60, what="ranks.json")
        return {entry["rank"]: entry["pid"] for entry in json.loads(path.read_text())["ranks"]}

    def records(self) -> Iterator[LogRecord]:
        """Return the complete records: the last one may be partially written."""
        for segment in sorted((self.folder / attempt.LOGS).glob("*.jsonl")):
            for line in segment.read_bytes().split(b"\n")[:-1]:
                yield LogRecord.model_validate_json(line)

    def lines(self, rank: int = 0, stream: str = "stdout") -> list[str]:
        return [
            record.text
            for record in self.records()
            if record.rank == rank and record.stream == stream
        ]

    def saw(self, text: str) -> None:
        """Wait until some rank has written ``text``."""
        until(
            lambda: any(text in record.text for record in self.records()),
            seconds=60,
            what=f"a line with {text!r}",
        )

    def end(self) -> None:
        """Remove all processes and files of the attempt."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGCONT)
        if self.process.poll() is None:
            self.stop("cancelled", 0.0)
            try:
                self.process.wait(timeout=60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
