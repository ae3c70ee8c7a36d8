"""Gradient compression on ``ddp`` by rounding: each bucket is sent in half its bytes.

``fp16`` and ``bf16`` round each bucket, sum it in that format, and make it float32 again. What a rank accumulates over
its micro-batches stays float32: only the sum over the ranks is rounded. A gradient that is smaller than fp16's least
number (6e-8) arrives as zero, one above 65504 as infinity; bf16 has float32's range and three digits.

Not here: ``powersgd`` (``engine.strategies.experimental.powersgd``), which runs it means nothing to (``domain.spec.strategy``).
"""

from __future__ import annotations

from typing import ClassVar, Final

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from lockstep.engine.strategies.ddp import DDP
from lockstep.engine.strategies.reducer import Reducer

_HOOKS: Final = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}


class RoundedDDP(DDP):
    """``ddp`` with gradients rounded to 16 bits on their way."""

    lost_promise: ClassVar[str] = (
        "compression rounds gradients to 16 bits between ranks: the batch's gradient is right to that, and depends on the "
        "number of ranks"
    )

    sends_exactly: ClassVar[bool] = False

    def add_hook(self, reducer: Reducer) -> None:
        round_to = _HOOKS[self.options.compression]
        # Not the hook itself: by its name DDP refuses bf16 on all but NCCL, though Gloo can sum it.
        reducer.ddp.register_comm_hook(reducer.group, lambda group, bucket: round_to(group, bucket))  # noqa: PLW0108 - as said above
