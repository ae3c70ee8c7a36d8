r"""The gradient of one batch, out of micro-batches: exact for any number of both and of ranks.

With losses as sums, W ranks, and N the weight of the whole batch over all ranks and micro-batches,
each micro-batch's loss is scaled by W / N. DDP averages over ranks, so the optimizer gets

    1/W Σ_ranks Σ_micro-batches  (W / N) ∇(sum of one)  =  ∇(sum over the whole batch) / N,

the gradient of the batch's mean, for any sizes of the micro-batches. A mean per micro-batch, or a
division by their number, would be a mean of means: wrong as soon as they differ. The penalty is
added in the last micro-batch of every rank; the average over ranks counts it once.

Not here: N, which arrives with the control operation of the step before
(``engine.runtime.control``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.autograd import Variable
from torch.utils.hooks import RemovableHandle

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.data.loader import MicroBatch, RankBatch, weights_of
from lockstep.engine.data.task_checks import require_dense
from lockstep.engine.model.layout import require_agreement
from lockstep.engine.model.normalization import masked_samples
from lockstep.engine.model.precision import Precision
from lockstep.engine.parallel.tensor import TensorParallel
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.control import Sums
from lockstep.engine.runtime.device import is_accelerator, module_of, to_device
from lockstep.engine.runtime.errors import BadSpecError, reason_of, release
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.timeline import Timeline
from lockstep.engine.state.inventory import Inventory
from lockstep.engine.state.step import StepState
from lockstep.engine.step.gradient_guard import GradientGuard
from lockstep.engine.step.requirements import arrivals, without_gradients
from lockstep.engine.strategies.base import Strategy
from lockstep.engine.task.dropout import Masks
from lockstep.engine.task.interface import Batch, Task


@dataclass(frozen=True)
class Accumulated:
    """Result of one rank's micro-batches."""

    sum_up: Callable[[], Sums]
    """Computes ``sums``, until the next micro-batches. Lazy: a forecast has no values."""
    out_of_memory: bool = False
    """True if some micro-batch did not fit: no rank has a gradient."""
    reduced: bool = True
    """True if every gradient of this rank was reduced."""
    overflow: bool = False
    """True if this rank's gradient is not finite, under a precision with loss scaling."""

    @property
    def sums(self) -> Sums:
        """Sum of each loss term over this rank's micro-batches."""
        return self.sum_up()


