"""Training loop: optimizer steps until the end of the run or a stop request.

A step consists of the gradient of all micro-batches, reduced once (``engine.step.gradient``); the
next batch, already fetched (``engine.data.loader``); one control operation
(``engine.runtime.control``); the update (``engine.step.optimizer``); then evaluation, checkpoint
and report if they are due. The memory forecast is read between two steps. All decisions use numbers
that are equal on every rank, so ranks never diverge.

A batch of weight zero (every target masked, say) is consumed and counted, but updates nothing: no
decay, no momentum.

Not here: start and failure of a rank (``engine.__main__``).
"""

from __future__ import annotations

from pathlib import Path

from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import BatchPlan
from lockstep.domain.verify.orders import NONE as NO_ORDER
from lockstep.domain.verify.orders import VerifyOrder
from lockstep.engine.data.loader import RankBatch
from lockstep.engine.loop.announcing import announce, announce_usage, report_plan, seed_model
from lockstep.engine.loop.assembly import assemble
from lockstep.engine.loop.cutting import compare_samples
from lockstep.engine.loop.evaluation import evaluate
from lockstep.engine.loop.non_finite import NonFinite
from lockstep.engine.loop.oom_retry import halve
from lockstep.engine.loop.parts import RunInputs, TrainingResult
from lockstep.engine.loop.report import StepReport, report_of
from lockstep.engine.loop.reporter import StepReporter
from lockstep.engine.memory.account import MemoryReport
from lockstep.engine.model.normalization import average_statistics
from lockstep.engine.runtime.control import Flags, RankStatus, StepDecision
from lockstep.engine.runtime.device import is_accelerator
from lockstep.engine.runtime.heartbeat import Heartbeat
from lockstep.engine.runtime.mesh import mesh_of
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.stopping import StopRequest
from lockstep.engine.runtime.telemetry import Telemetry
from lockstep.engine.runtime.timeline import timeline_for
from lockstep.engine.state.reasons import not_saved
from lockstep.engine.step.gradient import Accumulated
from lockstep.engine.step.requirements import WeightedLoss
from lockstep.engine.task.interface import Task
from lockstep.engine.verify.hooks import kill_if_ordered


