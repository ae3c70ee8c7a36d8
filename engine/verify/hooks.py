"""Orders of a verification inside a rank: other first weights, and a kill.

Not here: the orders as text (``domain.verify.orders``), the resume from another job's checkpoint
(``engine.checkpoints.state``).
"""

from __future__ import annotations

import os
import signal
from typing import Final

import torch
from torch import nn

from lockstep.domain.spec.train import Train
from lockstep.domain.verify.orders import VerifyOrder

_ROUNDED: Final = {
    "bf16": torch.finfo(torch.bfloat16).eps,
    "fp16": torch.finfo(torch.float16).eps,
    "tf32": 2.0**-10,
}
"""Relative spacing of the formats that forward, backward or the exchange of gradients round to."""


def start_one_ulp_away(model: nn.Module, train: Train, *, tf32: bool) -> None:
    """Add one to two units in the last place to each weight.

    The unit is that of the coarsest format of the run: under ``precision: bf16`` the last place of
    a float32 is rounded away, and the twin would show nothing. Zeros stay. Adding, instead of
    scaling, also changes a model whose layers are normalised. ``tf32`` is true if the device uses
    it.
    """
    used = (train.precision, train.strategy.compression, "tf32" if tf32 else "")
    rounded = max(_ROUNDED.get(name, 0.0) for name in used)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.is_floating_point():
                unit = max(rounded, torch.finfo(weight.dtype).eps)
                weight.add_(weight.abs(), alpha=unit)


def kill_if_ordered(order: VerifyOrder, *, step: int, started_at: int) -> None:
    """End this rank by SIGKILL after the ordered step, unless the run was resumed."""
    if order.kill_after == step and not started_at:
        os.kill(os.getpid(), signal.SIGKILL)
