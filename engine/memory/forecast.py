"""How much memory a rank will need, worked out without allocating it.

The model, one micro-batch and a whole step run under torch's fake tensors, which have shapes and no values, while
torch's ``MemTracker`` counts what would be alive. It is the engine's own step that runs (``engine.step``), with the
spec's own optimizer, so whatever they keep or copy is in the numbers. Two slots where the run accumulates, because from
the second on a whole gradient is there during forward.

What cannot be seen this way: memory that a kernel takes for itself and gives back (most take none; a convolution that
copies a gradient into another layout took 16 % in the worst case found), the allocator's rounding and fragmentation,
and CUDA's own context. The micro-batch is built from one sample, so where samples differ in size it stands for that one.

Not here: where this runs beside a training run (``engine.memory.aside``), how the result is put into words
(``domain.memory``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.distributed._tools.mem_tracker import MemTracker
from torch.utils._pytree import tree_map_only

from domain.memory import MemoryForecast
from domain.plan import accumulation_steps
from domain.spec import Train
from engine.dropout import name_layers
from engine.errors import describe
from engine.flops import count
from engine.loader import RankBatch, Slot, weights_of
from engine.objective import Objective
from engine.optimizer import Optimizer
from engine.precision import Precision
from engine.ranks import Ranks
from engine.step import GradientStep
from engine.strategies.ddp import DDP
from engine.task import Task
from engine.timeline import Line, Parts

_SLOTS_MAX: Final = 2
"""Slots from the third on are like the second."""
_REPLICATED: Final = frozenset({"ddp", "manual"})
"""Strategies under which every rank holds the whole model, gradient and optimizer state."""


class NoForecastError(Exception):
    """Why a task's memory cannot be foretold; completes the words "no forecast:"."""


def forecast(task: Task, train: Train, *, micro_batch_size: int, world_size: int, sample: Any) -> MemoryForecast:
    """Foretell the fullest moment of a step, on each rank.

    The task's ``model``, ``collate``, ``loss`` and ``param_groups`` are called, so this belongs into a process in which
    no run of the same task follows: a task that keeps a tensor from one call to the next would keep a fake one.

    Parameters
    ----------
    task : Task
        Prepared.
    train : Train
        The spec's section.
    micro_batch_size : int
        Samples in one forward and backward.
    world_size : int
        Ranks that share the batch.
    sample : Any
        One item of the training dataset.

    Raises
    ------
    NoForecastError
        Whatever the reason is: the strategy spreads the model over ranks, the task needs values, it raises.
    """
    if train.strategy.name not in _REPLICATED:
        raise NoForecastError(f"strategy {train.strategy.name} spreads memory over the ranks")
    slots = min(_SLOTS_MAX, accumulation_steps(train.batch.size, micro_batch_size, world_size))
    with _explained():
        return _forecast(task, train, [sample] * micro_batch_size, slots, shared=world_size > 1)


def flops_per_sample(task: Task, sample: Any) -> float:
    """Model FLOPs of one sample's forward and backward, under the same conditions as :func:`forecast`."""
    with _explained():
        fake = FakeTensorMode(allow_non_fake_inputs=True)
        batch = tree_map_only(torch.Tensor, fake.from_tensor, task.collate([sample]))
        with fake:
            objective = Objective(task, task.model().train())

            def run() -> None:
                objective(batch, None, penalize=False)[0].backward()

            return count(run)


@contextmanager
def _explained() -> Iterator[None]:
    """Whatever goes wrong inside, as a reason for having no forecast."""
    try:
        yield
    except DataDependentOutputException as error:
        raise NoForecastError(f"the model or the loss reads a value of a tensor ({error.func})") from None
    except DynamicOutputShapeException as error:
        raise NoForecastError(f"the shape of a result depends on values ({error.func})") from None
    except UnsupportedOperatorException as error:
        raise NoForecastError(f"{error.func} is not known without values") from None
    except Exception as error:
        raise NoForecastError(describe(error)) from error


def _forecast(task: Task, train: Train, samples: list[Any], slots: int, *, shared: bool) -> MemoryForecast:
    batch = task.collate(samples)
    weight = task.weight(batch)
    # Not only fake tensors go in: a task may hold real ones, such as the weights of its classes.
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    tracker = MemTracker()
    with fake:
        batch = tree_map_only(torch.Tensor, fake.from_tensor, batch)
        model = task.model()
        name_layers(model)
        model.train()
        strategy = DDP(Objective(task, model), Ranks(), train.strategy)
        gradient = GradientStep(task, strategy, Precision(), Ranks(), seed=train.seed)
        optimizer = Optimizer(train, task, strategy, steps=1)
        _, sums = strategy.forward(batch, None, penalize=True)
        gradient.terms = tuple(sums)
        weights = weights_of(weight, gradient.terms)
        slot = Slot(batch, len(samples), weights, position=0)
        rank_batch = RankBatch(step=0, size=len(samples) * slots, slots=[slot] * slots)
        tracker.track_external(model, optimizer.inner, *_tensors(batch))
        with tracker:
            gradient.accumulate(rank_batch, weights, _NewPass(tracker))
            optimizer.norm(1.0)
            # Not the engine's own update: on the CPU it reads whether the norm is finite. Clipping takes no memory.
            optimizer.inner.step()
        state = sum(_bytes(tensor) for tensor in _tensors(dict(optimizer.inner.state)))
        trainable = sum(_bytes(parameter) for parameter in model.parameters() if parameter.requires_grad)
    return _by_part(tracker, state=state, buckets=trainable if shared else 0)


def _by_part(tracker: MemTracker, *, state: int, buckets: int) -> MemoryForecast:
    """MemTracker's peak in our words."""
    found: dict[str, int] = {}
    for parts in tracker.get_tracker_snapshot("peak").values():
        for kind, held in parts.items():
            name = str(getattr(kind, "value", kind))
            found[name] = found.get(name, 0) + held
    # It counts all that is made during the optimizer's step as its state; what exceeds that is gone afterwards.
    optimizer = min(found["Optstate"], state)
    return MemoryForecast(
        weights=found["Parameter"],
        buffers=found["Buffer"],
        gradients=found["Gradient"],
        optimizer=optimizer,
        activations=found["Activation"] + found["Other"],
        temporary=found["Temp"] + found["Optstate"] - optimizer,
        buckets=buckets,
    )


class _NewPass:
    """A timeline that measures nothing: it tells the tracker after each slot that the modules will be called again.

    Without being told, the tracker takes that for a mistake.
    """

    def __init__(self, tracker: MemTracker):
        self._tracker = tracker

    def begin(self) -> None:
        pass

    def mark(self, part: str, then: str = "other") -> None:  # noqa: ARG002 - as every timeline has it
        if part == "backward":
            self._tracker.reset_mod_stats()

    def end(self) -> Line:
        return self

    def parts(self) -> Parts:
        return {}


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
