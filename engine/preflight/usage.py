"""Parameters that a loss uses and blocks that it calls, observed on single samples before training.

A conditional model (experts, LayerDrop, one head per task) uses different parameters for different
samples. Strategies must be prepared for that (``engine.strategies.base.Strategy.tracks_usage``). A
parameter that no sample uses is most likely a mistake, and is refused.

All ranks use the same samples and the same weights, so they get the same result without
communication.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import Dataset

from lockstep.engine.data import order
from lockstep.engine.data.fetching import seeded_sample
from lockstep.engine.model.modes import evaluating
from lockstep.engine.model.normalization import masked_batch, masked_samples
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.device import to_device
from lockstep.engine.runtime.errors import BadSpecError, listed
from lockstep.engine.state.inventory import Inventory
from lockstep.engine.state.snapshot import Snapshot
from lockstep.engine.state.step import is_trained
from lockstep.engine.step.requirements import arrivals, names_of_missing
from lockstep.engine.strategies.block_order import ModelUsage, Order, recorded
from lockstep.engine.strategies.shards import blocks
from lockstep.engine.task.dropout import Masks
from lockstep.engine.task.interface import Batch, Task

SAMPLES_MAX: Final = 64
"""Samples to run before a parameter counts as unused."""
BLOCK_SAMPLES: Final = 8
"""Samples on which the order of blocks is compared, where the strategy depends on it."""


@dataclass(frozen=True)
class ObservedUsage:
    """Result of some single-sample passes."""

    usage: ModelUsage
    unused: tuple[str, ...]
    """Trainable parameters that no sample used."""
    samples: int
    """Number of passes."""

    def require_all_used(self) -> None:
        """Refuse a model with parameters that no sample used.

        Raises
        ------
        EngineError
            ``bad_spec``, with the names.
        """
        if self.unused:
            looked_at = f"{self.samples} samples" if self.samples > 1 else "the only sample"
            raise BadSpecError(
                f"the loss does not depend on {listed(list(self.unused))} in the first "
                f"{looked_at}: use these "
                "parameters in the loss, freeze them with requires_grad_(False), or declare "
                "conditional = True in the "
                "task if only other samples use them",
            )


def single_samples(
    task: Task, model: nn.Module, dataset: Dataset[Any], *, size: int, seed: int
) -> Iterator[Batch]:
    """Yield the run's first samples, each as a masked micro-batch."""
    for _, index in order.samples(0, min(size, SAMPLES_MAX), size=size, seed=seed):
        yield masked_batch(task, model, seeded_sample(dataset, index, seed=seed))


def eval_samples(task: Task, dataset: Dataset[Any], *, seed: int) -> Iterator[Batch]:
    """Yield the first samples of the eval split, each as a micro-batch of one."""
    for index in range(len(dataset)):  # type: ignore[arg-type] # a map-style dataset has a length
        yield task.collate([seeded_sample(dataset, index, seed=seed, purpose=randomness.EVAL_ITEM)])


def observe(
    objective: Objective,
    batches: Iterable[Batch],
    *,
    masks: Masks,
    compare_blocks: bool = False,
    evaluated: Iterable[Batch] = (),
) -> ObservedUsage:
    """Run forward and backward on single samples until every parameter was used.

    The model is not changed.

    Parameters
    ----------
    objective : Objective
        Model and loss, on the rank's device, before a strategy shards the model.
    batches : iterable of Batch
        Micro-batches of one sample, on the host.
    masks : Masks
        Masks of the model's ``lockstep.Dropout`` layers.
    compare_blocks : bool
        True if the order of blocks is recorded and compared, on at least ``BLOCK_SAMPLES`` samples.
    evaluated : iterable of Batch
        Micro-batches of the eval split, for the order of blocks in an evaluation.
    """
    model = objective.model
    watched = list(blocks(model).values()) if compare_blocks else []
    device = next(model.parameters()).device
    passes = _Passes(objective, masks, watched)
    needed = BLOCK_SAMPLES if watched else 1
    unused: set[str] | None = None
    orders: list[Order] = []
    varies = False
    with _unchanged(objective, device):
        for batch in batches:
            missing, found = passes.train(to_device(batch, device))
            varies |= bool(missing)
            unused = set(missing) if unused is None else unused & set(missing)
            orders.append(found)
            if not unused and len(orders) >= needed:
                break
        evaluations = [
            passes.evaluate(to_device(batch, device))
            for batch in itertools.islice(evaluated, needed if watched else 0)
        ]
    varies |= len(set(orders)) > 1 or len(set(evaluations)) > 1
    usage = ModelUsage(varies, orders[0], evaluations[0] if evaluations else Order())
    names = [name for name, _ in model.named_parameters() if name in (unused or ())]
    return ObservedUsage(usage, tuple(names), len(orders))


class _Passes:
    """Single passes through an objective, on this rank alone."""

    def __init__(self, objective: Objective, masks: Masks, watched: list[nn.Module]):
        self._objective, self._masks, self._watched = objective, masks, watched

    def train(self, batch: Batch) -> tuple[list[str], Order]:
        """Return the parameters that a training pass did not use, and the order of its blocks."""
        model = self._objective.model
        with arrivals(model, drop=True) as arrived, recorded(self._watched) as recorder:
            self._masks.begin_micro_batch(0, 0, masked_samples(model))
            objective, _ = self._objective(batch, None, penalize=True)
            self._masks.begin_backward()
            recorder.begin_backward()
            objective.backward()
            self._masks.end()
        return names_of_missing(model, arrived), recorder.order()

    def evaluate(self, batch: Batch) -> Order:
        """Return the order of blocks in an evaluation pass."""
        with (
            evaluating(self._objective.model),
            torch.no_grad(),
            recorded(self._watched) as recorder,
        ):
            self._objective.evaluate(batch)
        return recorder.order()


@contextmanager
def _unchanged(objective: Objective, device: torch.device) -> Iterator[None]:
    """Restore state and random generators at the end."""
    entries = Inventory(objective.model, objective.task).walk().values()
    before = Snapshot(entry for entry in entries if not is_trained(entry))
    with randomness.unchanged_generators(device):
        try:
            yield
        finally:
            before.put_back()
