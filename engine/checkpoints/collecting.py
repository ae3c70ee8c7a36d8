"""State of the whole model and optimizer, out of the slices and stages that ranks hold.

Not here: shards, which each strategy collects (``engine.strategies``), and the way back
(``engine.checkpoints.restoring``).
"""

from __future__ import annotations

import torch

from lockstep.engine.checkpoints.contents import State
from lockstep.engine.data import fingerprint
from lockstep.engine.parallel.staged import StageParallel
from lockstep.engine.parallel.tensor import TensorParallel
from lockstep.engine.strategies.base import Strategy


def whole_state(
    strategy: Strategy,
    optimizer: torch.optim.Optimizer,
    tensor: TensorParallel | None,
    stage: StageParallel | None,
) -> tuple[State, State, list[list[str]]]:
    """Return the state of the whole model and optimizer, and its parameters in each group."""
    model, inner = strategy.model_state(), strategy.optimizer_state(optimizer)
    groups = fingerprint.parameter_order(strategy.model, optimizer)
    names = [name for members in groups for name in members]
    if tensor is not None:
        model, inner = tensor.whole_model(model), tensor.whole_optimizer(inner, names)
    if stage is not None:
        model, inner = stage.whole_model(model), stage.whole_optimizer(inner, names)
        groups = [members for _, members in stage.whole.groups]
    return model, inner, groups
