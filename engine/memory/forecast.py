"""Prediction of a rank's memory, without allocating it.

The model, one micro-batch and a whole step run under torch's fake tensors, which have shapes and no
values, while ``engine.memory.tensors`` counts the live bytes: the same count that measures a real
run on the CPU. The step is the engine's own (``engine.step.gradient``) with the spec's own
optimizer, so everything that they keep or copy is included. Two micro-batches run if the plan
accumulates, because from the second on a whole gradient is alive during forward.

Under ``fsdp`` the other ranks are replaced by a process group that sends nothing, and so are those
of a tensor group: their slices are equally large. Under the other strategies a single rank runs,
and the effect of several ranks is added by rule.

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

import torch.distributed as dist
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorConverter,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from lockstep.domain.spec import strategy
from lockstep.domain.spec.train import Train
from lockstep.domain.training.layout import RankLayout
from lockstep.domain.training.memory import MemoryForecast
from lockstep.engine.memory.parts import micro_batches_of, parts_of, rank_batch
from lockstep.engine.memory.tensors import TensorCount
from lockstep.engine.model.modes import set_to_train
from lockstep.engine.model.objective import Objective
from lockstep.engine.model.precision import Precision
from lockstep.engine.parallel.collectives import SilentGroup
from lockstep.engine.runtime.errors import describe
from lockstep.engine.runtime.flops import count
from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.timeline import Parts, StepMarks
from lockstep.engine.step.gradient import GradientStep
from lockstep.engine.strategies.base import Strategy
from lockstep.engine.strategies.ddp import DDP
from lockstep.engine.task.interface import Task

MICRO_BATCHES_MAX: Final = 2
"""Slots from the third on are like the second."""


class NoForecastError(Exception):
    """The memory of a task cannot be predicted. The message completes "no forecast:"."""


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
    if (train.parallel.pipeline or 1) > 1:
        raise NoForecastError("layers are divided into stages (train.parallel.pipeline)")
    copies = max(1, world_size // train.parallel.ranks_per_copy)
    sharing = _Sharing.of(train.strategy, copies)
    micro_batches = micro_batches_of(
        train, micro_batch_size=micro_batch_size, copies=copies, at_most=MICRO_BATCHES_MAX
    )
    with _explained():
        return _forecast(
            task,
            train,
            [sample] * micro_batch_size,
            MICRO_BATCHES_MAX if sharing.in_place else micro_batches,
            sharing,
        )


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


class _Sharing(NamedTuple):
    """Memory of one rank that sharing a model between ranks adds or removes."""

    copies: int
    """Of the gradient, on their way between ranks."""
    in_place: bool
    """True if gradients are views of the communication buffers; they then exist from the first
    micro-batch on."""
    owners: int
    """Ranks among which the optimizer's state is shared out."""
    sharded: int = 1
    """Ranks over which the model itself is spread, in a group that sends nothing; 1 where each has
    all of it."""

    @classmethod
    def of(cls, options: strategy.Strategy, world_size: int) -> _Sharing:
        kind = options.kind
        if kind.gradient_copies is None:
            raise NoForecastError(
                f"strategy {options.name} distributes memory over the ranks in another way"
            )
        if kind.shards_model:
            shard = min(options.shard or world_size, world_size)
            return cls(copies=0, in_place=False, owners=1, sharded=shard)
        if options.compression != "none":
            raise NoForecastError(f"compression {options.compression} keeps additional copies")
        if world_size == 1:
            return cls(copies=0, in_place=False, owners=1)
        in_place = options.buckets_hold_gradients
        return cls(
            copies=kind.gradient_copies - in_place,
            in_place=in_place,
            owners=world_size if kind.shards_optimizer else 1,
        )

    @contextmanager
    def group(self) -> Iterator[tuple[type[Strategy], Ranks]]:
        """The strategy to run, and the ranks that it sees."""
        if self.sharded == 1:
            yield DDP, Ranks()
            return
        # Imported late: FSDP takes a second to import.
        from torch.distributed.device_mesh import DeviceMesh
        from torch.testing._internal.distributed.fake_pg import FakeStore

        from lockstep.engine.strategies.fsdp import FSDP

        class Alone(FSDP):
            """FSDP as one of several ranks, of which the others do not exist."""

            def _mesh(self) -> tuple[DeviceMesh, None]:
                assert dist.group.WORLD is not None, "begun below"
                with _disable_current_modes():  # It reads the numbers of its ranks.
                    return DeviceMesh.from_group(dist.group.WORLD, "cpu"), None

        if dist.is_initialized():
            raise NoForecastError(
                "this process belongs to a run, and its process group must not be replaced"
            )
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=self.sharded)
        try:
            # No group: nothing but FSDP's own collectives needs the others.
            yield Alone, Ranks(world_size=self.sharded)
        finally:
            dist.destroy_process_group()


