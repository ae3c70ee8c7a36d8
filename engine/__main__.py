"""One rank of a training run.

    python -m lockstep.engine --attempt FOLDER                              by the launcher
    torchrun --nproc-per-node 2 -m lockstep.engine examples/gpt.yaml        without the service
    python -m lockstep.engine examples/gpt.yaml [--code DIR] [--out DIR]    one process

Without the service, the number of ranks is the number of started processes. The size of the batch
is fixed by the spec, the number of ranks that share it is not. A run whose folder has checkpoints
resumes from the newest one.

Not here: the loop (``engine.loop.trainer``), starting ranks under the service
(``engine.launcher``).
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final, NoReturn

import torch

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.job_environment import VERIFY
from lockstep.domain.life import attempt
from lockstep.domain.spec.init_from import JOB_PREFIX
from lockstep.domain.spec.job import JobSpec, PathCode
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import BatchPlan, plan_of
from lockstep.domain.verify.orders import NONE as NO_ORDER
from lockstep.domain.verify.orders import VerifyOrder, read_order
from lockstep.engine.loop.parts import TrainingResult
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime import failure_text, folder_lock, randomness, torchrun
from lockstep.engine.runtime.device import kind_here, traits_of
from lockstep.engine.runtime.errors import BadSpecError, EngineError, write_error
from lockstep.engine.runtime.heartbeat import Heartbeat
from lockstep.engine.runtime.ranks import (
    RankEnvironment,
    Ranks,
    allow_files,
    compare_collectives,
    compares_collectives,
    connect,
    disconnect,
    use_threads,
)
from lockstep.engine.runtime.versions import require_one_version
from lockstep.engine.strategies import strategy_for
from lockstep.engine.task.loading import load_task
from lockstep.engine.task.spec_file import read_alone

_WATCHED: Final = timedelta(days=14)
"""Timeout of collectives under the service. Longer than any limit of ``train.stall``: the launcher
ends ranks that hang, and finds the one that the others wait for."""
_UNWATCHED: Final = timedelta(minutes=30)
"""Minimum timeout of collectives without the service, which is torch's own for Gloo: no other
process ends ranks that hang."""


@dataclass
class RunOptions:
    """Job, plan and folders of one rank's run."""

    spec: JobSpec
    train: Train
    plan: BatchPlan
    code: Path
    device_kind: str
    folder: Path | None
    """Folder of the attempt. None without both the service and ``--out``: rank 0 then names one."""
    devices: list[int] | None = None
    private: Path | None = None
    """Folder of the ranks and their launcher, if all ranks are on this node."""
    alone: bool = False
    """True without the service. The run then resumes from its own folder's checkpoints and obeys
    SIGTERM."""
    order: VerifyOrder = NO_ORDER
    """Of ``lockstep verify``."""
    patience: timedelta = _WATCHED
    """Time that a rank waits for the others before it fails."""
    trainer: Trainer | None = None
    heartbeat: Heartbeat = field(default_factory=Heartbeat.unseen)
    terminated: bool = False
    """True if this rank received SIGTERM."""

    def stop(self) -> bool:
        """Request a stop after the current step. Return False if training has not started."""
        assert self.trainer is not None, "called only while it runs"
        self.terminated = True
        if not self.trainer.stop(torchrun.GRACE_SECONDS, code=torchrun.TERMINATED):
            return False
        if self.trainer.ranks.first:
            sys.stdout.write(
                "SIGTERM: stopping after this step, with a checkpoint; send it again to end at "
                "once\n"
            )
            sys.stdout.flush()
        return True


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run one rank and leave with its exit code."""
    options = _parser().parse_args(arguments)
    environment = RankEnvironment.read(os.environ)
    faulthandler.enable()
    run: RunOptions | None = None
    try:
        if options.attempt:
            run = _attempt(options.attempt, environment)
        else:
            torchrun.die_with_torchrun(os.environ)
            run = _alone(options, environment)
        code = _rank(run, environment)
    except LockstepError as refusal:
        if environment.local_rank == 0:  # Every rank reads the same file and finds the same fault.
            sys.stderr.write(failure_text.refusal(refusal))
        torchrun.report_failure(
            os.environ, failure_text.refusal(refusal), is_echo=environment.local_rank != 0
        )
        _leave(2)
    except KeyboardInterrupt:
        os._exit(130)  # Ctrl-C at a terminal needs no report.
    except BaseException as error:  # noqa: BLE001 - every error is reported before the exit
        # Not sys.exit: if a peer is gone, the destructors of DDP and Gloo may wait for it forever.
        _report(error, run, environment)
        _leave(1)
    # An orderly shutdown of torch takes a second, a large part of a stop's grace period, and
    # everything is closed by now.
    _leave(code)


def _report(error: BaseException, run: RunOptions | None, environment: RankEnvironment) -> None:
    """Print the error that ended this rank.

    Without the service only the first rank prints, because the ranks share its stderr.
    """
    text = failure_text.text_of(error, environment.rank)
    prints = True
    if run is not None and run.folder is not None:
        step = run.trainer.steps_done if run.trainer is not None else 0
        write_error(run.folder, environment.rank, error, step=step)
        prints = not run.alone or failure_text.is_first(run.folder, environment.rank)
    if prints:
        sys.stderr.write(text)
    torchrun.report_failure(os.environ, text, is_echo=not prints)


def _leave(code: int) -> NoReturn:
    """Flush the output and exit at once."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _rank(run: RunOptions, environment: RankEnvironment) -> int:
    """Train and return the exit code."""
    use_threads(environment)
    if run.train.deterministic:
        _be_deterministic(run.device_kind)
    if run.train.debug or compares_collectives():
        compare_collectives()
    allow_files()
    ranks = connect(
        environment,
        kind=run.device_kind,
        patience=run.patience,
        devices=run.devices,
        private=run.private,
        streams=run.plan.ranks_per_copy > 1 or strategy_for(run.train.strategy).saves_together,
    )
    if not environment.is_one_node:
        require_one_version(ranks)
    folder = run.folder
    if folder is None:
        name = f"{run.spec.name}-{time.strftime('%Y%m%d-%H%M%S')}"
        folder = Path("runs") / ranks.from_first(name)
    folder = folder.absolute()  # The task's code may change the working directory.
    if run.alone:
        _occupy(folder, ranks)
    run.folder = folder
    ending = _train(run, ranks, folder)
    # A stop sends SIGTERM to every rank or to none, unless a user signals a single rank.
    terminated = run.alone and ending.stopped and any(ranks.gather(run.terminated))
    run.heartbeat.mark("done")
    disconnect()
    if ranks.first:
        sys.stdout.write(_closing_line(run, ending, terminated=terminated))
        sys.stdout.flush()
    return torchrun.TERMINATED if terminated else 0


