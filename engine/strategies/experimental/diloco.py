"""``diloco``: local steps, and a synchronisation that is an optimizer step of its own (arXiv 2311.08105).

Each rank trains on by itself as under ``local_sgd``. Every ``sync_every_steps`` steps the way from the parameters of the
last synchronisation to the ranks' average is taken for a gradient, and given to SGD with Nesterov momentum:

    d = θ - Σ_r w_r p_r,    m = μ m + d,    θ = θ - λ (d + μ m),    and every rank goes on from θ.

Inner AdamW, H = 500, λ = 0.7 and μ = 0.9 are the paper's; its ranks count the same, ours by the weight that they trained
on. With λ = 1 and μ = 0 this is ``local_sgd``. θ and m are the same on all ranks, and each keeps both: two more copies of
the parameters. They are in the checkpoint, and any number of ranks goes on with them.

Not here: the steps in between, the norm, and what a checkpoint holds of each rank (``engine.strategies.experimental.local_sgd``).
"""

from __future__ import annotations

from typing import ClassVar, Final

import torch
from torch import Tensor

from lockstep.domain.spec import job
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.base import State
from lockstep.engine.strategies.block_order import Usage
from lockstep.engine.strategies.experimental.averaging import on_host
from lockstep.engine.strategies.experimental.local_sgd import LocalSGD

OUTER_LR: Final = 0.7
OUTER_MOMENTUM: Final = 0.9


class DiLoCo(LocalSGD):
    """Local steps, and an outer step with momentum every so many of them."""

    lost_promise: ClassVar[str] = (
        "each rank steps on its own share of the batch, and every sync_every_steps an outer step follows what they have in "
        "common: the gradient is not the whole batch's, and the run depends on how many ranks share it"
    )

    def __init__(self, objective: Objective, ranks: Ranks, options: job.Strategy, usage: Usage | None = None):
        super().__init__(objective, ranks, options, usage)
        self._lr = OUTER_LR if options.outer_lr is None else options.outer_lr
        self._decay = OUTER_MOMENTUM if options.outer_momentum is None else options.outer_momentum
        self._start = [parameter.detach().clone() for parameter in self._trained]
        """The parameters after the last synchronisation."""
        self._momentum = [torch.zeros_like(value) for value in self._start]

    def settle(self) -> None:
        if self._steps_apart:
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

    def extra_state(self) -> State:
        state = super().extra_state()
        if self._steps_apart:
            state |= {"start": on_host(self._start), "momentum": on_host(self._momentum)}
        return state

    def load_extra(self, state: State) -> None:
        super().load_extra(state)
        if self._steps_apart:
            for mine, saved in zip((*self._start, *self._momentum), (*state["start"], *state["momentum"]), strict=True):
                mine.copy_(saved)

    def _synchronised(self) -> list[Tensor]:
        return self._outer_step()[0]

    def _outer_step(self) -> tuple[list[Tensor], list[Tensor]]:
        """Parameters and momentum after an outer step now. Nothing is changed. All ranks must call this."""
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
