"""The spec's section about how ranks share one training run.

Not here: what the strategies do (``engine.strategies``), and which of them exist yet (``domain.support``).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from domain import limits
from domain.errors import at_field
from domain.fields import NO_BOOL, Section

_FOR: Final = {
    "sync_every_steps": ("local_sgd", "diloco"),
    "outer_lr": ("diloco",),
    "outer_momentum": ("diloco",),
}
"""Fields that mean something to some strategies only, and are refused with any other."""


class Strategy(Section):
    """How the ranks share one model's training."""

    name: Literal["ddp", "manual", "data_parallel", "zero1", "fsdp", "local_sgd", "diloco"] = "ddp"
    """``ddp`` is torch's DistributedDataParallel: every rank holds the whole model. ``fsdp`` shards parameters, gradients
    and optimizer state over the ranks. ``local_sgd`` and ``diloco`` let each rank step on its own share of the batch and
    bring the ranks together only now and then: the promise about the batch does not hold under them."""
    bucket_cap_mb: Annotated[float, Field(gt=0, le=4_096), NO_BOOL] | None = None
    """MiB per gradient bucket of DDP; null keeps torch's own sizes (a small first bucket, then 25)."""
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """What gradients are squeezed into on their way between ranks."""
    sync_every_steps: Annotated[int, Field(ge=1, le=limits.STEPS_MAX), NO_BOOL] | None = None
    """``local_sgd`` and ``diloco``, which need it: steps that ranks take on their own until their parameters are averaged
    (DiLoCo's paper takes 500)."""
    outer_lr: Annotated[float, Field(gt=0, le=100), NO_BOOL] | None = None
    """``diloco``: part of the way to the ranks' average that a synchronisation goes; null takes the paper's 0.7."""
    outer_momentum: Annotated[float, Field(ge=0, lt=1), NO_BOOL] | None = None
    """``diloco``: Nesterov momentum of the synchronisations; null takes the paper's 0.9."""

    @model_validator(mode="after")
    def _fields_fit_the_name(self) -> Self:
        for field, names in _FOR.items():
            if getattr(self, field) is not None and self.name not in names:
                raise at_field(
                    (field,),
                    f"is a setting of {' and '.join(names)}, and name is {self.name}",
                    f"leave it out, or write name: {names[0]}",
                )
        if self.sync_every_steps is None and self.name in _FOR["sync_every_steps"]:
            raise at_field(
                ("sync_every_steps",),
                f"is needed, because name is {self.name}",
                "say after how many steps the ranks are averaged, such as sync_every_steps: 16",
                show=False,
            )
        return self
