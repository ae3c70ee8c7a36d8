"""What of a run is saved, and what a run that goes on checks before it believes it.

A checkpoint's *identity* is what decides which samples a step holds (batch size, seed, size of the dataset): with
another one the same step is at another place in the data, and the checkpoint is refused. Its *layout* is what the last
bits of a result depend on: in the same layout a resumed run is exact, in another it is equal to rounding.

Not here: files and digests (``engine.checkpoint``), when to save (``engine.loop``).
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch
from torch import nn

from domain import attempt
from domain.outcomes import Reason
from domain.plan import BatchPlan
from domain.spec import Train
from engine import checkpoint
from engine.errors import EngineError
from engine.ranks import Ranks
from engine.strategies.base import Strategy
from engine.telemetry import Telemetry

State = dict[str, Any]


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
    samples : int
        Size of the training dataset.
    """

    def __init__(
        self, folder: Path, train: Train, plan: BatchPlan, ranks: Ranks, telemetry: Telemetry, *, samples: int
    ):
        self._folder, self._ranks, self._telemetry = folder, ranks, telemetry
        self._keep_last = train.checkpoint.keep_last
        self._identity = {"batch_size": plan.batch_size, "seed": train.seed, "samples": samples}
        self._layout = {
            "world_size": plan.world_size,
            "micro_batch_size": plan.micro_batch_size,
            "strategy": train.strategy.name,
            "threads": torch.get_num_threads(),
            "device": ranks.device.type,
            "torch": str(torch.__version__),
            "machine": platform.machine(),
        }

    def save(
        self, step: int, strategy: Strategy, optimizer: torch.optim.Optimizer, *, final: bool
    ) -> checkpoint.Saved | None:
        """Make a durable checkpoint, on rank 0. All ranks must call this where the strategy saves together."""
        if not (self._ranks.first or strategy.saves_together):
            return None
        state = {
            "model": strategy.model_state(),
            "optimizer": strategy.optimizer_state(optimizer),
            "identity": self._identity,
            "layout": self._layout,
        }
        if not self._ranks.first:
            return None
        saved = checkpoint.save(self._folder / attempt.CHECKPOINTS, step, state, keep_last=self._keep_last)
        self._telemetry.event(
            "checkpoint",
            step=saved.step,
            folder=saved.folder.name,
            bytes=saved.size_bytes,
            sha256=saved.sha256,
            final=final,
        )
        return saved

    def replanned(self, plan: BatchPlan) -> None:
        """From the next checkpoint on, the layout is that of another plan."""
        self._layout = self._layout | {"micro_batch_size": plan.micro_batch_size}

    def restored(self, *, steps: int, goes_on: bool) -> State | None:
        """The state to go on from, on every rank; None at a fresh start. All ranks must call this.

        Parameters
        ----------
        steps : int
            Optimizer steps of the whole run.
        goes_on : bool
            Whether this folder's own checkpoints count, where there is no ``resume``.
        """
        found, damage = self._ranks.from_first(self._find(goes_on=goes_on) if self._ranks.first else (None, ""))
        if damage:
            # Not a fresh start in silence: whoever placed the checkpoint there has older ones, and can choose.
            raise EngineError(Reason.STORAGE, f"the checkpoint to resume from is damaged: {damage}")
        if found is None:
            return None
        state = checkpoint.load(found)
        name = found.relative_to(self._folder).as_posix()
        there = state["identity"]
        wrong = [
            f"{key} {there.get(key)!r}, now {value!r}"
            for key, value in self._identity.items()
            if there.get(key) != value
        ]
        if wrong:
            raise EngineError(Reason.BAD_SPEC, f"the checkpoint {name} belongs to another run: {'; '.join(wrong)}")
        if state["step"] > steps:
            raise EngineError(
                Reason.BAD_SPEC, f"the checkpoint {name} is at step {state['step']}, but the run has only {steps}"
            )
        exact = state["layout"] == self._layout
        self._telemetry.event("resumed", step=state["step"], exact=exact, **{"from": name})
        return state

    def _find(self, *, goes_on: bool) -> tuple[Path | None, str]:
        """The checkpoint to go on from, verified, or what is wrong with the one that was given.

        Rank 0 only: one reader's verdict holds for all.
        """
        resume = self._folder / attempt.RESUME
        if resume.is_dir():
            try:
                checkpoint.verify(resume)
            except checkpoint.DamagedCheckpointError as error:
                self._skipped(attempt.RESUME, error)
                return None, str(error)
            return resume, ""
        for folder in checkpoint.complete(self._folder / attempt.CHECKPOINTS) if goes_on else ():
            try:
                checkpoint.verify(folder)
            except checkpoint.DamagedCheckpointError as error:
                self._skipped(folder.name, error)
            else:
                return folder, ""
        return None, ""

    def _skipped(self, name: str, error: Exception) -> None:
        self._telemetry.event("checkpoint_skipped", folder=name, why=str(error))
        self._telemetry.say(f"warning: the checkpoint {name} is damaged and not used: {error}")


def restore_model(model: nn.Module, state: State) -> None:
    """Put the weights and buffers of ``state`` into ``model``."""
    try:
        model.load_state_dict(state["model"])
    except RuntimeError as error:
        raise EngineError(Reason.BAD_SPEC, f"the checkpoint does not fit the model: {error}") from error


def restore_optimizer(strategy: Strategy, optimizer: torch.optim.Optimizer, state: State) -> None:
    """Put moments and counts of ``state`` into ``optimizer``. All ranks must call this."""
    try:
        strategy.load_optimizer(optimizer, state["optimizer"])
    except (ValueError, KeyError) as error:
        raise EngineError(Reason.BAD_SPEC, f"the checkpoint does not fit the optimizer: {error}") from error