class Trainer:
    """One rank of one run.

    Parameters
    ----------
    train : Train
        The spec's section.
    plan : BatchPlan
        Its micro-batch may be open; it is then chosen at the start.
    task : Task
    ranks : Ranks
    folder : Path
        The attempt's folder with spools, checkpoints, ``stop`` and ``resume``.
    resumes : bool
        True to resume from the newest checkpoint of this folder, as a run without the service does.
    heartbeat : Heartbeat, optional
        Heartbeat of this rank; omitted if no process reads it.
    spec : JobSpec, optional
        The whole spec, for the export at the end.
    code : Path, optional
        Folder of the job's code, for the memory forecast; its globals are state of the run.
    order : VerifyOrder, optional
        Of ``lockstep verify``.
    """

    def __init__(
        self,
        train: Train,
        plan: BatchPlan,
        task: Task,
        ranks: Ranks,
        folder: Path,
        *,
        resumes: bool = False,
        heartbeat: Heartbeat | None = None,
        spec: JobSpec | None = None,
        code: Path | None = None,
        order: VerifyOrder = NO_ORDER,
    ):
        self.train, self.plan, self.task, self.ranks, self.folder = train, plan, task, ranks, folder
        self.steps_done = 0
        self._mesh = mesh_of(ranks, train.parallel)
        self._heartbeat = heartbeat or Heartbeat.unseen()
        self._telemetry = Telemetry(folder, writes=ranks.first)
        self._inputs = RunInputs(
            train, plan, task, self._mesh, folder, self._telemetry, resumes, spec, code, order
        )
        self._account = MemoryReport(train, ranks, self._telemetry, code)
        self._stopping = StopRequest(folder, reads_file=ranks.first, device=ranks.device)
        non_finite = NonFinite(train.non_finite, self._telemetry)
        self._reporter = StepReporter(
            self._telemetry, non_finite, late=is_accelerator(ranks.device)
        )
        self._weighed = WeightedLoss(train.task)
        self._saved_step = -1
        self._following: tuple[RankBatch | None] | None = None
        self._evaluates = True
        """True if the last evaluation, if any, had any weight."""

    def run(self) -> TrainingResult:
        """Train from the start, or from a checkpoint, to the end. All ranks must call this."""
        self._stopping.watch()
        try:
            self._telemetry.event("running")
            self._parts = parts = assemble(self._inputs)
            self.steps_done, self.plan = parts.data.steps_done, parts.state.plan
            announce(parts, self.plan, self._telemetry)
            self._reporter.begin(parts.data.items.splits.length.steps)
            self._account.begin(self.plan, parts.data.items.sample)
            if parts.step.saves_together or not parts.step.strategy.replicated:
                self._stopping.over()  # Rank 0 has nothing whole to save by itself.
            self._stopping.begin(self._save_alone)
            try:
                stopped = self._train()
            except BaseException:
                self._stopping.rescue()
                parts.state.abandon()
                raise
            finally:
                parts.step.control.close()
            self._reporter.write_pending()
            self._account.finish(self.plan)
            # No rank leaves before the last checkpoint is durable: a missing rank counts as failed.
            self.ranks.barrier()
        finally:
            self._stopping.over()
            self._account.close()
            self._telemetry.close()
        parts.step.gradient.close()
        saved = parts.state.newest
        return TrainingResult(
            self.steps_done, stopped, self._reporter.loss, saved.folder if saved else None
        )

    def stop(self, grace_seconds: float, *, code: int) -> bool:
        """Ask for a stop, as ``engine.runtime.stopping.StopRequest.request``; any thread may."""
        return self._stopping.request(grace_seconds, code=code)

    # --- the loop

    def _train(self) -> bool:
        """Run the remaining steps; True if asked to stop before the end. All ranks must call it."""
        parts, length = self._parts, self._parts.data.items.splits.length
        self._heartbeat.train_from(self.steps_done, length.steps)
        self._timeline = timeline_for(self.ranks.device, self._heartbeat)
        parts.step.watch(self._timeline)
        parts.step.gradient.meanwhile = self._fetch
        parts.data.batches.request()
        self._heartbeat.mark("data")
        batch = parts.data.batches.take()
        self._following = (batch,)
        decision = self._agree(Accumulated(parts.step.gradient.nothing))
        while batch is not None and not decision.flags.stop:
            with self._account.counting(batch):
                batch, decision = self._step(batch, decision.next_divisors)
            self._add_forecast()
            kill_if_ordered(
                self._inputs.order, step=self.steps_done, started_at=parts.data.steps_done
            )
            parts.state.report_forecast()
        stopped = decision.flags.stop and self.steps_done < length.steps
        if self.steps_done and self._saved_step != self.steps_done:
            self._save({}, ends=True)
        self._heartbeat.mark("checkpoint")
        parts.state.finish()
        # Not in a finally: a rank that fails must be gone at once, and its workers die with it.
        parts.data.batches.close()
        return stopped

    def _step(
        self, batch: RankBatch, divisors: tuple[float, ...]
    ) -> tuple[RankBatch | None, StepDecision]:
        """Run one optimizer step. All ranks must call this.

        Returns the next batch and the result of the control operation.
        """
        parts, gradient = self._parts, self._parts.step.gradient
        compare_samples(self._inputs.mesh, batch, parts.data.steps_done)
        parts.data.batches.request()
        self._timeline.mark("other", then="forward")
        self._following = None
        decision = self._agree(gradient.accumulate(batch, divisors, self._timeline))
        while self._repeats(decision):
            batch = self._prepare_again(batch, decision)
            decision = self._agree(gradient.accumulate(batch, divisors, self._timeline))
        following = self._next()
        last = following is None
        report = report_of(parts, batch, divisors, decision, self._account.flop_count)
        due = last or report.step % self.train.log_every_steps == 0
        self._update(batch, report, due=due, last=last)
        with self._account.uncounted():
            self._finish_step(report, due=due, last=last, stop=decision.flags.stop)
        return following, decision

    def _repeats(self, decision: StepDecision) -> bool:
        """Return whether the batch must run again. Equal on all ranks; call it once per run."""
        return decision.flags.void or self._parts.model.precision.repeats(decision)

    def _prepare_again(self, batch: RankBatch, decision: StepDecision) -> RankBatch:
        """Remove what prevented the step; return its batch, maybe in smaller micro-batches.

        All ranks must call this.
        """
        parts = self._parts
        parts.data.batches.wait()
        if decision.flags.out_of_memory:
            self.plan, batch, following = halve(parts, self.plan, batch.step, self._telemetry)
            self._following = (following,)
            self._timeline.mark("other")
        elif decision.flags.unreduced:
            parts.step.gradient.track_usage(parts.data.items.masked)
            announce_usage(parts, self._telemetry)
        else:
            parts.step.gradient.discard()
        if decision.flags.drawn:
            seed_model(parts, self._telemetry)
        return batch

    def _update(self, batch: RankBatch, report: StepReport, *, due: bool, last: bool) -> None:
        """Update the parameters with the agreed gradient, and count the step.

        All ranks must call this.
        """
        parts, step, replicas = self._parts, self._parts.step, self._parts.model.replicas
        parts.state.poll()
        counted = report.counted
        shard = sum(batch.weights) / sum(report.divisors) if counted else 0.0
        norm = None
        if counted:
            step.gradient.require_kept()
            norm = step.optimizer.norm(shard)
            report.norm = norm.whole
        self._weighed.judge(counted=counted)
        self._reporter.before_update(report)
        with self._stopping.update():
            refused = norm is None or step.optimizer.update(batch.step, report.sums, norm)
            step.gradient.state.end(refused=refused)
            step.strategy.after_update(batch.step, shard, refused=refused, last=last)
            report.leave_device()
            self.steps_done = report.step
            self._reporter.updated(report, due=due)
        step.gradient.discard()
        self._heartbeat.step(report.step)
        self._timeline.mark("optimizer")
        if replicas.due(report.step):
            replicas.compare(report.step)
            self._timeline.mark("other")

    def _agree(self, accumulated: Accumulated) -> StepDecision:
        """The control operation of a step, or the one before the first.

        All ranks must call this.
        """
        status = self._status(accumulated)
        self._timeline.mark("data", then="communication")
        decision = self._parts.step.control.exchange(status)
        self._timeline.mark("communication", then="optimizer")
        return decision

    def _status(self, accumulated: Accumulated) -> RankStatus:
        """Return this rank's message about its micro-batches and its shard of the next batch."""
        failed, sums = accumulated.out_of_memory or not accumulated.reduced, accumulated.sums
        following = None if failed else self._next()
        return RankStatus(
            Flags(
                stop=self._stopping.requested(),  # Rank 0 checks, and sends it to the others.
                drawn=self._parts.data.batches.drawn,
                out_of_memory=accumulated.out_of_memory,
                unreduced=not accumulated.reduced,
                overflow=accumulated.overflow,
            ),
            sums=sums,
            next_weights=following.weights if following is not None else (0.0,) * len(sums),
            peak_bytes=self._account.peak_bytes(),
        )

    def _fetch(self) -> None:
        """Fetch the next batch, while the rank waits for others."""
        self._timeline.mark("communication", then="data")
        with self._account.uncounted():
            self._parts.data.batches.fetch()
        self._timeline.mark("data", then="communication")

    def _next(self) -> RankBatch | None:
        """The batch after this step's, fetched when it is first asked for."""
        if self._following is None:
            with self._account.uncounted():
                self._following = (self._parts.data.batches.take(),)
        return self._following[0]

    def _finish_step(self, report: StepReport, *, due: bool, last: bool, stop: bool) -> None:
        """Evaluation, checkpoint and report, where they are due. All ranks must call this."""
        self._reporter.write_pending()
        train, parts = self.train, self._parts
        every = train.eval.every_steps if parts.data.items.splits.evaluation is not None else None
        if every and (last or (report.step % every == 0 and not stop)):
            report.evaluated = self._evaluate()
            self._timeline.mark("eval")
            due = True
        save_every = train.checkpoint.every_steps
        saved = last or stop or (save_every is not None and report.step % save_every == 0)
        if saved:
            self._save(self._reporter.before_checkpoint(report, due=due), ends=last or stop)
            self._timeline.mark("checkpoint")
        report.line = self._timeline.end()
        self._timeline.begin()
        self._reporter.finish(report, due=due, saved=saved)

    def _add_forecast(self) -> None:
        """Add the memory forecast to the plan, once it is there. Between steps; never waits."""
        plan = self._account.poll(self.plan)
        if plan is not self.plan:
            self.plan = plan
            report_plan(self._parts, plan, self._telemetry)

    def _evaluate(self) -> dict[str, float]:
        strategy, stage = self._parts.step.strategy, self._parts.step.stage
        dataset = self._parts.data.items.splits.evaluation
        assert dataset is not None
        assert self.plan.micro_batch_size is not None
        average_statistics(strategy.model, self._mesh.data)
        found = evaluate(
            strategy,
            dataset,
            self._mesh.data,
            micro_batch_size=self.plan.micro_batch_size,
            seed=self.train.seed,
            workers=self.train.loader.workers,
            heartbeat=self._heartbeat,
            pipeline=None if stage is None else stage.pipeline,
        )
        found = self._mesh.from_last_stage(found)
        if not found and self._evaluates:
            self._telemetry.warn("no eval/loss: weight() is 0 for every sample of dataset('eval')")
        self._evaluates = bool(found)
        return found

    def _save(self, values: dict[str, float], *, ends: bool) -> None:
        """Save on rank 0; the others continue, unless the strategy needs them.

        All ranks must call this.
        """
        parts, strategy = self._parts, self._parts.step.strategy
        self._heartbeat.mark("checkpoint")
        parts.model.replicas.compare(self.steps_done)  # A divergent model is not saved.
        average_statistics(strategy.model, self._mesh.data)
        final = self.steps_done == parts.data.items.splits.length.steps
        # Not under the lock: it waits for the others.
        held = parts.model.inventory.stored(self.ranks, together=parts.step.saves_together)
        if unsaved := parts.model.inventory.newly_unsaved(held["unsaved"]):
            self._telemetry.warn(not_saved(unsaved))
        with self._stopping.save():
            self._saved_step = self.steps_done
            parts.state.save(
                self.steps_done,
                strategy,
                parts.step.optimizer.inner,
                tensor=parts.step.tensor,
                stage=parts.step.stage,
                held=held,
                ends=ends,
                final=final,
                values=values,
            )

    def _save_alone(self) -> None:
        """Make the last completed step durable on this rank alone, which is stuck in the next.

        Called on rank 0 by another thread, or on the way out.
        """
        parts = self._parts
        if self.steps_done > max(self._saved_step, parts.data.steps_done):
            self._reporter.write_unwritten()
            at_begin = parts.step.gradient.state.at_begin(self.steps_done)
            parts.state.save(
                self.steps_done,
                parts.step.strategy,
                parts.step.optimizer.inner,
                held=parts.model.inventory.stored_alone(at_begin, self.ranks),
                buffers={} if at_begin is None else at_begin.own(),
                ends=True,
                final=False,
                values={},
            )
        parts.state.finish()
        self._telemetry.log_line(
            f"stopped after step {self.steps_done}: the next step did not end in time"
        )
