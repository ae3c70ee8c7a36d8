r"""The gradient of one batch, out of slots: exact for any number of ranks and slots.

With losses as sums, W ranks, and N the weight of the whole batch over all ranks and slots, each slot's loss is scaled
by W / N. DDP averages over ranks, so what the optimizer sees is

    1/W Σ_ranks Σ_slots  (W / N) ∇(sum of the slot)  =  ∇(sum over the whole batch) / N,

the gradient of the batch's mean, whatever the slots' sizes are. A mean per slot, or a division by the number of slots,
would be a mean of means: wrong as soon as slots differ. The penalty is added in the last slot of every rank; the
average over ranks counts it once.

Not here: N, which arrives with the control operation of the step before (``engine.control``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from domain.outcomes import Reason
from engine import randomness
from engine.errors import EngineError
from engine.loader import RankBatch, weights_of
from engine.ranks import Ranks
from engine.replicas import Objective, Replicas
from engine.task import Batch, Task
from engine.timeline import Timeline


class GradientStep:
    """Runs a rank's slots and leaves the whole batch's gradient in the parameters."""

    def __init__(self, task: Task, model: nn.Module, ranks: Ranks, *, seed: int, bucket_cap_mb: float | None):
        self._model, self._ranks, self._seed = model, ranks, seed
        self._task = task
        self._replicas = Replicas(Objective(task, model), ranks, bucket_cap_mb=bucket_cap_mb)
        self._on_last_gradient: Callable[[], None] | None = None
        self._hook: RemovableHandle | None = None
        self.terms: tuple[str, ...] = ()
        self.draws_on_host = False
        """Whether the model draws from the host's generators; known after the warm-up."""
        self.seeds_host = False
        """Whether the host's generators belong to the model (see ``engine.randomness``)."""

    def warm_up(self, masked: Batch) -> None:
        """Two masked passes, which fix DDP's buckets. All ranks must call this, once.

        DDP reduces its first backward in one bucket and then builds the buckets anew in the order in which gradients
        arrived. A run that resumes would add up in another order than the one it continues, and differ in the last
        bits from three ranks on; after these passes every start is alike. They also show which terms the loss has,
        which parameter gets its gradient last, and whether the model draws random numbers.
        """
        before = randomness.host_state()
        batch = to_device(masked, self._ranks.device)
        with unchanged_buffers(self._model):
            arrived: list[nn.Parameter] = []
            for _ in range(2):
                with _arrivals(self._model, arrived):
                    objective, sums = self._replicas(batch, None, penalize=True)
                    objective.backward()  # type: ignore[no-untyped-call]
        self.terms = tuple(sums)
        weights_of(self._task.weight(masked), self.terms)
        self.draws_on_host = randomness.host_state() != before
        self._require_gradients()
        for parameter in self._model.parameters():
            parameter.grad = None
        if self._ranks.world_size > 1:
            self._hook = arrived[-1].register_post_accumulate_grad_hook(self._last_gradient)  # type: ignore[no-untyped-call]

    def accumulate(self, batch: RankBatch, divisors: tuple[float, ...], timeline: Timeline) -> Tensor:
        """Run every slot; the gradient is reduced in the last one. All ranks must call this.

        Parameters
        ----------
        batch : RankBatch
        divisors : tuple of float
            Units of each loss term in the whole batch, over all ranks and slots.
        timeline : Timeline

        Returns
        -------
        Tensor of shape (terms,)
            Sum of each loss term over this rank's slots, float64, on the device.
        """
        world_size = self._ranks.world_size
        scales = {
            term: world_size / divisor if divisor > 0 else 0.0
            for term, divisor in zip(self.terms, divisors, strict=True)
        }
        total = torch.zeros(len(self.terms), dtype=torch.float64, device=self._ranks.device)
        for index, slot in enumerate(batch.slots):
            last = index == len(batch.slots) - 1
            empty = slot.samples == 0
            self._seed_slot(batch.step, index)
            micro_batch = to_device(slot.batch, self._ranks.device)
            # Forward and backward in the same mode: DDP reads it in forward.
            with nullcontext() if last else self._replicas.local(), unchanged_buffers(self._model, only_if=empty):
                objective, sums = self._replicas(micro_batch, None if empty else scales, penalize=last)
                timeline.mark("forward")
                if last:
                    self._on_last_gradient = lambda: timeline.mark("backward")
                objective.backward()  # type: ignore[no-untyped-call]
            timeline.mark("communication" if last and world_size > 1 else "backward")
            if not empty:
                total += self._stacked(sums)
        self._on_last_gradient = None
        return total

    def close(self) -> None:
        """Drop DDP's wrapper."""
        if self._hook is not None:
            self._hook.remove()
        self._replicas.close()

    def _stacked(self, sums: Mapping[str, Tensor]) -> Tensor:
        if tuple(sums) != self.terms:
            raise EngineError(
                Reason.BAD_SPEC,
                f"loss() returned the terms {sorted(sums)} after {sorted(self.terms)}: they must not change",
            )
        return torch.stack([term.to(torch.float64) for term in sums.values()])

    def _seed_slot(self, step: int, index: int) -> None:
        seed = randomness.seed_of(randomness.SLOT, self._seed, step, self._ranks.rank, index)
        randomness.seed_device(seed, self._ranks.device)
        if self.seeds_host:
            randomness.seed_host(seed)

    def _last_gradient(self, _: Tensor) -> None:
        """The last gradient of a backward is there: from here on, the rank only waits for the others."""
        if self._on_last_gradient is not None:
            self._on_last_gradient()

    def _require_gradients(self) -> None:
        missing = [
            name
            for name, parameter in self._model.named_parameters()
            if parameter.requires_grad and parameter.grad is None
        ]
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise EngineError(
                Reason.BAD_SPEC,
                f"the loss does not depend on {', '.join(missing[:5])}{more}: use these parameters in every loss, or freeze them with requires_grad_(False)",
            )


@contextmanager
def _arrivals(model: nn.Module, arrived: list[nn.Parameter]) -> Iterator[None]:
    """Note the parameters in the order in which their gradients come."""
    arrived.clear()
    hooks = [
        parameter.register_post_accumulate_grad_hook(arrived.append)  # type: ignore[no-untyped-call]
        for parameter in model.parameters()
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


@contextmanager
def unchanged_buffers(model: nn.Module, *, only_if: bool = True) -> Iterator[None]:
    """Put the model's buffers back at the end: a masked sample must leave no trace in running statistics."""
    kept = [(buffer, buffer.clone()) for buffer in model.buffers()] if only_if else []
    yield
    with torch.no_grad():
        for buffer, value in kept:
            buffer.copy_(value)


def to_device(batch: Batch, device: torch.device) -> Any:
    """A batch with its tensors on ``device``; what holds no tensors stays as it is."""
    if device.type == "cpu":
        return batch
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    if isinstance(batch, Mapping):
        return {key: to_device(value, device) for key, value in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(to_device(value, device) for value in batch))
    if isinstance(batch, tuple | list):
        return type(batch)(to_device(value, device) for value in batch)
    return batch.to(device) if hasattr(batch, "to") else batch
