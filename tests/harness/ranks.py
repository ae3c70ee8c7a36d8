"""Ranks: a pool of Gloo processes for cases, and folders of attempts with their real launcher.

The pool runs cases one after another, because four imports of torch per case would take a minute.
Its ranks are forked from a process that has imported the needed modules, as a launcher forks the
ranks of a job. A case runs on the first W of them over a group of their own; the others wait.

Not here: the cases (``tests.engine.cases``).
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

import psutil

from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import AssignmentFile, FenceFile, LogRecord, ResultFile, StopFile
from lockstep.domain.life.outcomes import Outcome
from lockstep.domain.spec.job import JobSpec
from lockstep.worker.launch.fork_client import ForkServer
from tests.harness import forks
from tests.harness.processes import free_port, until

SIZE = 4
START_SECONDS = 120.0
CASE_SECONDS = 120.0
GROUPS_MAX = 1_000
"""Groups that a case makes, at most."""
START = (
    "import sys; from tests.harness.ranks import fork; "
    "fork(sys.argv[1], sys.argv[2], int(sys.argv[3]))"
)
HEAVY = (
    "torch._dynamo",
    "torch.distributed.fsdp",
    "torch.nn.parallel",
    "torch.profiler",
    "tests.engine.cases",
)
"""Imported before the fork: otherwise the first case of each world size imports them in every
rank."""


class Pool:
    """Parent's side of the pool."""

    def __init__(self, folder: Path, size: int = SIZE):
        self._folder, self._size = folder, size
        self._starts = self._cases = 0
        self._start()

    def _start(self) -> None:
        self._starts += 1
        address = str(self._folder / f"pool{self._starts}.sock")
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        self._listener = Listener(address, family="AF_UNIX")
        self._parent = subprocess.Popen(
            [
                sys.executable,
                "-c",
                START,
                address,
                str(self._folder / f"store{self._starts}"),
                str(self._size),
            ],
            env=environment,
            cwd=Path(__file__).parents[2],
            start_new_session=True,  # for a common process group
        )
        self._grouped: set[int] = set()
        self._connections: dict[int, Connection] = {}
        for _ in range(self._size):
            connection = self._listener.accept()
            self._connections[receive(connection)] = connection

    def run(self, function: Callable[..., Any], *arguments: Any, world_size: int) -> list[Any]:
        """Run ``function(ranks, *arguments)`` on the first ``world_size`` ranks; return their
        results in rank order."""
        self._cases += 1
        try:
            results = self._run(function, arguments, world_size)
        except (EOFError, ConnectionError, TimeoutError) as error:
            self._replace()  # For the tests that follow.
            raise AssertionError(f"a rank of the pool hangs or has ended: {error!r}") from error
        errors = [result for result in results if isinstance(result, Raised)]
        if errors:
            raise errors[0].error from RuntimeError(errors[0].text)
        return results

    def _run(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], world_size: int
    ) -> list[Any]:
        if world_size > 1 and world_size not in self._grouped:
            self._grouped.add(world_size)
            self._tell(self._size, "group", world_size)
        self._tell(world_size, "run", function, arguments, world_size, self._cases)
        results = []
        for rank in range(world_size):
            if not self._connections[rank].poll(CASE_SECONDS):
                raise TimeoutError(f"rank {rank} did not answer within {CASE_SECONDS} s")
            results.append(receive(self._connections[rank]))
        self._tell(world_size, "forget")
        return results

    def _tell(self, world_size: int, *message: Any) -> None:
        for rank in range(world_size):
            send(self._connections[rank], message)

    def close(self) -> None:
        for connection in self._connections.values():
            with contextlib.suppress(OSError):
                send(connection, None)
        try:
            self._parent.wait(60)  # It waits for them.
        except subprocess.TimeoutExpired:
            os.killpg(self._parent.pid, signal.SIGKILL)
        self._forget()

    def _replace(self) -> None:
        """Print where each process of the pool hangs, and start another pool for later tests."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._print_stacks(psutil.Process(self._parent.pid).children(recursive=True))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._parent.pid, signal.SIGKILL)
        self._forget()
        self._start()

    def _print_stacks(self, processes: list[psutil.Process]) -> None:
        for process in processes:
            where = f"process {process.pid} of {process.ppid()} is {process.status()}:"
            print(where, flush=True)  # noqa: T201 - shown with the failed test
            if process.status() != psutil.STATUS_ZOMBIE:
                process.send_signal(signal.SIGUSR1)
                time.sleep(0.5)  # The processes write to one file.

    def _forget(self) -> None:
        self._parent.wait()
        for connection in self._connections.values():
            connection.close()
        self._listener.close()


def send(connection: Connection, value: Any) -> None:
    """Send by plain pickle: that of the connection would pass tensors as file descriptors, which
    need an authenticated server."""
    connection.send_bytes(pickle.dumps(value))


def receive(connection: Connection) -> Any:
    return pickle.loads(connection.recv_bytes())


class Raised:
    """Exception of a rank, in place of a result."""

    def __init__(self, error: Exception):
        self.error, self.text = error, traceback.format_exc()


def fork(address: str, store: str, size: int) -> None:
    """Run the parent of the ranks until all have ended. It has no threads: importing starts
    none."""
    import torch

    torch.set_num_threads(1)
    for name in HEAVY:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # As the launcher does: a collection in a rank skips what was imported.
    for rank in range(size):
        if os.fork() == 0:
            try:
                serve(address, rank, store, size)
            except BaseException:  # noqa: BLE001 - a fork must not start the other ranks
                traceback.print_exc()
            finally:
                os._exit(1)
    for _ in range(size):
        pid, status = os.wait()
        print(f"rank process {pid} ended with status {status}", flush=True)  # noqa: T201


def serve(address: str, rank: int, store: str, count: int) -> None:
    """Run the child's side: one rank."""
    import torch.distributed as dist

    faulthandler.register(signal.SIGUSR1, file=sys.stdout)
    share_gloo()
    dist.init_process_group("gloo", store=dist.FileStore(store, count), rank=rank, world_size=count)
    served = Served(rank)
    with Client(address, family="AF_UNIX") as connection:
        send(connection, rank)
        while (message := receive(connection)) is not None:
            what, *arguments = message
            if what == "run":
                send(connection, served.run(*arguments))
            else:
                getattr(served, what)(*arguments)
            del message, arguments
    # Not destroy_process_group: a case that failed may have left a DDP wrapper behind.
    sys.stdout.flush()
    os._exit(0)


