"""Wrong rules that replace those of the engine: each must make the check of its contract item
fail."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from lockstep.engine.checkpoints.export import NotExportableError
from lockstep.engine.data.loader import _Planned
from lockstep.engine.model.objective import Objective, as_terms
from lockstep.engine.step.gradient import GradientStep
from lockstep.engine.step.optimizer import Optimizer
from lockstep.engine.strategies.experimental.diloco import DiLoCo
from lockstep.engine.strategies.experimental.local_sgd import LocalSGD
from lockstep.engine.strategies.fsdp import FSDP
from lockstep.engine.strategies.reducer import Reducer
from lockstep.engine.task.dropout import Masks
from lockstep.engine.task.interface import Task
from tests.engine.toy import Items


def _means(micro_batches: Any) -> Any:
    """Return each micro-batch's own mean, divided by a number of micro-batches, as in most
    loops."""

    def forward(self: Objective, batch: Any, scales: Any, *, penalize: bool) -> Any:
        sums = as_terms(self.task.loss(self.model, batch))
        weight = self.task.weight(batch)
        factor = (
            1.0 / (max(float(weight), 1.0) * micro_batches(self)) if scales is not None else 0.0
        )
        return sum(sums.values()) * factor, {name: term.detach() for name, term in sums.items()}

    return forward


@contextlib.contextmanager
def mean_of_means() -> Iterator[None]:
    """Divide by the number of micro-batches of this batch."""
    accumulate = GradientStep.accumulate

    def noting(self: GradientStep, batch: Any, *rest: Any) -> Any:
        Objective.micro_batches = len(batch.micro_batches)
        return accumulate(self, batch, *rest)

    with (
        mock.patch.object(GradientStep, "accumulate", noting),
        mock.patch.object(Objective, "micro_batches", 1, create=True),
        mock.patch.object(Objective, "forward", _means(lambda objective: objective.micro_batches)),
    ):
        yield


@contextlib.contextmanager
def divide_by_nominal_micro_batches() -> Iterator[None]:
    """Divide by the number of micro-batches of a full batch, K, also in the smaller last batch."""
    accumulate = GradientStep.accumulate

    def noting(self: GradientStep, batch: Any, *rest: Any) -> Any:
        Objective.micro_batches = max(Objective.micro_batches, len(batch.micro_batches))
        return accumulate(self, batch, *rest)

    with (
        mock.patch.object(GradientStep, "accumulate", noting),
        mock.patch.object(Objective, "micro_batches", 1, create=True),
        mock.patch.object(Objective, "forward", _means(lambda objective: objective.micro_batches)),
    ):
        yield


@contextlib.contextmanager
def schedule_counts_every_rank() -> Iterator[None]:
    """Step the schedule once per rank, W times per optimizer step."""
    rate = Optimizer.rate

    def faster(self: Optimizer, step: int) -> float:
        return rate(self, step * 2)

    with mock.patch.object(Optimizer, "rate", faster):
        yield


@contextlib.contextmanager
def forward_outside_no_sync() -> Iterator[None]:
    """Run forward in sync mode and only backward inside no_sync: DDP reads the flag in forward."""
    call = Reducer.forward

    def forward(self: Reducer, *arguments: Any, **options: Any) -> Any:
        ddp = self.ddp
        before, ddp.require_backward_grad_sync = ddp.require_backward_grad_sync, True
        try:
            return call(self, *arguments, **options)
        finally:
            ddp.require_backward_grad_sync = before

    with mock.patch.object(Reducer, "forward", forward):
        yield


@contextlib.contextmanager
def loss_of_rank_0() -> Iterator[None]:
    """Log the loss of the last micro-batch of rank 0."""
    in_order = GradientStep._in_order

    def last_only(self: GradientStep, sums: Any) -> list[torch.Tensor]:
        return [term * float(self._ranks.first) for term in in_order(self, sums)]

    with mock.patch.object(GradientStep, "_in_order", last_only):
        yield


@contextlib.contextmanager
def optimizer_not_restored() -> Iterator[None]:
    with mock.patch("lockstep.engine.loop.assembly.restore_optimizer"):
        yield


@contextlib.contextmanager
def model_not_restored() -> Iterator[None]:
    with mock.patch("lockstep.engine.loop.assembly.restore_model"):
        yield


@contextlib.contextmanager
def sampler_not_restored() -> Iterator[None]:
    """Begin with the first batch's items again."""
    micro_batches = _Planned.micro_batches

    with mock.patch.object(
        _Planned, "micro_batches", lambda self, step: micro_batches(self, step - self._first_step)
    ):
        yield


@contextlib.contextmanager
def schedule_not_restored() -> Iterator[None]:
    """Count the schedule from the start of this process."""
    update, rate = Optimizer.update, Optimizer.rate

    def since(self: Optimizer, step: int, *rest: Any) -> None:
        vars(self).setdefault("first_step", step)
        update(self, step, *rest)

    with (
        mock.patch.object(Optimizer, "update", since),
        mock.patch.object(
            Optimizer, "rate", lambda self, step: rate(self, step - vars(self).get("first_step", 0))
        ),
    ):
        yield


