"""Runs of the pool's ranks for ``tests.engine.strategies.test_buckets``: a toy, with the addresses
of the gradients at each update.

Not here: the required results (``tests.engine.strategies.test_buckets``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lockstep.engine.runtime.ranks import Ranks
from tests.engine import cases
from tests.engine.toy import Toy


class Gradients(NamedTuple):
    """Gradients of one step."""

    count: int
    storages: frozenset[int]
    """Addresses of the storages that contain them."""


def where_gradients_lie(
    ranks: Ranks, settings: dict[str, Any], folder: Path
) -> tuple[list[Gradients], list[str]]:
    """Return the addresses at each update, and the parameters that had a gradient at the end."""
    found: list[Gradients] = []

    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        gradients = [
            p.grad
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        storages = {gradient.untyped_storage().data_ptr() for gradient in gradients}
        found.append(Gradients(len(gradients), frozenset(storages)))

    hook = register_optimizer_step_pre_hook(look)
    try:
        seen = cases.train(ranks, Toy(), settings, folder)
    finally:
        hook.remove()
    return found, seen.left_over
