"""``data_parallel``: torch's older DataParallel, for comparison.

One process drives all GPUs of one node, as a single rank. In every micro-batch the model is copied
to each GPU, the samples are distributed, the forwards run in threads, and the gradients of the
copies are summed on the first GPU. It copies more than ``ddp`` (in each micro-batch instead of once
per step), runs in one Python process, and keeps all optimizer state on the first GPU.

A micro-batch of ``micro_size`` samples is split over all GPUs. The sums of all copies have the same
scales, so the sum of their gradients is the gradient of the micro-batch; nothing is averaged. The
penalty belongs to the step, so only the first copy adds it.

Limits: per-sample masks (``engine.task.dropout``) are not supported, because a copy has no indices
of its samples. Random numbers drawn on the other GPUs are not repeatable.

Not here: jobs that may use this strategy (``domain.spec.strategy``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lockstep.domain.spec import job
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.device import module_of, traits_of
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.base import Forward, Strategy
from lockstep.engine.strategies.block_order import ModelUsage
from lockstep.engine.task.dropout import Dropout
from lockstep.engine.task.interface import Batch


class DataParallel(Strategy):
    """torch DataParallel over the GPUs that this process may use."""

    repeats: ClassVar[bool] = True

    def __init__(
        self,
        objective: Objective,
        ranks: Ranks,
        options: job.Strategy,
        usage: ModelUsage | None = None,
    ):
        super().__init__(objective, ranks, options, usage)
        _require_one_process_with_gpus(ranks)
        _require_no_sample_dropout(self.model)
        self._parallel = self.wrapped()
        self._is_checked = False

    def wrapped(self) -> SummedDataParallel:
        """Wrap the objective for all GPUs that this process may use, which are those of the job."""
        first = self.ranks.device.index or 0
        count = module_of(self.ranks.device).device_count()
        return SummedDataParallel(self.objective, device_ids=list(range(first, count)))

    def forward(
        self, batch: Batch, scales: Mapping[str, float] | None, *, penalize: bool
    ) -> Forward:
        if not self._is_checked:  # The first batch is that of the warm-up, with one sample.
            require_samples_first(batch)
            self._is_checked = True
        result: Forward = self._parallel(batch, scales, penalize=penalize)
        return result

    def drain(self) -> None:
        """Do nothing. There is one rank, so no peer waits."""


class SummedDataParallel(nn.DataParallel[Objective]):
    """DataParallel of an objective that sums the scalars of the copies instead of stacking them."""

    def scatter(self, inputs: Any, kwargs: Any, device_ids: Any) -> tuple[Any, Any]:
        # Keywords are added afterwards: with them torch would also make copies for GPUs that have
        # no sample.
        scattered, _ = super().scatter(inputs, {}, device_ids)
        return scattered, [
            kwargs | {"penalize": kwargs["penalize"] and copy == 0}
            for copy in range(len(scattered))
        ]

    def gather(self, outputs: Sequence[Forward], output_device: int | torch.device) -> Forward:
        """Sum the objective and the sums by term on ``output_device``, differentiably."""
        objectives, sums = zip(*outputs, strict=True)
        return (
            torch.stack([objective.to(output_device) for objective in objectives]).sum(),
            {
                name: torch.stack([each[name].to(output_device) for each in sums]).sum()
                for name in sums[0]
            },
        )


def _require_one_process_with_gpus(ranks: Ranks) -> None:
    if not traits_of(ranks.device).in_one_process:
        raise BadSpecError(
            "strategy data_parallel drives several GPUs from one process, and this node trains "
            f"on {ranks.device.type}: set strategy: {{name: ddp}}",
        )
    if ranks.world_size > 1:
        raise BadSpecError(
            f"strategy data_parallel needs one process on one node, and {ranks.world_size} were "
            f"started: start one, or set strategy: {{name: ddp}}",
        )


def _require_no_sample_dropout(model: nn.Module) -> None:
    if any(isinstance(module, Dropout) and module.p > 0 for module in model.modules()):
        raise BadSpecError(
            "strategy data_parallel does not support lockstep.Dropout, because a copy of the "
            "model does not have its samples' indices: set its probability to 0, use "
            "torch.nn.Dropout, or set strategy: {name: ddp}",
        )


def require_samples_first(batch: Batch) -> None:
    """Raise unless every part of ``batch``, which has one sample, is a tensor of one row.

    DataParallel splits tensors along their first dimension and passes all other values to every
    copy, without a warning.
    """
    parts = list(batch.values()) if isinstance(batch, Mapping) else batch
    if isinstance(parts, list | tuple):
        for part in parts:
            require_samples_first(part)
    elif not isinstance(parts, Tensor) or parts.ndim == 0 or len(parts) != 1:
        found = (
            f"a tensor of shape {tuple(parts.shape)}"
            if isinstance(parts, Tensor)
            else type(parts).__name__
        )
        raise BadSpecError(
            "strategy data_parallel splits tensors by rows, and a batch of one sample has "
            f"{found}: return tensors from collate() whose first dimension is the samples, or set "
            f"strategy: {{name: ddp}}",
        )