@contextlib.contextmanager
def buffers_not_restored() -> Iterator[None]:
    """Restore the parameters, and none of the model's buffers."""

    def parameters_alone(model: torch.nn.Module, state: dict[str, Any]) -> None:
        names = dict(model.named_parameters())
        model.load_state_dict(
            {key: value for key, value in state["model"].items() if key in names}, strict=False
        )

    with mock.patch("lockstep.engine.loop.assembly.restore_model", parameters_alone):
        yield


@contextlib.contextmanager
def parameters_in_another_order() -> Iterator[None]:
    """Reverse the parameters in the groups of the task."""
    param_groups = Task.param_groups

    def turned(self: Task, model: torch.nn.Module) -> Any:
        return [
            {**group, "params": group["params"][::-1]}
            for group in reversed(param_groups(self, model))
        ]

    with mock.patch.object(Task, "param_groups", turned):
        yield


@contextlib.contextmanager
def items_of_chance() -> Iterator[None]:
    """Let items draw from a generator of their own, so that no item is the same twice."""
    fetch, chance = Items.__getitem__, torch.Generator()

    def disturbed(self: Items, index: int) -> Any:
        ids, x, *rest = fetch(self, index)
        return [ids, x + torch.rand(x.shape, generator=chance), *rest]

    with mock.patch.object(Items, "__getitem__", disturbed):
        yield


@contextlib.contextmanager
def not_exportable() -> Iterator[None]:
    with mock.patch(
        "lockstep.engine.checkpoints.export.parts", side_effect=NotExportableError("for a test")
    ):
        yield


@contextlib.contextmanager
def penalty_in_every_micro_batch() -> Iterator[None]:
    forward = Objective.forward

    def every(self: Objective, batch: Any, scales: Any, *, penalize: bool) -> Any:
        return forward(self, batch, scales, penalize=True)

    with mock.patch.object(Objective, "forward", every):
        yield


@contextlib.contextmanager
def buckets_not_fixed() -> Iterator[None]:
    """Warm up without synchronisation, so that DDP rebuilds its buckets after the first step of
    every start."""
    warm_up = GradientStep.warm_up

    def local(self: GradientStep, masked: Any, **_: Any) -> None:
        with self._strategy.micro_batch(last=False):
            warm_up(self, masked)

    with mock.patch.object(GradientStep, "warm_up", local):
        yield


@contextlib.contextmanager
def masks_by_micro_batch() -> Iterator[None]:
    """Drop by the position in the micro-batch, as a generator seeded once per micro-batch does.

    From the second step on: in the first, the check of the loss would find it.
    """
    begin_micro_batch = Masks.begin_micro_batch

    def micro_batch_only(self: Masks, step: int, position: int, samples: int) -> None:
        begin_micro_batch(self, step, 0 if step else position, samples)

    with mock.patch.object(Masks, "begin_micro_batch", micro_batch_only):
        yield


@contextlib.contextmanager
def ranks_count_the_same() -> Iterator[None]:
    """Average ranks without their weights."""
    after_update = LocalSGD.after_update

    def alike(self: LocalSGD, step: int, shard: float, **more: Any) -> None:
        after_update(self, step, 1.0, **more)

    with mock.patch.object(LocalSGD, "after_update", alike):
        yield


@contextlib.contextmanager
def own_state_forgotten() -> Iterator[None]:
    """Resume from the averages alone, even on the same number of ranks."""
    with mock.patch.object(LocalSGD, "load"), mock.patch.object(DiLoCo, "load"):
        yield


@contextlib.contextmanager
def reduced_in_every_micro_batch() -> Iterator[None]:
    """Reduce shards in each micro-batch, and add them up afterwards."""
    with mock.patch.object(FSDP, "_reduces"):
        yield


@contextlib.contextmanager
def norm_of_all_copies() -> Iterator[None]:
    """Add up the squares of all ranks, of which several have the same part."""
    mesh = FSDP._mesh

    def over_all(self: FSDP) -> Any:
        return mesh(self)[0], self.ranks.device_group

    with mock.patch.object(FSDP, "_mesh", over_all):
        yield


@contextlib.contextmanager
def statistics_of_each_rank() -> Iterator[None]:
    """Evaluate and save with the statistics of each rank."""
    with mock.patch("lockstep.engine.loop.trainer.average_statistics"):
        yield


@contextlib.contextmanager
def together(*changes: Callable[[], contextlib.AbstractContextManager[None]]) -> Iterator[None]:
    """Apply several changes at once."""
    with contextlib.ExitStack() as stack:
        for change in changes:
            stack.enter_context(change())
        yield
