"""``diloco``: local steps with an outer optimizer step at each synchronisation (arXiv 2311.08105).

Each rank trains separately as under ``local_sgd``. Every ``sync_every_steps`` steps, the difference
between the parameters of the last synchronisation and the ranks' average serves as the gradient of
SGD with Nesterov momentum:

    d = θ - Σ_r w_r p_r,    m = μ m + d,    θ = θ - λ (d + μ m),    and every rank continues from θ.

Inner AdamW, H = 500, λ = 0.7 and μ = 0.9 are the paper's values. The paper weights ranks equally;
this implementation weights them by the batch weight that they trained on. With λ = 1 and μ = 0 this
is ``local_sgd``. θ and m are the same on all ranks, and each rank keeps both: two more copies of
the parameters. Both are in the checkpoint and resume on any number of ranks.

Not here: the local steps, the norm, the state of each rank in a checkpoint
(``engine.strategies.experimental.local_sgd``).
"""

from __future__ import annotations

from typing import ClassVar, Final

import torch
from torch import Tensor

from lockstep.domain.spec import job
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.base import State
from lockstep.engine.strategies.block_order import ModelUsage
from lockstep.engine.strategies.experimental.averaging import on_host
from lockstep.engine.strategies.experimental.local_sgd import LocalSGD

OUTER_LR: Final = 0.7
OUTER_MOMENTUM: Final = 0.9


class DiLoCo(LocalSGD):
    """Local steps with an outer momentum step every ``sync_every_steps`` steps."""

    lost_promise: ClassVar[str] = (
        "each rank steps on its own shard of the batch, and every sync_every_steps an outer step "
        "applies their average change: the gradient is not the whole batch's, and the run "
        "depends on the number of ranks"
    )

    def __init__(
        self,
        objective: Objective,
        ranks: Ranks,
        options: job.Strategy,
        usage: ModelUsage | None = None,
    ):
        super().__init__(objective, ranks, options, usage)
        self._lr = OUTER_LR if options.outer_lr is None else options.outer_lr
        self._decay = OUTER_MOMENTUM if options.outer_momentum is None else options.outer_momentum
        self._start = [parameter.detach().clone() for parameter in self._trained]
        """Parameters after the last synchronisation."""
        self._momentum = [torch.zeros_like(value) for value in self._start]

    def _synchronise(self) -> None:
        self._start, self._momentum = self._outer_step()
        for parameter, value in zip(self._trained, self._start, strict=True):
            parameter.data.copy_(value)
        self._steps_apart, self._weight = 0, 0.0

    def optimizer_state(self, optimizer: torch.optim.Optimizer) -> State:
        momentum = self._outer_step()[1] if self._steps_apart else self._momentum
        return {**super().optimizer_state(optimizer), "outer_momentum": momentum}

    def load_optimizer(self, optimizer: torch.optim.Optimizer, state: State) -> None:
        super().load_optimizer(optimizer, state)
        for mine, saved in zip(self._momentum, state.get("outer_momentum", []), strict=False):
            mine.copy_(saved)

    def save(self) -> State:
        state = super().save()
        if self._steps_apart:
            state |= {"start": on_host(self._start), "momentum": on_host(self._momentum)}
        return state

    def load(self, state: State) -> None:
        super().load(state)
        if self._steps_apart:
            for mine, saved in zip(
                (*self._start, *self._momentum), (*state["start"], *state["momentum"]), strict=True
            ):
                mine.copy_(saved)

    def _synchronised(self) -> list[Tensor]:
        return self._outer_step()[0]

    def _outer_step(self) -> tuple[list[Tensor], list[Tensor]]:
        """Return the parameters and momentum that an outer step now would produce.

        Nothing is changed. All ranks must call this.
        """
        means = self._average()
        if not means:
            return self._start, self._momentum
        parameters, momenta = [], []
        for start, mean, momentum in zip(self._start, means, self._momentum, strict=True):
            difference = start - mean
            moved = self._decay * momentum + difference
            momenta.append(moved)
            parameters.append(start - self._lr * (difference + self._decay * moved))
        return parameters, momenta