def _occupy(folder: Path, ranks: Ranks) -> None:
    """Lock the folder for this run, or raise. All ranks must call this."""
    taken = ""
    if ranks.first:
        try:
            unlocked = folder_lock.hold(folder)
            if unlocked:
                sys.stdout.write(f"warning: {unlocked}\n")
            failure_text.forget(folder)
        except folder_lock.FolderInUseError as error:
            taken = str(error)
    taken = ranks.from_first(taken)
    if taken:
        raise LockstepError(ErrorCode.CONFLICT, taken)


def _train(run: RunOptions, ranks: Ranks, folder: Path) -> TrainingResult:
    randomness.seed_host(randomness.seed_of(randomness.MODEL, run.train.seed))
    task = load_task(run.train.task, run.train.task_args, run.code)
    run.trainer = Trainer(
        run.train,
        run.plan,
        task,
        ranks,
        folder,
        resumes=run.alone,
        heartbeat=run.heartbeat,
        spec=run.spec,
        code=run.code,
        order=run.order,
    )
    if run.alone:
        torchrun.on_sigterm(run.stop)
    try:
        return run.trainer.run()
    except EngineError as error:
        error.about(run.train.task)
        raise


def _attempt(folder: Path, environment: RankEnvironment) -> RunOptions:
    """Return the run that an attempt's folder describes."""
    assignment = attempt.AssignmentFile.model_validate_json(
        (folder / attempt.ASSIGNMENT).read_bytes()
    )
    if assignment.spec.train is None or assignment.plan is None:
        raise BadSpecError(f"{folder} is an attempt of a script; the engine runs kind: train only")
    code = folder / attempt.CODE
    if not code.is_dir():
        code = (
            Path(assignment.spec.code.path)
            if isinstance(assignment.spec.code, PathCode)
            else folder
        )
    return RunOptions(
        spec=assignment.spec,
        train=_from_here(assignment.spec.train),
        plan=assignment.plan,
        code=code,
        device_kind=assignment.device_kind,
        folder=folder,
        devices=assignment.devices,
        private=folder / attempt.LAUNCH if assignment.node_count == 1 else None,
        order=_order(os.environ),
        heartbeat=Heartbeat.begin(folder, environment.rank),
    )


