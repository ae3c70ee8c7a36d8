"""How much memory tensors really took: the number that a forecast is held against.

On CUDA torch's allocator counts. On the CPU nothing counts, so the profiler notes every allocation and release while
something runs, and their running sum has the peak; a training run cannot afford that in every step, and is measured by
the growth of the process instead, libraries and samples included.

Not here: the peak that is reported with each step (``engine.telemetry``).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.profiler import ProfilerActivity, profile

_EVENT = "[memory]"


def peak_of(run: Callable[[], object], device: torch.device) -> int:
    """Most bytes that tensors held at one moment of ``run``, above what they held before it.

    On the CPU ``run`` is slowed down by the profiler; what it allocates in other threads counts as well.
    """
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    found = profiler.profiler.kineto_results.events() if profiler.profiler is not None else []
    events = sorted((event for event in found if event.name() == _EVENT), key=lambda event: event.start_ns())
    return max(accumulate((int(event.nbytes()) for event in events), initial=0))


def kept_for_backward(run: Callable[[], object]) -> int:
    """Bytes that autograd keeps from the forwards of ``run``, parameters included. Costs next to nothing.

    Less than the peak: what backward makes meanwhile is not counted.
    """
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(kept.values())
