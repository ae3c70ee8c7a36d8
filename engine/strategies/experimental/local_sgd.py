"""``local_sgd``: local optimizer steps on each rank, with periodic averaging of the parameters.

Each rank steps on its own shard of the batch (Stich 2018, arXiv 1805.09767). Between averages,
ranks send only the control operation and one number, the norm. The average weights each rank by the
batch weight that it trained on since the last average. With a synchronisation after every step,
plain SGD, no clipping, and a loss of one term, this is ``ddp``:

    Σ_r s_r (p - lr g_r)  =  p - lr Σ_r s_r g_r,

where s_r is rank r's part of the batch's weight and g_r the mean gradient over its shard. Otherwise
the results differ: moments stay with their rank, clipping uses the rank's own norm, and Adam's
denominator is not that of the whole batch's gradient. The run depends on the number of ranks.

* The logged norm is the weighted root mean square of the ranks' norms. It is equal on all ranks,
  and at least the norm of the mean gradient. A rank whose shard has no weight makes no step.
* An evaluation or a checkpoint uses the parameters that a synchronisation would produce now, and
  does not change the ranks. Its cadence therefore has no effect on the run. The state of each rank
  is saved too. On the same number of ranks a run resumes bit for bit, also between two
  synchronisations. On another number, all ranks start from the averages.

Not here: averaging of tensors (``engine.strategies.experimental.averaging``), the outer optimizer
step (``engine.strategies.experimental.diloco``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import torch
from torch import Tensor

from lockstep.domain.spec import job
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.base import Evaluate, Forward, Groups, Norm, State, Strategy
from lockstep.engine.strategies.block_order import ModelUsage
from lockstep.engine.strategies.experimental.averaging import average, averaged_moments, on_host
from lockstep.engine.task.interface import Batch


class LocalSGD(Strategy):
    """Local steps with an average of the parameters every ``sync_every_steps`` steps."""

    lost_promise: ClassVar[str] = (
        "each rank steps on its own shard of the batch, and ranks are averaged only every "
        "sync_every_steps: the gradient is not the whole batch's, and the run depends on the "
        "number of ranks"
    )
    repeats: ClassVar[bool] = True
    saves_together: ClassVar[bool] = True
    replicated: ClassVar[bool] = False
    steps_alone: ClassVar[bool] = True

    _inner: torch.optim.Optimizer

    def __init__(
        self,
        objective: Objective,
        ranks: Ranks,
        options: job.Strategy,
        usage: ModelUsage | None = None,
    ):
        super().__init__(objective, ranks, options, usage)
        self.rank_state = self
        self._every = options.sync_every_steps or 1
        self._steps_apart = 0  # Since the last synchronisation; the same on all ranks.
        self._weight = 0.0  # Sum of this rank's weight shares of these steps.

    def forward(
        self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool
    ) -> Forward:
        result: Forward = self.objective(batch, scales, penalize=penalize)
        return result

    def drain(self) -> None:
        """Do nothing. No other rank waits in a backward."""

    @contextmanager
    def micro_batch(self, *, last: bool, empty: bool = False) -> Iterator[None]:  # noqa: ARG002 - as in the base class
        clears = empty and not self.objective.has_penalty
        untouched = [p for p in self._trained if p.grad is None] if clears else []
        yield
        for parameter in untouched:
            parameter.grad = None  # Zeros would still cause decay and momentum updates.

    def optimizer(
        self, build: Callable[[Groups], torch.optim.Optimizer], groups: Groups
    ) -> torch.optim.Optimizer:
        self._inner = build(groups)
        return self._inner

    def norm(self, gradients: list[Tensor], share: float) -> Norm:
        own = super().norm(gradients, share).whole
        mean_square = own.double() ** 2 * share
        self.ranks.sum_on_device(mean_square)
        return Norm(mean_square.sqrt().to(own.dtype), own if share > 0 else None)

    def after_update(
        self,
        step: int,
        share: float,
        *,
        refused: bool | Tensor,  # noqa: ARG002 - as in the base class
        last: bool = False,
    ) -> None:
        self._steps_apart += 1
        self._weight += share
        if last or (step + 1) % self._every == 0:
            self._synchronise()

    @contextmanager
    def evaluation(self) -> Iterator[Evaluate]:
        with self._averaged(), super().evaluation() as evaluate:
            yield evaluate

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """Return a context in which the model has the parameters of a synchronisation now.

        All ranks must enter it.
        """
        if not self._steps_apart:
            yield
            return
        own = [parameter.data for parameter in self._trained]
        self._show(self._synchronised())
        try:
            yield
        finally:
            self._show(own)

    def _synchronise(self) -> None:
        """Continue from the parameters of a synchronisation. All ranks must call this."""
        for parameter, value in zip(self._trained, self._synchronised(), strict=True):
            parameter.data.copy_(value)
        self._steps_apart, self._weight = 0, 0.0

    def model_state(self) -> State:
        with self._averaged():
            return self.model.state_dict()

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> State:
        """Return rank 0's state with the moments averaged over the ranks.

        A run on another number of ranks starts from it.
        """
        state = optimizer.state_dict()
        return {**state, "state": averaged_moments(self.ranks, state["state"])}

    def save(self) -> State:
        """Return the parameters, moments and counters of this rank."""
        own = {
            "optimizer": self._inner.state_dict(),
            "steps_apart": self._steps_apart,
            "weight": self._weight,
        }
        if self._steps_apart:
            own["parameters"] = [parameter.data for parameter in self._trained]
        state: State = on_host(own)
        return state

    def load(self, state: State) -> None:
        """Restore the result of ``save``."""
        Strategy.load_optimizer(self, self._inner, state["optimizer"])
        self._steps_apart, self._weight = state["steps_apart"], state["weight"]
        if self._steps_apart:
            for parameter, value in zip(self._trained, state["parameters"], strict=True):
                parameter.data.copy_(value)

    def _synchronised(self) -> list[Tensor]:
        """Return the parameters that a synchronisation now would produce.

        All ranks must call this.
        """
        return self._average() or [parameter.data for parameter in self._trained]

    def _average(self) -> list[Tensor]:
        """Return the averaged parameters; empty if no batch had weight, so that no rank stepped."""
        whole = torch.tensor([self._weight], dtype=torch.float64)
        self.ranks.sum_on_host(whole)
        own = [parameter.data for parameter in self._trained]
        return average(self.ranks, own, self._weight / float(whole)) if whole else []

    def _show(self, values: list[Tensor]) -> None:
        for parameter, value in zip(self._trained, values, strict=True):
            parameter.data = value