def _largest_part(sizes: list[int], owners: int) -> float:
    """Return the largest fraction of ``sizes`` that one rank owns.

    Assigns the largest first, each to the rank with the least.
    """
    owned = [0] * owners
    for size in sorted(sizes, reverse=True):
        owned[owned.index(min(owned))] += size
    return max(owned) / sum(owned)


def _forecast(
    task: Task, train: Train, samples: list[Any], micro_batches: int, sharing: _Sharing
) -> MemoryForecast:
    batch = task.collate(samples)
    weight = task.weight(batch)
    # Communication is added afterwards, and fp16 reads values that bf16, of the same size, does
    # not.
    precision = Precision("fp32" if train.precision == "fp32" else "bf16")
    fake = _fake_mode()
    count = TensorCount()
    with sharing.group() as (strategy_class, ranks), fake:
        batch = tree_map_only(Tensor, fake.from_tensor, batch)
        tensor = train.parallel.tensor_size
        model, strategy, gradient, optimizer = parts_of(
            task,
            train,
            strategy_class,
            Mesh(RankLayout(1, tensor), Ranks(), ranks),
            precision,
            group=SilentGroup(tensor) if tensor > 1 else None,
        )
        gradient.terms = _terms(gradient, strategy, batch)
        whole, weights = rank_batch(
            batch, weight, gradient.terms, samples=len(samples), micro_batches=micro_batches
        )
        state = _tensors(dict(optimizer.inner.state))
        count.hold("weights", model.parameters())
        count.hold("buffers", model.buffers())
        count.hold("optimizer", state)
        count.hold("activations", _tensors(batch))
        hooks = [
            parameter.register_post_accumulate_grad_hook(partial(_accumulated, count))  # type: ignore[no-untyped-call]
            for parameter in model.parameters()
            if parameter.requires_grad
        ]
        with count:
            gradient.accumulate(whole, weights, _Phases(count))
            count.rename("gradients", (p.grad for p in model.parameters() if p.grad is not None))
            optimizer.norm(1.0)
            # Not the engine's own update: on the CPU it reads whether the norm is finite. Clipping
            # takes no memory.
            optimizer.inner.step()
        for hook in hooks:
            hook.remove()
        trainable = [
            _bytes(parameter) for parameter in model.parameters() if parameter.requires_grad
        ]
    if not count.is_complete:
        raise NoForecastError("some tensors, such as sparse ones, cannot be measured")
    found = MemoryForecast.model_validate(
        dict.fromkeys(MemoryForecast.model_fields, 0) | count.peak
    )
    if sharing.sharded > 1:
        return found
    optimizer_bytes = int(found.optimizer * _largest_part(trainable, sharing.owners))
    return found.model_copy(
        update={"buckets": sum(trainable) * sharing.copies, "optimizer": optimizer_bytes}
    )


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

    def __init__(self, count: TensorCount):
        self._count = count

    def begin(self) -> None:
        pass

    def mark(self, part: str, then: str = "other") -> None:
        if part == "backward":
            self._count.rename_all("temporary", "gradients")  # All else that backward made is gone.
        self._count.part = "activations" if then == "forward" else "temporary"

    def end(self) -> StepMarks:
        return self

    def parts(self) -> Parts:
        return {}


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
