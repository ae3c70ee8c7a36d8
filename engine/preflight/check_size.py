"""CheckSize of the additivity check in time and memory.

They count floating-point operations, not seconds: all ranks must decide alike, and a run must
decide as the one that it repeats.

Not here: the bound of the scan of samples (``engine.preflight.chosen_samples``).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch import nn

from lockstep.engine.memory.auto import available_bytes
from lockstep.engine.model.normalization import masked_samples
from lockstep.engine.preflight.trial_task import TrialTask, divided
from lockstep.engine.runtime import flops
from lockstep.engine.runtime.device import is_accelerator, module_of, traits_of
from lockstep.engine.runtime.errors import release
from lockstep.engine.task.interface import Task

SAMPLES_MIN: Final = 4
"""Samples that are compared even if they take longer."""
_FLOAT64: Final = 0.3
"""Part of ``check_flops_max`` of the device up to which a check computes in float64."""
_FREE: Final = 0.25
"""Part of the free memory that the copy and its gradient may take."""
_COPY_BYTES: Final = 16
"""Bytes for each number of a parameter in a copy, with its gradient."""


class CheckSize(NamedTuple):
    """Size of a check."""

    samples: int
    copies: bool
    """True to compute on a copy in float64, False to compute in place."""

    def smaller(self) -> CheckSize:
        """Return the next smaller size after a shortage of memory."""
        return CheckSize(self.samples if self.copies else self.samples // 2, copies=False)


def size_of_check(
    task: Task, model: nn.Module, sample: Any, samples: int, *, seed: int
) -> CheckSize:
    """Return the size of a check of at most ``samples`` samples.

    Runs forward and backward of one sample.
    """
    device = next(model.parameters()).device
    limit = traits_of(device).check_flops_max
    twice = 2 * _flops(task, model, sample, seed=seed)
    while samples > SAMPLES_MIN and twice * samples > limit:
        samples = max(SAMPLES_MIN, samples // 2)
    size = sum(parameter.numel() for parameter in model.parameters())
    fits = size * _COPY_BYTES <= _FREE * _free_bytes(device)
    return CheckSize(samples, copies=fits and twice * samples <= _FLOAT64 * limit)


def _flops(task: Task, model: nn.Module, sample: Any, *, seed: int) -> float:
    """Return the model FLOPs of one sample; 0 where they cannot be counted."""
    trial = TrialTask(task, model, None, seed=seed)
    try:
        copies = masked_samples(model)
        (piece,) = divided(trial.task, [sample] * copies, [copies])
        return flops.count(lambda: trial.add(piece)) / copies
    except Exception as error:  # noqa: BLE001 - the check comes next, and fails where this does
        release(error)
        return 0.0
    finally:
        trial.close()


def _free_bytes(device: torch.device) -> float:
    if is_accelerator(device):
        return float(module_of(device).mem_get_info(device)[0])
    return available_bytes()
