"""BatchNorm: running statistics over all ranks, minimum micro-batches (contract C24).

The layers of a rank process only its own micro-batches, so running means and variances differ
between ranks, and an evaluation or a checkpoint would use rank 0's. Before each of them, every
rank's statistics are replaced by the mean over the ranks. Statistics are updated linearly (new = (1
- momentum) old + momentum seen), so the result is independent of how often the mean is taken;
training does not read them.

Behind a linear layer or global pooling, a layer gets one value per channel and sample. It has no
variance in a micro-batch of one sample, and torch refuses to train it. Masked passes therefore run
two copies of their sample, and a plan with such micro-batches is refused before the first step.

Not here: the dependence on micro-batches, which a task must declare
(``engine.preflight.additivity_check``).
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase

from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.runtime.device import traits_of
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.copies import independent
from lockstep.engine.task.interface import Batch, Task

NO_VARIANCE: Final = "more than 1 value per channel"
"""Part of torch's error for a batch of one value per channel."""


def masked_samples(model: nn.Module) -> int:
    """Copies of the sample that a masked pass of ``model`` must run.

    Two where BatchNorm is trained.
    """
    return 2 if _trained_layers(model) else 1


def masked_batch(task: Task, model: nn.Module, sample: Any) -> Batch:
    """The batch of a masked pass."""
    # Copies, because some collate functions change their arguments.
    return task.collate([independent(sample) for _ in range(masked_samples(model))])


def refuses_one_sample(error: BaseException) -> bool:
    """Return whether ``error`` is torch's refusal to train BatchNorm on one value per channel."""
    return isinstance(error, ValueError) and NO_VARIANCE in str(error)


def has_single_samples(plan: BatchPlan, size: int) -> bool:
    """Return whether a batch of ``size`` has a micro-batch of one sample on some rank."""
    return any(
        stop - start == 1
        for copy in range(plan.copies)
        for start, stop in plan.micro_batches(copy, size)
    )


def require_several_samples(model: nn.Module, plan: BatchPlan, *, last_batch: int) -> None:
    """Refuse micro-batches of one sample, where BatchNorm has one value per channel and sample.

    Parameters
    ----------
    model : nn.Module
    plan : BatchPlan
        With a micro-batch.
    last_batch : int
        Samples of the run's last batch, which may be smaller than the plan's.

    Raises
    ------
    EngineError
        ``bad_spec``.
    """
    for size in (plan.batch_size, last_batch):
        if has_single_samples(plan, size):
            last = "" if size == plan.batch_size else "last "
            raise BadSpecError(
                f"BatchNorm ({', '.join(_trained_layers(model)[:5])}) needs more than one value "
                f"per "
                f"channel, and the {last}batch of {size} on {plan.world_size} ranks has "
                f"micro-batches of one "
                "sample: choose batch.size, micro_size and the length of the run so that each "
                "micro-batch "
                "has two samples or more",
            )


def _trained_layers(model: nn.Module) -> list[str]:
    """Names of the BatchNorm layers that normalise by the batch, as those in eval mode do not."""
    return [
        name
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.training
    ]


def average_statistics(model: nn.Module, ranks: Ranks) -> None:
    """Set every rank's running statistics to the mean over all ranks. All ranks must call this.

    All ranks have equal weight. The number of batches of a layer becomes the maximum over the
    ranks. Models without such layers cost nothing.

    Parameters
    ----------
    model : nn.Module
        Without its wrapper.
    ranks : Ranks
    """
    if ranks.device_group is None:
        return
    layers = [
        module
        for module in model.modules()
        if isinstance(module, _NormBase) and module.running_mean is not None
    ]
    if not layers:
        return
    statistics = [
        value
        for layer in layers
        for value in (layer.running_mean, layer.running_var)
        if value is not None
    ]
    counts = [
        layer.num_batches_tracked for layer in layers if layer.num_batches_tracked is not None
    ]
    with torch.no_grad():
        _average(statistics, ranks)
        if counts:
            seen = torch.stack(counts)
            dist.all_reduce(seen, dist.ReduceOp.MAX, group=ranks.device_group)
            for count, most in zip(counts, seen, strict=True):
                count.copy_(most)


def _average(values: list[Tensor], ranks: Ranks) -> None:
    """Replace tensors by their mean over the ranks, in one reduction.

    In float64, so that equal ones stay as they are.
    """
    together = torch.cat([value.flatten().double() for value in values])
    ranks.sum_on_device(together)
    together /= ranks.world_size
    for value, mean in zip(
        values, torch.split(together, [value.numel() for value in values]), strict=True
    ):
        value.copy_(mean.view_as(value))


def require_device(model: nn.Module, device: torch.device) -> None:
    """Refuse layers that do not run on ``device`` with several ranks, also on one rank.

    Raises
    ------
    EngineError
        ``bad_spec``, with the name of the layer.
    """
    for name, module in model.named_modules():
        if isinstance(module, nn.SyncBatchNorm) and not traits_of(device).has_sync_batch_norm:
            raise BadSpecError(
                f"{name or 'the model'} is a SyncBatchNorm, which runs on GPUs only: use "
                "BatchNorm, or request GPUs (resources.gpus)",
            )
