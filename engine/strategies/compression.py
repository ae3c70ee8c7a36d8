"""Gradient compression on ``ddp`` by rounding to 16 bits, which halves the bytes of each bucket.

``fp16`` and ``bf16`` round each bucket, sum it in that format, and convert the sum to float32. The
accumulation over the micro-batches of a rank stays in float32; only the sum over the ranks is
rounded. In fp16, a gradient below the smallest number (6e-8) becomes zero and one above 65504
becomes infinity. bf16 has the range of float32 and three digits.

Not here: ``powersgd`` (``engine.strategies.experimental.powersgd``), runs on which compression has
no effect (``domain.spec.strategy``).
"""

from __future__ import annotations

from typing import ClassVar, Final

from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

from lockstep.engine.strategies.ddp import DDP
from lockstep.engine.strategies.reducer import Reducer

_HOOKS: Final = {"fp16": default_hooks.fp16_compress_hook, "bf16": default_hooks.bf16_compress_hook}


class RoundedDDP(DDP):
    """``ddp`` that rounds gradients to 16 bits for the all-reduce."""

    lost_promise: ClassVar[str] = (
        "compression rounds gradients to 16 bits between ranks: the batch's gradient has this "
        "precision, and depends on the number of ranks"
    )

    def add_hook(self, reducer: Reducer) -> None:
        round_to = _HOOKS[self.options.compression]
        # The lambda hides the hook's name, by which DDP refuses bf16 on all backends but NCCL.
        # Gloo can sum bf16.
        reducer.ddp.register_comm_hook(reducer.group, lambda group, bucket: round_to(group, bucket))  # noqa: PLW0108 - see above
