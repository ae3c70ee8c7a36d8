"""Prediction of a rank's memory, without allocating it.

The model, one micro-batch and a whole step run under torch's fake tensors, which have shapes and no
values, while ``engine.memory.tensors`` counts the live bytes: the same count that measures a real
run on the CPU. The step is the engine's own (``engine.step.gradient``) with the spec's own
optimizer, so everything that they keep or copy is included. Two micro-batches run if the plan
accumulates, because from the second on a whole gradient is alive during forward.

Under ``fsdp`` the other ranks are replaced by a process group that sends nothing, and so are those
of a tensor group: their slices are equally large. Under the other strategies a single rank runs,
and the effect of several ranks is added by rule.

Stages of a pipeline run one after the other on links that send nothing: each shows the form of its
activation to the next. A stage keeps several forwards, and messages that are under way, so more
micro-batches run until a further one would take no more memory.

Not included: temporary memory of kernels (most use none; a convolution that copies a gradient into
another layout took 16 % in the worst case found), the allocator's rounding and fragmentation, and
CUDA's own context. The micro-batch is built from one sample, so with samples of different sizes the
forecast is that of this sample. A compiled model is predicted as uncompiled; it usually keeps less.

Not here: the forecast beside a run (``engine.memory.forecast_process``) or before one
(``engine.memory.job_forecast``); the text of the result (``domain.training.memory``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorConverter,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_leaves, tree_map_only

from lockstep.domain.spec.train import Train
from lockstep.domain.training.memory import MemoryForecast, StageForecast
from lockstep.engine.memory.parts import (
    StageOf,
    StepParts,
    micro_batches_of,
    parts_of,
    rank_batch,
    stages_of,
)
from lockstep.engine.memory.sharing import NoForecastError, Sharing, largest_part
from lockstep.engine.memory.tensors import TensorCount
from lockstep.engine.model.modes import set_to_train
from lockstep.engine.model.objective import Objective
from lockstep.engine.model.precision import Precision
from lockstep.engine.parallel.collectives import SilentGroup
from lockstep.engine.parallel.silent import SilentLinks, SilentMesh
from lockstep.engine.parallel.stages import StagePlan
from lockstep.engine.runtime.errors import describe
from lockstep.engine.runtime.flops import count
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.timeline import Parts, StepMarks
from lockstep.engine.step.gradient import GradientStep
from lockstep.engine.strategies.base import Strategy
from lockstep.engine.task.interface import Task

MICRO_BATCHES_MAX: Final = 2
"""Slots from the third on are like the second."""
MICRO_BATCHES_PER_STAGE: Final = 2
"""The same of a pipeline, for each stage and one more: a stage keeps as many forwards as stages
follow it, and as many messages as it lets be under way."""


def forecast(
    task: Task, train: Train, *, micro_batch_size: int, world_size: int, sample: Any
) -> MemoryForecast:
    """Predict the fullest moment of a step, on each rank.

    The task's ``model``, ``collate``, ``loss`` and ``param_groups`` are called, so this belongs
    into a process in which no run of the same task follows: a task that keeps a tensor from one
    call to the next would keep a fake one.

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
        Whatever the reason is: the strategy spreads the model over ranks, the task needs values, it
        raises.
    """
    copies, stages = max(1, world_size // train.parallel.ranks_per_copy), train.parallel.stages
    sharing = Sharing.of(train.strategy, copies)
    at_most = MICRO_BATCHES_MAX if stages == 1 else MICRO_BATCHES_PER_STAGE * (stages + 1)
    micro_batches = micro_batches_of(
        train, micro_batch_size=micro_batch_size, copies=copies, at_most=at_most
    )
    samples = [sample] * micro_batch_size
    with _explained():
        if stages > 1:
            return _of_stages(task, train, _Steps(samples, micro_batches, sharing))
        if sharing.in_place:
            micro_batches = MICRO_BATCHES_MAX
        return _forecast(task, train, _Steps(samples, micro_batches, sharing))


def flops_per_sample(task: Task, sample: Any) -> float:
    """Model FLOPs of one sample's forward and backward; see :func:`forecast`."""
    with _explained():
        fake = _fake_mode()
        batch = tree_map_only(Tensor, fake.from_tensor, task.collate([sample]))
        with fake:
            model = task.model()
            set_to_train(model)
            objective = Objective(task, model)

            def run() -> None:
                objective(batch, None, penalize=False)[0].backward()

            return count(run)


def _fake_mode() -> FakeTensorMode:
    # Not only fake tensors go in: a task may hold real ones, such as the weights of its classes.
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    fake.fake_tensor_converter = _Forgetful()
    return fake


class _Forgetful(FakeTensorConverter):
    """Converter that keeps no weak references to the results of operations.

    If a model converts itself (``.float()``, ``.to()``), torch exchanges fake parameters in place,
    and refuses to if one of them is referenced.
    """

    def set_tensor_memo(self, t: Tensor, v: FakeTensor) -> None:
        pass


@contextmanager
def _explained() -> Iterator[None]:
    """Whatever goes wrong inside, as a reason for having no forecast."""
    try:
        yield
    except DataDependentOutputException as error:
        raise NoForecastError(
            f"the model, the loss or the optimizer reads a value of a tensor ({error.func})"
        ) from None
    except DynamicOutputShapeException as error:
        raise NoForecastError(f"the shape of a result depends on values ({error.func})") from None
    except UnsupportedOperatorException as error:
        raise NoForecastError(f"{error.func} needs the values of tensors") from None
    except Exception as error:
        raise NoForecastError(describe(error)) from error