class GradientStep:
    """Runs a rank's micro-batches and leaves the whole batch's gradient in the parameters.

    Parameters
    ----------
    task : Task
    strategy : Strategy
    precision : Precision
    ranks : Ranks
    inventory : Inventory
    seed : int
    moved : iterable of str
        Names of the parameters that the task's loss changes by itself.
    tensor : TensorParallel, optional
        If the model is cut.
    """

    def __init__(
        self,
        task: Task,
        strategy: Strategy,
        precision: Precision,
        ranks: Ranks,
        inventory: Inventory,
        *,
        seed: int,
        moved: Iterable[str] = (),
        tensor: TensorParallel | None = None,
    ):
        self._task, self._strategy, self._precision = task, strategy, precision
        self._model, self._ranks, self._seed = strategy.model, ranks, seed
        # The ranks of a tensor group wait inside the forward, which cannot be drained.
        self._tensor, self.drains = tensor, tensor is None and strategy.repeats
        self._on_device = is_accelerator(ranks.device)
        self.masks = Masks(strategy.model, seed=seed, device=ranks.device)
        """Masks of the model's ``lockstep.Dropout`` layers."""
        self._guard = GradientGuard(strategy.model)
        self._guard.watch_optimizers()
        self.state = StepState(inventory, moved)
        self._inventory = inventory
        self._on_last_gradient: Callable[[], None] | None = None
        self._hook: RemovableHandle | None = None
        self._masked_samples = masked_samples(strategy.model)
        self._counted: list[Tensor] = []
        """Terms of this step's micro-batches so far, without empty ones."""
        self._sums: Sums | None = None
        self._reuses = True
        """True if steps are assumed to have several micro-batches, as the last one had."""
        self.meanwhile: Callable[[], None] = lambda: None
        """Work on the host while the rank waits for the gradients of others. It raises nothing."""
        self.terms: tuple[str, ...] = ()
        self.stages = 1
        self.draws_on_host = False
        """True if the model draws from the host's generators; known after the warm-up."""
        self.seeds_host = False
        """True if the host's generators belong to the model (see ``engine.runtime.randomness``)."""

    def warm_up(self, masked: Batch, *, keep: frozenset[str] = frozenset()) -> bool:
        """Run a few masked passes, which fix DDP's buckets.

        All ranks must call this, at the start and after a reset. Objects named in ``keep`` stay if
        the passes make them.

        Returns whether the sample used every parameter. If not, the strategy tracks usage from here
        on.

        DDP reduces its first backward in one bucket and rebuilds the buckets in the order in which
        gradients arrive. After these passes a resumed run adds up in the same order as the run that
        it continues. They also show the terms of the loss, the parameter whose gradient is last,
        and whether the model draws random numbers.
        """
        complete = True
        before = randomness.host_state()
        batch = to_device(masked, self._ranks.device)
        with randomness.unchanged_generators(self._ranks.device), self.state.warm_up(keep):
            for _ in range(self._strategy.warm_up_passes):
                for parameter in self._model.parameters():
                    # The forward that rebuilds the buckets would replace a view of a bucket.
                    parameter.grad = None
                with arrivals(self._model) as arrived:
                    self._strategy.begin_reduction()
                    sums = self._masked_pass(batch)
                    complete = self._strategy.finish_reduction()
                if not complete:
                    break
            self.draws_on_host = randomness.host_state() != before
        self.terms = sums
        weights_of(self._task.weight(masked), self.terms)
        self.masks.end()
        require_dense(self._model)
        require_agreement(self._model.named_parameters())
        complete = complete and all(
            p.grad is not None for p in self._model.parameters() if p.requires_grad
        )
        if not complete and not self._strategy.tracks_usage:
            self._strategy.reset(track_usage=True)
        self._reuses = True
        self.discard()
        if self._ranks.world_size > 1 and self._hook is None:
            self._hook = arrived[-1].register_post_accumulate_grad_hook(self._last_gradient)  # type: ignore[no-untyped-call]
        return complete

    def _masked_pass(self, batch: Batch) -> tuple[str, ...]:
        """Run forward and backward of a masked batch; return the terms of the loss."""
        self.masks.begin_micro_batch(0, 0, self._masked_samples)
        seen = self._guard.look()
        weights = self._inventory.weights_of_task()
        objective, sums = self._strategy.forward(batch, None, penalize=True)
        self._guard.require_unchanged(seen)
        self.masks.begin_backward()
        with without_gradients(weights):
            objective.backward()  # type: ignore[no-untyped-call]
        return tuple(sums)

    def accumulate(
        self, batch: RankBatch, divisors: tuple[float, ...], timeline: Timeline
    ) -> Accumulated:
        """Run all micro-batches; the last one reduces the gradient. All ranks must call this.

        Under a strategy that can repeat a step, a rank that runs out of memory reports that in the
        result.

        Parameters
        ----------
        batch : RankBatch
        divisors : tuple of float
            Units of each loss term in the whole batch, over all ranks and micro-batches.
        timeline : Timeline
        """
        strategy = self._strategy
        scales = {
            term: self._factor(whole, own)
            for term, whole, own in zip(self.terms, divisors, batch.weights, strict=True)
        }
        self._counted, self._sums = [], None
        self.state.begin(batch.step)
        # From here on, unsent gradients belong to this step: a rank that fails at once drains all.
        strategy.begin_reduction(counted=sum(divisors) > 0)
        reused, self._reuses = self._reuses, len(batch.micro_batches) > 1
        if reused and not self._reuses:
            # Adding to leftovers would change the rounding of a single micro-batch.
            self.discard()
        self._guard.open()
        try:
            reduced = self._reduced(batch, scales, timeline)
            self._settle()
        finally:
            self._on_last_gradient = None
            self.masks.end()
            self._guard.shut()
        if reduced is None:
            return Accumulated(self.nothing, out_of_memory=True)
        overflow = self._precision.unscale(self._model.parameters())
        return Accumulated(self._total, reduced=reduced, overflow=overflow)

    def _reduced(
        self, batch: RankBatch, scales: Mapping[str, float], timeline: Timeline
    ) -> bool | None:
        """Return whether every gradient was reduced; None if a micro-batch did not fit."""
        try:
            self._run_micro_batches(batch, scales, timeline)
            return self._strategy.finish_reduction()
        except Exception as error:
            if not self.drains or reason_of(error) is not Reason.OUT_OF_MEMORY:
                raise
            release(error)
            self._strategy.drain()
            return None

    def rehearse(self, batch: Batch, samples: int, count: int = 1) -> None:  # noqa: ARG002 - for stages
        """Run a masked micro-batch on this rank alone, or ``count`` of them on all stages.

        It leaves gradients of zero, and changes that the model makes by itself.
        """
        try:
            with self._strategy.micro_batch(last=False):
                self.masks.begin_micro_batch(0, 0, samples)
                on_device = to_device(batch, self._ranks.device)
                objective, _ = self._strategy.forward(on_device, None, penalize=True)
                self.masks.begin_backward()
                self._precision.scaled(objective).backward()  # type: ignore[no-untyped-call]
        finally:
            self.masks.end()

    @property
    def model(self) -> nn.Module:
        """The user's model."""
        return self._model

    def require_kept(self) -> None:
        """The gradient that ``accumulate`` left must still be there when it is used."""
        self._guard.require_kept()

    def nothing(self) -> Sums:
        """Return the sums of a rank without micro-batches."""
        if not self._on_device:
            return (0.0,) * len(self.terms)
        return torch.zeros(len(self.terms), dtype=torch.float64, device=self._ranks.device)

    def _run_micro_batches(
        self, batch: RankBatch, scales: Mapping[str, float], timeline: Timeline
    ) -> None:
        *others, last = batch.micro_batches
        for index, micro_batch in enumerate(others):
            self._run_micro_batch(batch.step, index, micro_batch, scales, timeline, last=False)
            timeline.mark("backward", then="forward")
        self._on_last_gradient = partial(self._begin_to_wait, timeline)
        self._run_micro_batch(batch.step, len(others), last, scales, timeline, last=True)
        timeline.mark("communication" if self._ranks.world_size > 1 else "backward", then="data")

    def _settle(self) -> None:
        """Complete the gradient over the ranks of one copy of the model."""
        if self._tensor is not None:
            self._tensor.settle()

    def _factor(self, whole: float, own: float) -> float:
        """Return the factor of a term's sum before backward.

        With this factor the optimizer receives the gradient of the mean over the batch.

        Parameters
        ----------
        whole : float
            The term's weight over the whole batch, all ranks.
        own : float
            The term's weight in this rank's shard of the batch.
        """
        if self._strategy.steps_alone:
            return 1 / own if own > 0 else 0.0
        return self._ranks.world_size / whole if whole > 0 else 0.0

    def _total(self) -> Sums:
        """Return each term's sum over this step's micro-batches, once all of them are counted."""
        if self._sums is None:
            self._sums = self._added_up() if self._counted else self.nothing()
        return self._sums

    def _added_up(self) -> Sums:
        on_host = not self._on_device
        if on_host and len(self._counted) == len(self.terms):
            return tuple(map(float, self._counted))
        # All at once: a rank has up to hundreds of micro-batches, and each small operation costs as
        # much as a large one.
        sums = torch.stack(self._counted).to(torch.float64).view(-1, len(self.terms)).sum(0)
        return tuple(sums.tolist()) if on_host else sums

    def _run_micro_batch(
        self,
        step: int,
        index: int,
        micro_batch: MicroBatch,
        scales: Mapping[str, float],
        timeline: Timeline,
        *,
        last: bool,
    ) -> None:
        """Forward and backward of one micro-batch."""
        self._seed_micro_batch(step, index)
        self.masks.begin_micro_batch(
            step, micro_batch.position, micro_batch.samples or self._masked_samples
        )
        batch = to_device(micro_batch.batch, self._ranks.device)
        # Forward and backward in the same mode: DDP reads it in forward.
        if micro_batch.samples:
            with self._strategy.micro_batch(last=last):
                self._differentiate(batch, scales, timeline, last=last)
            return
        with self.state.unchanged(), self._strategy.micro_batch(last=last, empty=True):
            self._differentiate(batch, {}, timeline, last=last)

    def _differentiate(
        self, batch: Batch, scales: Mapping[str, float], timeline: Timeline, *, last: bool
    ) -> None:
        seen = self._guard.look()
        objective, sums = self._strategy.forward(batch, scales, penalize=last)
        self._guard.require_unchanged(seen)
        terms = self._in_order(sums)
        if scales:
            # Before backward, because the message may be sent with the gradient.
            self._counted += terms
        timeline.mark("forward", then="backward")
        self.masks.begin_backward()
        self._precision.scaled(objective).backward()  # type: ignore[no-untyped-call]

    def track_usage(self, masked: Batch) -> None:
        """Forget a step that did not use every parameter on a rank. All ranks must call this."""
        self.abandon(masked, track_usage=True)

    def abandon(self, masked: Batch, *, track_usage: bool = False) -> None:
        """Forget a step that some rank could not finish. All ranks must call this."""
        self.discard()
        self._strategy.reset(track_usage=track_usage)
        if self._on_device:
            module_of(self._ranks.device).empty_cache()
        self.warm_up(masked)

    def discard(self) -> None:
        """Drop the gradient; the next micro-batch starts a new one."""
        self._strategy.discard(reuse=self._reuses)

    def close(self) -> None:
        """Drop the strategy's wrapper."""
        self._guard.close()
        if self._hook is not None:
            self._hook.remove()
        self._strategy.close()

    def _in_order(self, sums: Mapping[str, Tensor]) -> list[Tensor]:
        if tuple(sums) != self.terms:
            raise BadSpecError(
                f"loss() returned the terms {sorted(sums)} after {sorted(self.terms)}: the "
                "terms must be the same in every micro-batch",
            )
        return list(sums.values())

    def _seed_micro_batch(self, step: int, index: int) -> None:
        if not (self._on_device or self.seeds_host):
            return
        seed = randomness.seed_of(randomness.MICRO_BATCH, self._seed, step, self._ranks.rank, index)
        randomness.seed_device(seed, self._ranks.device)
        if self.seeds_host:
            randomness.seed_host(seed)

    def _begin_to_wait(self, timeline: Timeline) -> None:
        timeline.mark("backward", then="communication")
        if not self._on_device:
            # After the reduction of the last gradients has begun, and before DDP waits for it.
            Variable._execution_engine.queue_callback(self.meanwhile)

    def _last_gradient(self, _: Tensor) -> None:
        """The last gradient of a backward is there: from here on, the rank waits for others."""
        if self._on_last_gradient is not None:
            self._on_last_gradient()