def share_gloo() -> None:
    """Let all groups of this process use one device of Gloo, as Gloo's own interface allows: torch
    makes one for each, with a thread that wakes a hundred times a second."""
    from torch.distributed import distributed_c10d

    gloo: Any = distributed_c10d.ProcessGroupGloo
    device = gloo.create_default_device()

    class Sharing(gloo):  # type: ignore[misc] # of a class that is found late
        def __init__(self, store: Any, rank: int, size: int, timeout: Any):
            options = gloo._Options()
            options._devices, options._timeout = [device], timeout
            super().__init__(store, rank, size, options)

    distributed_c10d.ProcessGroupGloo = Sharing  # type: ignore[misc] # for the groups made later


class Served:
    """One rank of a pool, with the groups that it keeps.

    A group has threads and connections, so it is made for the first case that needs it, and those
    of a case are gone after it.
    """

    def __init__(self, rank: int):
        from torch.distributed import distributed_c10d

        self._rank, self._world = rank, distributed_c10d._world
        self._groups: dict[int, list[Any]] = {1: [None, None]}
        self._kept = set(self._world.pg_map)

    def group(self, size: int) -> None:
        """Make the groups of the first ranks. All ranks of the pool must call this."""
        import torch.distributed as dist

        self._world.group_count = 2 * size  # Names of groups are counted in each process.
        self._groups[size] = [dist.new_group(list(range(size))) for _ in range(2)]
        self._kept = set(self._world.pg_map)

    def run(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], size: int, number: int
    ) -> Any:
        """Return the result of a case on the first ranks."""
        from lockstep.engine.runtime.ranks import Ranks

        self._world.group_count = GROUPS_MAX * number
        group, stream = self._groups[size]
        ranks = Ranks(
            rank=self._rank,
            world_size=size,
            local_rank=self._rank,
            host_group=group,
            device_group=group,
            stream_group=stream,
        )
        try:
            return function(ranks, *arguments)
        except Exception as error:  # noqa: BLE001 - raised again in the test
            return Raised(error)

    def forget(self) -> None:
        """Destroy the groups of the case, which all ranks have ended."""
        import torch.distributed as dist
        from torch.distributed.tensor.debug import _clear_sharding_prop_cache

        for group in self._world.pg_map.keys() - self._kept:
            dist.destroy_process_group(group)
        # It finds a mesh by its ranks: that of this case, whose groups are gone.
        _clear_sharding_prop_cache()
        gc.collect()  # A group lives as long as a wrapper of DDP that has it.
        gc.freeze()  # Caches grow: the next collection would look at all of them again.


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
