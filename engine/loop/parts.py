"""Parts of one rank of one run: its model, its data, its step.

Not here: their construction (``engine.loop.assembly``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn
from torch.utils.data import Dataset

from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import BatchPlan
from lockstep.domain.verify.orders import VerifyOrder
from lockstep.engine.checkpoints.state import TrainingState
from lockstep.engine.data.fingerprint import Samples
from lockstep.engine.data.loader import Batches, RunLength
from lockstep.engine.model.precision import Precision
from lockstep.engine.parallel.staged import StageParallel
from lockstep.engine.parallel.tensor import TensorParallel
from lockstep.engine.preflight.additivity_check import Checked
from lockstep.engine.runtime.control import Control
from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.telemetry import Telemetry
from lockstep.engine.runtime.timeline import Timeline
from lockstep.engine.state.inventory import Inventory
from lockstep.engine.step.gradient import GradientStep
from lockstep.engine.step.optimizer import Optimizer
from lockstep.engine.step.replicas import ReplicaCheck
from lockstep.engine.strategies.base import Strategy
from lockstep.engine.task.interface import Batch, Task


@dataclass(frozen=True)
class TrainingResult:
    """Result of the training loop."""

    steps_done: int
    """Completed optimizer steps, those before a resume included."""
    stopped: bool
    """True if the run was stopped before its end."""
    loss: float | None
    """Of the last reported step."""
    checkpoint: Path | None
    """The newest one this run wrote; on rank 0 only."""


@dataclass(frozen=True)
class RunInputs:
    """Inputs of one rank of one run, as ``engine.loop.trainer.Trainer`` takes them."""

    train: Train
    plan: BatchPlan
    """Its micro-batch may be open."""
    task: Task
    mesh: Mesh
    folder: Path
    telemetry: Telemetry
    resumes: bool
    spec: JobSpec | None
    code: Path | None
    order: VerifyOrder

    @property
    def ranks(self) -> Ranks:
        """All ranks."""
        return self.mesh.world


@dataclass(frozen=True)
class Model:
    """Model of the task, with all that belongs to it under any strategy."""

    module: nn.Module
    inventory: Inventory
    precision: Precision
    replicas: ReplicaCheck
    parameters: int
    """Numbers in its parameters, over all ranks once."""


@dataclass(frozen=True)
class Splits:
    """Datasets of the task."""

    train: Dataset[Any]
    size: int
    """Samples of the training dataset."""
    evaluation: Dataset[Any] | None
    """None where nothing is evaluated."""
    evaluation_size: int
    length: RunLength


@dataclass(frozen=True)
class Items:
    """Some items of the training dataset, equal on all ranks."""

    splits: Splits
    sample: Any
    """The first item of the training dataset."""
    masked: Batch
    """The sample, collated for masked passes."""
    fingerprints: Samples
    read_again: Callable[[], Samples]
    """Computes the fingerprints of the same items once more."""
    warnings: list[str]
    """Reasons for a dependence of items on the order in which they are fetched."""


@dataclass(frozen=True)
class Found:
    """Result of the checks of model and data before the first step."""

    warnings: list[str]
    """Reasons for a dependence of the run on its layout (``engine.preflight.repeatability``)."""
    additivity: Checked
    """Result of the additivity check of the loss."""
    moved: list[str]
    """Names of parameters that a call of the loss changes."""
    needs_several: bool
    """True if no micro-batch may hold a single sample, because of BatchNorm."""


@dataclass(frozen=True)
class Step:
    """Parts that compute a step."""

    strategy: Strategy
    gradient: GradientStep
    optimizer: Optimizer
    control: Control
    tensor: TensorParallel | None = None
    """If ranks hold slices of the model."""
    stage: StageParallel | None = None
    """If ranks hold stages of the model."""

    @property
    def saves_together(self) -> bool:
        """True if rank 0 does not hold the whole state, so that all ranks save."""
        cut = self.tensor is not None or self.stage is not None
        return self.strategy.saves_together or cut

    def watch(self, timeline: Timeline) -> None:
        """Mark the waits for other parts of a copy of the model in the timeline of the steps."""
        if self.tensor is not None:
            self.tensor.watch(timeline)
        if self.stage is not None:
            self.stage.pipeline.watch(timeline)


@dataclass(frozen=True)
class Data:
    """Samples of a run, and its loader."""

    items: Items
    batches: Batches
    steps_done: int
    """Steps of the checkpoint that the run resumes from; 0 at a fresh start."""


@dataclass(frozen=True)
class Assembly:
    """All parts of one rank of one run."""

    model: Model
    found: Found
    step: Step
    data: Data
    state: TrainingState
    """Has the plan, with a micro-batch."""
