"""Contents of a checkpoint, and the checks of a run that resumes from it.

The state has ``model``, ``optimizer``, ``step`` (completed optimizer steps), and

* ``identity``: the values that decide which samples a step holds (batch size, seed, size of the
  dataset). With other values the same step is at another offset in the data, and the checkpoint is
  refused.
* ``samples`` and ``parameters``: fingerprints of the dataset and the model
  (``engine.data.fingerprint``); others are refused, by name.
* ``layout``: the values that the last bits of a result depend on. In the same layout a resumed run
  is exact, in another it is equal to rounding.
* ``train``: the training fields of the spec. A run that resumes with others reports them
  (``engine.checkpoints.changes``).
* ``precision``: the loss scale, if there is one.
* ``held``: the state of model, task and code that ``model`` does not hold, where ranks differ for
each rank (``engine.state.inventory``).
* ``extra``: further state of the strategy, for each rank; used again on the same number of ranks.

The state is complete whatever its distribution over ranks during training, so any number of ranks
can resume from it. The step is the position of the loader and of the schedule. Random draws are
seeded from it too (``engine.runtime.randomness``), so no state of torch's own generators is stored.

Not here: the comparison with a run (``engine.checkpoints.belonging``), the exported model
(``engine.checkpoints.export``), the form in files (``engine.checkpoints.contents``), the thread
that writes them (``engine.checkpoints.saving``), the time of a save (``engine.loop.trainer``), the
choice of the checkpoint to resume from (``engine.checkpoints.choosing``).
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from lockstep.domain.life import attempt
from lockstep.domain.life.grace import SaveTime
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.checkpoints import changes, checkpoint, choosing
from lockstep.engine.checkpoints.belonging import RunIdentity
from lockstep.engine.checkpoints.checkpoint import CheckpointMetric, SavedCheckpoint
from lockstep.engine.checkpoints.collecting import whole_state
from lockstep.engine.checkpoints.contents import State
from lockstep.engine.checkpoints.export import RunExport
from lockstep.engine.checkpoints.restoring import make_buffers
from lockstep.engine.checkpoints.saving import Background, Saver, StateSender
from lockstep.engine.data.fingerprint import Samples
from lockstep.engine.model.precision import Precision
from lockstep.engine.parallel.staged import StageParallel
from lockstep.engine.parallel.tensor import TensorParallel
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.telemetry import Telemetry
from lockstep.engine.state.reasons import Reasons, listed, not_exact
from lockstep.engine.strategies import strategy_for
from lockstep.engine.strategies.base import Strategy
from lockstep.system.files import write_atomically

_EVAL: Final = "eval/"


class TrainingState:
    """Saves and restores one run.

    Parameters
    ----------
    folder : Path
        The attempt's folder.
    train : Train
    plan : BatchPlan
    ranks : Ranks
    telemetry : Telemetry
    size : int
        Of the training dataset.
    samples : mapping
        Fingerprints of some samples (``engine.data.fingerprint.samples_of``).
    read_again : callable
        Computes the fingerprints of the same samples once more.
    precision : Precision
    spec : JobSpec, optional
        Of the job, if there is one; written beside the exported model.
    export_files : callable, optional
        ``Task.export_files`` with the model.
    """

    def __init__(
        self,
        folder: Path,
        train: Train,
        plan: BatchPlan,
        ranks: Ranks,
        telemetry: Telemetry,
        *,
        size: int,
        samples: Samples,
        read_again: Callable[[], Samples],
        precision: Precision,
        spec: JobSpec | None = None,
        export_files: Callable[[Path], None] = lambda _: None,
    ):
        self._folder, self._ranks, self._telemetry = folder, ranks, telemetry
        self._train, self._plan, self._precision = train, plan, precision
        self._export = RunExport(
            folder / ".export", train, spec, export_files=export_files, warn=telemetry.warn
        )
        values = {"batch_size": plan.batch_size, "seed": train.seed, "samples": size}
        self._identity = RunIdentity(values, samples, read_again, ranks, telemetry.warn)
        self._layout = _layout_of(train, plan, ranks)
        self._final_step: int | None = None
        self._warned_of_metric = False
        self._resumed: CheckpointMetric | None = None
        self._resumed_step, self._resumed_from = -1, ""
        self._state_bytes: int | None = None
        self._saver: Saver | None = None
        self._sender: StateSender | None = None
        cut = plan.ranks_per_copy > 1
        together = ranks.world_size > 1 and (cut or strategy_for(train.strategy).saves_together)
        if ranks.first:
            self._saver = Saver(
                folder / attempt.CHECKPOINTS,
                keep_last=train.checkpoint.keep_last,
                device=ranks.device,
                background=train.checkpoint.background,
                durable=self._announce,
                warn=telemetry.warn,
                ranks=ranks if together else None,
            )
        elif together:
            background = train.checkpoint.background
            self._sender = StateSender(ranks, background=background, warn=telemetry.warn)

    @property
    def newest(self) -> SavedCheckpoint | None:
        """The newest durable checkpoint that this run wrote; on rank 0 only."""
        return self._saver.newest if self._saver is not None else None

    @property
    def _background(self) -> Background | None:
        return self._saver or self._sender

    # --- saving

    def save(
        self,
        step: int,
        strategy: Strategy,
        optimizer: torch.optim.Optimizer,
        *,
        held: Mapping[str, Any],
        tensor: TensorParallel | None = None,
        stage: StageParallel | None = None,
        buffers: Mapping[str, Tensor] | None = None,
        ends: bool,
        final: bool,
        values: Mapping[str, float],
    ) -> None:
        """Save the state after ``step``. All ranks must call this if the strategy saves together.

        Parameters
        ----------
        step : int
            Completed optimizer steps.
        strategy, optimizer
        held : mapping
            State that the model does not hold (``engine.state.inventory``).
        tensor : TensorParallel, optional
            If ranks hold slices of the model.
        stage : StageParallel, optional
            If ranks hold stages of the model.
        buffers : mapping of str to Tensor, optional
            Buffers of the model that replace those of the moment.
        ends : bool
            True if no step follows. The checkpoint is then durable at the return; otherwise it may
            be written during training, and :meth:`poll` must come before the next update.
        final : bool
            True if this is the run's last step: the model is exported, too.
        values : mapping of str to float
            Metrics of the step, for keeping the best.
        """
        if self._saver is None and self._sender is None:
            return
        started = time.monotonic()
        model, inner, groups = whole_state(strategy, optimizer, tensor, stage)
        model.update(buffers or {})
        state: State = {
            "model": model,
            "held": held,
            # In one order, whichever ranks hold the parts.
            "optimizer": {**inner, "state": dict(sorted(inner["state"].items()))},
            "identity": self._identity.values,
            "samples": self._identity.samples,
            "parameters": groups,
            "layout": self._layout,
            "train": changes.training_fields(self._train),
            "conditional": strategy.tracks_usage,
            "precision": self._precision.state(),
        }
        if strategy.saves_together or tensor is not None or stage is not None:
            own = strategy.rank_state
            state["extra"] = self._ranks.of_each({} if own is None else own.save())
        if self._sender is not None:
            if ends:
                self._sender.write(state)
            else:
                self._sender.begin(step, state)
        if self._saver is not None:
            self._write(self._saver, step, state, started, ends=ends, final=final, values=values)

    def _write(
        self,
        saver: Saver,
        step: int,
        state: State,
        started: float,
        *,
        ends: bool,
        final: bool,
        values: Mapping[str, float],
    ) -> None:
        """Let the writing rank save the state, at once or during the next step."""
        self._final_step = step if final else None
        measured = self._measured(step, values)
        if not ends:
            spent = time.monotonic() - started
            saver.begin(step, state, measured=measured, collected_seconds=spent)
            return
        loss = values.get("train/loss")
        model, plan = state["model"], self._plan
        others = self._export.files(model, step=step, plan=plan, loss=loss) if final else {}
        spent = time.monotonic() - started
        saver.write(step, state, measured=measured, others=others, collected_seconds=spent)
        self._export.clear()

    def poll(self) -> None:
        """Raise errors of a checkpoint that is written in the background.

        Call before each update.
        """
        if self._background is not None:
            self._background.poll()

    def finish(self) -> None:
        """Wait until every checkpoint is durable."""
        if self._background is not None:
            self._background.finish()

    def abandon(self) -> None:
        """This rank fails: give the checkpoint that is being written a moment."""
        if self._background is not None:
            self._background.abandon()

    @property
    def plan(self) -> BatchPlan:
        """The run's; settled by the checkpoint that it resumes from, if the spec leaves it open."""
        return self._plan

    def replanned(self, plan: BatchPlan) -> None:
        """From the next checkpoint on, the layout is that of another plan."""
        self._plan = plan
        self._layout = self._layout | {"micro_batch_size": plan.micro_batch_size}

    def report_forecast(self) -> None:
        """Report the expected duration of a save to the node's agent, before the first one.

        Call after each step: a stop before the first step has nothing to save, and needs no time
        for it.
        """
        state_bytes, self._state_bytes = self._state_bytes, None
        if state_bytes is not None and not (self._folder / attempt.SAVE_TIME).exists():
            self._report(SaveTime.forecast(state_bytes))

    def _report(self, save: SaveTime) -> None:
        with contextlib.suppress(OSError):  # A full disk must not end a run that needs no disk now.
            write_atomically(self._folder / attempt.SAVE_TIME, save.model_dump_json())

    def _announce(self, saved: SavedCheckpoint) -> None:
        self._report(SaveTime(seconds=saved.seconds, measured=True))
        measured = {} if saved.measured is None else {"metric": saved.measured.document()}
        self._telemetry.event(
            "checkpoint",
            step=saved.step,
            folder=saved.folder.name,
            bytes=saved.size_bytes,
            sha256=saved.sha256,
            final=saved.step == self._final_step,
            seconds=round(saved.seconds, 3),
            **measured,
        )

    def _measured(self, step: int, values: Mapping[str, float]) -> CheckpointMetric | None:
        name = self._train.checkpoint.keep_best
        if name is None:
            return None
        if step == self._resumed_step and self._resumed is not None:
            return self._resumed  # No step was trained since then: the metrics still hold.
        value = values.get(name)
        # An evaluation that is not due now may still come; any other number would be here.
        expected = not name.startswith(_EVAL) or any(key.startswith(_EVAL) for key in values)
        if value is None and expected and values and not self._warned_of_metric:
            self._warned_of_metric = True
            there = ", ".join(sorted(values))
            self._telemetry.warn(
                f"keep_best: step {step} has no {name}, so its checkpoint cannot be the best; its "
                f"metrics are {there}"
            )
        return CheckpointMetric(name, value)

    # --- restoring

    def restored(
        self, model: nn.Module, *, steps: int, resumes: bool, source: str = attempt.RESUME
    ) -> State | None:
        """Return the state to resume from, on every rank; None at a fresh start.

        All ranks must call this.

        Parameters
        ----------
        model : nn.Module
            The user's, whose weights the checkpoint must have.
        steps : int
            Optimizer steps of the whole run.
        resumes : bool
            True to use this folder's own checkpoints if there is no ``source``.
        source : str
            Folder of the attempt's that holds the checkpoint to resume from, if there is one.
        """
        if self._ranks.local_rank == 0:
            # With the two averages of Adam, which the optimizer makes in the first step.
            self._state_bytes = 3 * sum(each.nbytes for each in model.parameters())
        found = choosing.chosen(self._folder, self._ranks, self._telemetry, source, resumes=resumes)
        if found is None:
            return None
        name, folder, state = found
        make_buffers(model, state)
        self._identity.require_same(name, state, model)
        if state["step"] > steps:
            raise BadSpecError(
                f"the checkpoint {name} is at step {state['step']}, but the run has only {steps}",
            )
        self._resumed_step, self._resumed_from = state["step"], name
        self._resumed = checkpoint.measured_of(folder)
        layout = state["layout"]
        if self._plan.micro_batch_size is None and layout["world_size"] == self._plan.world_size:
            # Not searched again: the run stays exact.
            self.replanned(self._plan.settled(layout["micro_batch_size"]))
        return state

    def report_resume(self, state: State, lost: Reasons) -> None:
        """Report the step, the training fields that changed, and whether the run stays exact.

        Parameters
        ----------
        state : dict
            Result of :meth:`restored`.
        lost : mapping of str to str
            State that could not be restored, with the reasons.
        """
        found = changes.changes(state.get("train"), self._train)
        same = state["layout"] == self._layout and not changes.affect_weights(found, self._train)
        changed = changes.sentence(found)
        reported: dict[str, Any] = {"changed": changed} if changed else {}
        if lost:
            reported["why"] = listed(lost)
        self._telemetry.event(
            "resumed",
            step=state["step"],
            exact=same and not lost,
            **{"from": self._resumed_from},
            **reported,
        )
        if lost:
            self._telemetry.warn(not_exact(lost))
        if changed:
            self._telemetry.log_line(
                f"training fields changed since the checkpoint of step {state['step']}: {changed}"
            )


def _layout_of(train: Train, plan: BatchPlan, ranks: Ranks) -> dict[str, Any]:
    """Return the values that the last bits of a result depend on."""
    layout = {
        "world_size": plan.world_size,
        "micro_batch_size": plan.micro_batch_size,
        "strategy": train.strategy.label,
        "threads": torch.get_num_threads(),
        "device": ranks.device.type,
        "torch": str(torch.__version__),
        "machine": platform.machine(),
    }
    cuts = {"tensor": plan.tensor, "pipeline": plan.pipeline}
    return layout | {name: count for name, count in cuts.items() if count > 1}
