"""The training loop: one optimizer step after another, until the run is over or somebody asks it to stop.

A step is: the slots' gradient, reduced once (``engine.step``); the next batch, already fetched (``engine.loader``);
one control operation (``engine.control``); the update (``engine.optimizer``); then evaluation, checkpoint and report
where they are due. All decisions rest on numbers that are equal on every rank, so ranks never part ways.

A batch of weight zero (every target masked, say) is consumed and counted, but updates nothing: no decay, no momentum.

Not here: how a rank starts and fails (``engine.__main__``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import Dataset

from domain import attempt
from domain.outcomes import Reason
from domain.plan import BatchPlan
from domain.spec import Train
from engine import checkpoint, randomness, telemetry
from engine.control import Control
from engine.errors import EngineError
from engine.evaluation import evaluate
from engine.loader import Batches, Length, RankBatch, SeededItems
from engine.optimizer import Optimizer
from engine.ranks import Ranks
from engine.report import StepReport
from engine.state import TrainingState, restore_model, restore_optimizer
from engine.step import GradientStep
from engine.task import Task
from engine.telemetry import Telemetry
from engine.timeline import timeline_for


@dataclass(frozen=True)
class Ending:
    """How a run left its loop."""

    steps_done: int
    """Completed optimizer steps, those before a resume included."""
    stopped: bool
    """Whether it was asked to stop before its end."""
    loss: float | None
    """Of the last reported step."""
    checkpoint: Path | None
    """The newest one this run wrote; on rank 0 only."""


class Trainer:
    """One rank of one run.

    Parameters
    ----------
    train : Train
        The spec's section.
    plan : BatchPlan
        Settled: its micro-batch is a number.
    task : Task
    ranks : Ranks
    folder : Path
        The attempt's folder: spools, checkpoints, ``stop`` and ``resume`` are in it.
    goes_on : bool
        Whether to go on from the newest checkpoint of this very folder, as a run without the service does.
    """

    def __init__(self, train: Train, plan: BatchPlan, task: Task, ranks: Ranks, folder: Path, *, goes_on: bool = False):
        self.train, self.plan, self.task, self.ranks, self.folder = train, plan, task, ranks, folder
        self.steps_done = 0
        self._goes_on = goes_on
        self._telemetry = Telemetry(folder, writes=ranks.first)
        self._pending: StepReport | None = None
        self._loss: float | None = None
        self._saved: checkpoint.Saved | None = None

    def run(self) -> Ending:
        """Train from the start, or from a checkpoint, to the end. All ranks must call this."""
        try:
            self._set_up()
            stopped = self._train()
            self._report_pending()
            # No rank leaves before the last checkpoint is durable: one that is gone looks like a rank that failed.
            self.ranks.meet()
        finally:
            self._telemetry.close()
        self._gradient.close()
        return Ending(self.steps_done, stopped, self._loss, self._saved.folder if self._saved else None)

    def _set_up(self) -> None:
        train, ranks = self.train, self.ranks
        self._telemetry.event("running")
        if ranks.local_rank == 0:
            self.task.prepare()
        ranks.meet()
        randomness.seed_host(randomness.seed_of(randomness.MODEL, train.seed))
        self._model = self.task.model().to(ranks.device)
        self._model.train()
        self._dataset = self.task.dataset("train")
        self._dataset_size = _length(self._dataset, "train")
        self._eval_dataset = self.task.dataset("eval") if train.eval.every_steps else None
        self._length = Length.of(
            steps=train.steps,
            epochs=train.epochs,
            dataset_size=self._dataset_size,
            batch_size=self.plan.batch_size,
        )
        self._state = TrainingState(self.folder, train, self.plan, ranks, self._telemetry, samples=self._dataset_size)
        state = self._state.restored(steps=self._length.steps, goes_on=self._goes_on)
        if state is not None:
            self.steps_done = state["step"]
            restore_model(self._model, state)
        masked = self.task.collate([SeededItems(self._dataset, train.seed)[0, 0]])
        self._gradient = GradientStep(
            self.task, self._model, ranks, seed=train.seed, bucket_cap_mb=train.strategy.bucket_cap_mb
        )
        self._gradient.warm_up(masked)
        self._optimizer = Optimizer(train, self.task, self._model, steps=self._length.steps)
        if state is not None:
            restore_optimizer(self._optimizer.inner, state)
        self._control = Control(ranks, len(self._gradient.terms))
        self._batches = self._open_batches(masked)
        self._announce()

    def _open_batches(self, masked: Any) -> Batches:
        workers = self.train.loader.workers
        in_line = workers == 0 and self._gradient.draws_on_host
        self._gradient.seeds_host = in_line or workers > 0
        return Batches(
            self.task,
            self._dataset,
            self.plan,
            self._length,
            rank=self.ranks.rank,
            dataset_size=self._dataset_size,
            seed=self.train.seed,
            first_step=self.steps_done,
            workers=workers,
            terms=self._gradient.terms,
            masked=masked,
            in_line=in_line,
            pin=self.ranks.device.type == "cuda",
        )

    def _announce(self) -> None:
        parameters = sum(parameter.numel() for parameter in self._model.parameters())
        settled = self.plan.model_copy(update={"steps": self._length.steps})
        self._telemetry.event("plan", **settled.model_dump(), parameters=parameters, samples=self._dataset_size)
        self._telemetry.say(self.plan.sentence())
        self._telemetry.say(
            f"{parameters:,} parameters, {self._dataset_size:,} samples, {self._length.steps:,} steps"
            + (f", going on after step {self.steps_done:,}" if self.steps_done else "")
        )
        if self.task.batch_dependent:
            self._warn("the task is batch_dependent: its gradient depends on how the batch is split")
        if self._gradient.draws_on_host:
            self._warn(
                "the model draws random numbers: a run is repeatable, but depends on micro_size and on the ranks"
            )

    def _warn(self, message: str) -> None:
        self._telemetry.event("warning", message=message)
        self._telemetry.say(f"warning: {message}")

    # --- the loop

    def _train(self) -> bool:
        """Run the remaining steps; True if asked to stop before the end. All ranks must call this."""
        self._timeline = timeline_for(self.ranks.device)
        self._batches.request()
        batch = self._batches.take()
        self._timeline.mark("data")
        nothing = torch.zeros(len(self._gradient.terms), dtype=torch.float64, device=self.ranks.device)
        verdict = self._control.exchange(
            stop=self._stop_asked(), sums=nothing, next_weights=self._weights(batch), peak_bytes=0.0
        )
        self._timeline.mark("communication")
        stop, divisors = verdict.stop, verdict.next_divisors
        while batch is not None and not stop:
            batch, stop, divisors = self._step(batch, divisors)
        stopped = stop and self.steps_done < self._length.steps
        if not self._is_saved():
            self._save()
        # Not in a finally: a rank that fails must be gone at once, and its workers die with it.
        self._batches.close()
        return stopped

    def _step(self, batch: RankBatch, divisors: tuple[float, ...]) -> tuple[RankBatch | None, bool, tuple[float, ...]]:
        """One optimizer step; returns the next batch, whether to stop, and the next divisors. All ranks must call this."""
        timeline, optimizer = self._timeline, self._optimizer
        self._batches.request()
        timeline.mark("other")
        sums = self._gradient.accumulate(batch, divisors, timeline)
        following = self._batches.take()
        timeline.mark("data")
        verdict = self._control.exchange(
            stop=self._stop_asked(),
            sums=sums,
            next_weights=self._weights(following),
            peak_bytes=telemetry.peak_bytes(self.ranks.device),
        )
        timeline.mark("communication")
        report = StepReport(
            step=batch.step + 1,
            samples=batch.size,
            terms=self._gradient.terms,
            sums=verdict.sums,
            divisors=divisors,
            lr=optimizer.rate(batch.step),
            peak_bytes=max(verdict.peak_bytes),
            unit=self.task.unit,
        )
        if self.ranks.device.type == "cpu":
            self._require_finite(report)
        last = following is None
        due = last or report.step % self.train.log_every_steps == 0
        if report.counted:
            report.norm = optimizer.norm() if due or self.train.clip_grad_norm is not None else None
            optimizer.update(batch.step, report.norm)
        report.leave_device()
        optimizer.discard_gradient()
        timeline.mark("optimizer")
        self.steps_done = report.step
        self._finish_step(report, due=due, last=last, stop=verdict.stop)
        return following, verdict.stop, verdict.next_divisors

    def _finish_step(self, report: StepReport, *, due: bool, last: bool, stop: bool) -> None:
        """Evaluation, checkpoint and report, where they are due. All ranks must call this."""
        self._report_pending()
        train = self.train
        every = train.eval.every_steps
        if self._eval_dataset is not None and every and (last or report.step % every == 0) and (last or not stop):
            report.evaluated = self._evaluate()
            self._timeline.mark("eval")
            due = True
        save_every = train.checkpoint.every_steps
        saves = last or stop or (save_every is not None and report.step % save_every == 0)
        if saves:
            # What the step achieved is written before its checkpoint is: a run that dies right after the checkpoint is
            # resumed behind this step, and would otherwise never report it. Only its times wait for the checkpoint.
            self._require_finite(report)
            if due:
                self._telemetry.record(report.step, report.results())
            self._save()
            self._timeline.mark("checkpoint")
        report.line = self._timeline.end()
        self._timeline.begin()
        if due and saves:
            self._telemetry.record(report.step, report.times())
            self._say(report)
        elif due:
            self._pending = report
        if self.ranks.device.type == "cpu":
            self._report_pending()

    def _report_pending(self) -> None:
        """Report the step whose values are, or by now must be, on the host."""
        report, self._pending = self._pending, None
        if report is not None:
            self._require_finite(report)
            self._telemetry.record(report.step, report.results() | report.times())
            self._say(report)

    def _say(self, report: StepReport) -> None:
        self._loss = report.loss()
        loss = "none (no weight)" if self._loss is None else f"{self._loss:.4f}"
        speed = report.times().get("throughput/samples_per_second", 0.0)
        text = f"step {report.step}/{self._length.steps}  loss {loss}  lr {report.lr:.3g}  {speed:,.1f} samples/s"
        text += "".join(f"  eval/{name} {value:.4f}" for name, value in report.evaluated.items())
        ends = report.step in {1, self._length.steps}
        self._telemetry.say_step(text, always=ends or bool(report.evaluated))

    def _require_finite(self, report: StepReport) -> None:
        """Stop on a loss that is no number. All ranks know the same loss, so all of them stop here."""
        loss = report.loss()
        if loss is not None and not math.isfinite(loss):
            self._telemetry.record(report.step, {"train/loss": loss, "train/lr": report.lr})
            raise EngineError(Reason.NON_FINITE, f"the loss of step {report.step} is {loss}")

    def _weights(self, batch: RankBatch | None) -> tuple[float, ...]:
        return batch.weights() if batch is not None else (0.0,) * len(self._gradient.terms)

    def _stop_asked(self) -> bool:
        """Rank 0 looks; the others hear of it in the control operation."""
        return self.ranks.first and (self.folder / attempt.STOP).exists()

    def _evaluate(self) -> dict[str, float]:
        assert self._eval_dataset is not None
        assert self.plan.micro_batch_size is not None
        return evaluate(
            self.task,
            self._model,
            self._eval_dataset,
            self.ranks,
            micro_batch_size=self.plan.micro_batch_size,
            seed=self.train.seed,
            workers=self.train.loader.workers,
        )

    # --- checkpoints

    def _is_saved(self) -> bool:
        return (
            not self.ranks.first
            or self.steps_done == 0
            or (self._saved is not None and self._saved.step == self.steps_done)
        )

    def _save(self) -> None:
        """Save on rank 0; the others go on, since under ddp every rank has the same state."""
        if not self.ranks.first:
            return
        final = self.steps_done == self._length.steps
        self._saved = self._state.save(self.steps_done, self._model, self._optimizer.inner, final=final)


def _length(dataset: Dataset[Any], split: str) -> int:
    try:
        size = len(dataset)  # type: ignore[arg-type] # torch's type does not say that map-style datasets have a length
    except TypeError:
        raise EngineError(
            Reason.BAD_SPEC,
            f"dataset({split!r}) has no length: the engine takes map-style datasets; streams run as kind: script",
        ) from None
    if size < 1:
        raise EngineError(Reason.BAD_SPEC, f"dataset({split!r}) is empty")
    return size