class _Steps(NamedTuple):
    """Steps of a rank."""

    samples: list[Any]
    """Of each micro-batch."""
    micro_batches: int
    sharing: Sharing


class _Staged(NamedTuple):
    """One stage of a forecast."""

    number: int
    """Index of the stage."""
    plan: StagePlan
    links: SilentLinks
    terms: tuple[str, ...]
    """Of the loss."""


def _of_stages(task: Task, train: Train, steps: _Steps) -> MemoryForecast:
    """Return the forecast of all stages, one after the other: each sends its form to the next."""
    parallel, fake = train.parallel, _fake_mode()
    with fake:
        batch = tree_map_only(Tensor, fake.from_tensor, task.collate(steps.samples))
        plan, terms = stages_of(task, train, batch)
    found: list[MemoryForecast] = []
    form = None
    for stage in range(parallel.stages):
        links = SilentLinks(form, parallel.stages)
        found.append(_forecast(task, train, steps, _Staged(stage, plan, links, terms)))
        form = links.sent
    stages = tuple(
        StageForecast(blocks=len(plan.own_blocks(stage)), peak=each.peak)
        for stage, each in enumerate(found)
    )
    return max(found, key=lambda each: each.peak).model_copy(update={"stages": stages})


def _forecast(
    task: Task, train: Train, steps: _Steps, staged: _Staged | None = None
) -> MemoryForecast:
    samples, micro_batches, sharing = steps
    batch = task.collate(samples)
    weight = task.weight(batch)
    fake = _fake_mode()
    count = TensorCount()
    with sharing.group() as (strategy_class, ranks), fake:
        batch = tree_map_only(Tensor, fake.from_tensor, batch)
        parts = _parts(task, train, strategy_class, ranks, staged)
        model, strategy, gradient, optimizer = parts
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        gradient.terms = _terms(gradient, strategy, batch) if staged is None else staged.terms
        whole, weights = rank_batch(
            batch, weight, gradient.terms, samples=len(samples), micro_batches=micro_batches
        )
        if staged is not None and sharing.in_place:
            for parameter in trained:
                parameter.grad = torch.zeros_like(parameter)
        _hold(count, parts, batch)
        hooks = [
            parameter.register_post_accumulate_grad_hook(partial(_accumulated, count))  # type: ignore[no-untyped-call]
            for parameter in trained
        ]
        with count:
            links = None if staged is None else staged.links
            gradient.accumulate(whole, weights, _Phases(count, links))
            count.rename("gradients", (p.grad for p in model.parameters() if p.grad is not None))
            optimizer.norm(1.0)
            # Not the engine's own update: on the CPU it reads whether the norm is finite. Clipping
            # takes no memory.
            optimizer.inner.step()
        for hook in hooks:
            hook.remove()
        trainable = [_bytes(parameter) for parameter in trained]
    if not count.is_complete:
        raise NoForecastError("some tensors, such as sparse ones, cannot be measured")
    found = MemoryForecast.model_validate(dict.fromkeys(MemoryForecast.parts(), 0) | count.peak)
    if sharing.sharded > 1:
        return found
    optimizer_bytes = int(found.optimizer * largest_part(trainable, sharing.owners))
    return found.model_copy(
        update={"buckets": sum(trainable) * sharing.copies, "optimizer": optimizer_bytes}
    )


def _parts(
    task: Task, train: Train, sharing: type[Strategy], ranks: Ranks, staged: _Staged | None
) -> StepParts:
    # Communication is added afterwards, and fp16 reads values that bf16, of the same size, does
    # not.
    precision = Precision("fp32" if train.precision == "fp32" else "bf16")
    tensor = train.parallel.tensor_size
    return parts_of(
        task,
        train,
        sharing,
        SilentMesh.at(0 if staged is None else staged.number, train.parallel, ranks),
        precision,
        group=SilentGroup(tensor) if tensor > 1 else None,
        stage=None if staged is None else StageOf(staged.plan, staged.links),
    )


def _hold(count: TensorCount, parts: StepParts, batch: Any) -> None:
    """Count what exists before a step."""
    count.hold("weights", parts.model.parameters())
    count.hold("buffers", parts.model.buffers())
    count.hold("gradients", (p.grad for p in parts.model.parameters() if p.grad is not None))
    count.hold("optimizer", _tensors(dict(parts.optimizer.inner.state)))
    count.hold("activations", _tensors(batch))


def _terms(gradient: GradientStep, strategy: Strategy, batch: Any) -> tuple[str, ...]:
    """Names of the loss's terms, from a forward that keeps nothing."""
    terms = tuple(strategy.forward(batch, None, penalize=True)[1])
    gradient.discard()
    return terms


def _accumulated(count: TensorCount, parameter: Tensor) -> None:
    if parameter.grad is not None:
        count.rename("gradients", [parameter.grad])


class _Phases:
    """Timeline that measures nothing; it sets the part of new tensors for the count."""

    doing = "other"

    def __init__(self, count: TensorCount, links: SilentLinks | None = None):
        self._count, self._links = count, links

    def begin(self) -> None:
        pass

    def mark(self, part: str, then: str = "other") -> None:
        if part == "backward":
            self._count.rename_all("temporary", "gradients")  # All else that backward made is gone,
            if self._links is not None:  # but for messages.
                self._count.rename("temporary", self._links.under_way)
        self._count.part = "activations" if then == "forward" else "temporary"

    def end(self) -> StepMarks:
        return self

    def parts(self) -> Parts:
        return {}


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
