"""Runs of a verification without the service: each is an attempt's folder with its launcher.

Not here: the runs (``domain.verify.runs``), their verdict (``domain.verify.session``).
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from lockstep.domain.job_environment import VERIFY
from lockstep.domain.kinds.devices import named
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import AssignmentFile, EngineEvent, ResultFile, StopFile
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training import metrics
from lockstep.domain.training.plan import plan_of
from lockstep.domain.verify.compare import SERIES, Result
from lockstep.domain.verify.orders import read_order
from lockstep.domain.verify.runs import Run
from lockstep.engine.checkpoints import checkpoint, export
from lockstep.system.files import write_atomically

_STOP_GRACE_SECONDS: Final = 5.0
_EXIT_STALL_SECONDS: Final = 30.0
_END_SECONDS: Final = 30.0
"""A launcher that was requested to stop has ended by then."""


class RunFailedError(Exception):
    """A run failed for a reason that is no refusal of the engine."""


class LocalRuns:
    """Executes runs on this machine.

    Parameters
    ----------
    parent : Path
        Empty folder for those of the attempts.
    code : Path
        The job's code.
    kind : str
        Kind of this machine's devices, one per rank.
    write_line : callable
        Receives one line per run.
    """

    def __init__(self, parent: Path, code: Path, *, kind: str, write_line: Callable[[str], None]):
        self._parent, self._code, self._kind, self._write_line = parent, code, kind, write_line
        self._checkpoint: Path | None = None

    def __call__(self, run: Run) -> Result:
        """Make one run.

        Raises
        ------
        RunFailedError
        """
        self._write_line(run.name)
        spec = read_spec(run.document)
        if run.kind == "killed":
            return self._killed(run, spec)
        resume = self._checkpoint if run.kind == "moved" else None
        return self._finished(run, self._attempt(spec, resume))

    def _killed(self, run: Run, spec: JobSpec) -> Result:
        first = self._attempt(spec)
        if first.outcome.reason is Reason.SUCCEEDED:
            raise RunFailedError(f"the run {run.name} was not killed")
        if first.outcome.reason is not Reason.KILLED:
            return self._finished(run, first)
        self._checkpoint = next(checkpoint.complete(first.folder / attempt.CHECKPOINTS))
        second = self._finished(run, self._attempt(spec, self._checkpoint))
        return _after(first.folder, second)

    def _attempt(self, spec: JobSpec, resume: Path | None = None) -> _EndedAttempt:
        number = len(list(self._parent.iterdir())) + 1
        folder = self._parent / f"{number:02d}"
        folder.mkdir()
        (folder / attempt.CODE).symlink_to(self._code, target_is_directory=True)
        if resume is not None:
            moved = read_order(spec.env.get(VERIFY, "")).resume
            shutil.copytree(resume, folder / (attempt.INIT if moved else attempt.RESUME))
        assert isinstance(spec.resources.gpus, int)
        assignment = AssignmentFile(
            job_id=spec.name,
            attempt_number=number,
            assignment_id=folder.name,
            spec=spec,
            plan=plan_of(spec, spec.resources.gpus),
            node_name="localhost",
            ranks_here=spec.resources.gpus,
            world_size=spec.resources.gpus,
            devices=list(range(spec.resources.gpus)),
            device_kind=named(self._kind).name,
            rendezvous_port=0,  # The ranks of one node get a port from their launcher.
            stop_grace_seconds=_STOP_GRACE_SECONDS,
            exit_stall_seconds=_EXIT_STALL_SECONDS,
        )
        write_atomically(folder / attempt.ASSIGNMENT, assignment.model_dump_json())
        self.launch(folder)
        return _EndedAttempt(folder, _outcome(folder))

    def launch(self, folder: Path) -> None:
        """Run the attempt in ``folder`` to its end; an interrupt stops it."""
        with (
            (folder / attempt.LAUNCHER_LOG).open("wb") as log,
            subprocess.Popen(
                [sys.executable, "-P", "-m", "lockstep.engine.launcher", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process, which stops the launcher.
            ) as process,
        ):
            try:
                process.wait()
            except BaseException:
                stop = StopFile(reason="cancelled", grace_seconds=0.0)
                write_atomically(folder / attempt.STOP, stop.model_dump_json())
                _end(process)
                raise

    def _finished(self, run: Run, done: _EndedAttempt) -> Result:
        outcome = done.outcome
        if outcome.reason is Reason.BAD_SPEC:
            return Result(refusal=outcome.message)
        if outcome.reason is not Reason.SUCCEEDED:
            output = (outcome.traceback or outcome.log_excerpt or "").rstrip()
            raise RunFailedError(
                f"the run {run.name} ended as {outcome.reason}: {outcome.message}\n"
                f"{output}".rstrip()
            )
        exported = next(checkpoint.complete(done.folder / attempt.CHECKPOINTS)) / export.MODEL
        return Result(
            _series(done.folder),
            exported if exported.is_file() else None,
            tuple(_warnings(done.folder)),
        )


class _EndedAttempt(NamedTuple):
    folder: Path
    outcome: Outcome


def _outcome(folder: Path) -> Outcome:
    try:
        return ResultFile.model_validate_json((folder / attempt.RESULT).read_bytes()).outcome
    except OSError:
        output = (folder / attempt.LAUNCHER_LOG).read_text(errors="replace")
        raise RunFailedError(f"the launcher has ended without a result:\n{output}") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _after(first: Path, resumed: Result) -> Result:
    """The resumed run's result, with the steps before its checkpoint."""
    before = _series(first)
    series = {name: {**before[name], **resumed.series[name]} for name in before}
    return resumed._replace(series=series)


def _series(folder: Path) -> dict[str, dict[int, float]]:
    found: dict[str, dict[int, float]] = {name: {} for name in SERIES.values()}
    for line in (folder / attempt.METRICS).read_bytes().splitlines():
        record = metrics.decode(line, now=0.0, default_step=0)
        for name in found.keys() & record.values.keys():
            found[name][record.step] = record.values[name]
    return found


def _warnings(folder: Path) -> Iterator[str]:
    for line in (folder / attempt.EVENTS).read_bytes().splitlines():
        event = EngineEvent.model_validate_json(line)
        if event.kind == "warning":
            yield str(event.data["message"])