def _order(environ: Mapping[str, str]) -> VerifyOrder:
    try:
        return read_order(environ.get(VERIFY, ""))
    except ValueError as error:
        raise BadSpecError(str(error)) from None


def _alone(options: argparse.Namespace, environment: RankEnvironment) -> RunOptions:
    """Return the run that a YAML file describes, on as many ranks as were started."""
    document, code = read_alone(options.file, options.code)
    spec = read_spec(document)
    assert spec.train is not None
    plan = plan_of(spec, environment.world_size)
    assert plan is not None
    unit = spec.train.parallel.ranks_per_copy
    if environment.world_size % unit:
        raise LockstepError(
            ErrorCode.INVALID,
            f"a copy of the model takes tensor × pipeline ({unit}) ranks, and "
            f"{environment.world_size} were started",
            next_step=f"start a multiple of {unit} processes",
        )
    if plan.batch_size < plan.copies:
        raise LockstepError(
            ErrorCode.INVALID,
            f"a batch of {plan.batch_size} cannot be split over {plan.copies} "
            + ("ranks" if unit == 1 else "copies of the model"),
            next_step=f"start at most {plan.batch_size * unit} processes",
        )
    return RunOptions(
        spec=spec,
        train=_from_here(spec.train),
        plan=plan,
        code=code,
        device_kind=kind_here(),
        folder=options.out,
        alone=True,
        patience=max(_UNWATCHED, timedelta(seconds=spec.train.stall.first_step_seconds)),
    )


def _from_here(train: Train) -> Train:
    """Return the section with absolute paths: the task's code may change the working directory."""
    if train.init_from is None or train.init_from.startswith(JOB_PREFIX):
        return train
    return train.model_copy(update={"init_from": str(Path(train.init_from).absolute())})


def _be_deterministic(kind: str) -> None:
    for name, value in traits_of(torch.device(kind)).environment:
        os.environ.setdefault(name, value)
    torch.use_deterministic_algorithms(True)


def _closing_line(run: RunOptions, ending: TrainingResult, *, terminated: bool) -> str:
    what = "stopped" if ending.stopped else "done"
    if terminated:
        what += " by SIGTERM"
    loss = "" if ending.loss is None else f", loss {ending.loss:.4f}"
    where = f", checkpoint {ending.checkpoint}" if ending.checkpoint else ""
    return f"{run.spec.name}: {what} after step {ending.steps_done}{loss}{where}\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lockstep.engine", description="Run one rank of a training run."
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "file", type=Path, nargs="?", help="YAML file of a job, to run it without the service"
    )
    what.add_argument("--attempt", type=Path, help="folder of an attempt, set by the launcher")
    parser.add_argument(
        "--code", type=Path, help="folder of the job's code (default: the folder of the file)"
    )
    parser.add_argument(
        "--out", type=Path, help="folder for metrics and checkpoints (default: runs/NAME-TIME)"
    )
    return parser


if __name__ == "__main__":
    main()
