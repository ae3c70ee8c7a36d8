"""Section of the spec about the sharing of one training run between ranks.

Not here: the strategies (``engine.strategies``), the ones that are supported
(``domain.spec.feature_gate``).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from lockstep.domain import limits
from lockstep.domain.errors import at_field
from lockstep.domain.spec.fields import NO_BOOL, Section

POWERSGD_START_STEP: Final = 100
"""Default of ``powersgd_start_step``."""

_DDP: Final = ("ddp", "zero1")
_FOR: Final = {
    "bucket_cap_mb": _DDP,
    "gradient_as_bucket_view": _DDP,
    "static_graph": _DDP,
    "compression": ("ddp",),
    "sync_every_steps": ("local_sgd", "diloco"),
    "outer_lr": ("diloco",),
    "outer_momentum": ("diloco",),
}
"""Fields that mean something to some strategies only, and are refused with any other."""


class Strategy(Section):
    """Sharing of one model's training between ranks."""

    name: Literal["ddp", "manual", "data_parallel", "zero1", "fsdp", "local_sgd", "diloco"] = "ddp"
    """``ddp`` is torch's DistributedDataParallel: every rank holds the whole model. ``manual`` is
    the same by hand, to be read. ``data_parallel`` is torch's older DataParallel: one process
    drives all devices of one node. ``zero1`` is ``ddp`` with the optimizer's state shared out over
    the ranks. ``fsdp`` shards parameters, gradients and optimizer state over the ranks.
    ``local_sgd`` and ``diloco`` let each rank step on its own share of the batch and bring the
    ranks together only now and then: the promise about the batch does not hold under them."""
    bucket_cap_mb: Annotated[float, Field(gt=0, le=4_096), NO_BOOL] | None = None
    """``ddp`` and ``zero1``: MiB per gradient bucket; null keeps torch's own sizes (a small first
    bucket, then 25)."""
    gradient_as_bucket_view: bool | None = None
    """``ddp`` and ``zero1``: keep gradients in the buckets that are sent, which saves a copy the
    size of the gradient; null does."""
    static_graph: bool = False
    """``ddp`` and ``zero1``: promise that every micro-batch uses the same parameters in the same
    way. DDP then also takes models that its usual mode refuses, such as those with reentrant
    activation checkpointing."""
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"
    """``ddp``: compression of the gradients that ranks exchange. ``fp16`` and ``bf16`` round them,
    at half the bytes. ``powersgd`` sends matrices of low rank (arXiv 1905.13727) and adds the
    remainder to the next step's gradient: the promise about the batch does not hold under it."""
    powersgd_rank: Annotated[int, Field(ge=1, le=1_024), NO_BOOL] | None = None
    """``compression: powersgd``: rank of the approximation of each matrix; null takes 1."""
    powersgd_start_step: Annotated[int, Field(ge=0, le=limits.STEPS_MAX), NO_BOOL] | None = None
    """``compression: powersgd``: steps whose gradients are still sent whole, because early ones are
    hardest to do without; null takes 100."""
    sync_every_steps: Annotated[int, Field(ge=1, le=limits.STEPS_MAX), NO_BOOL] | None = None
    """``local_sgd`` and ``diloco``, which need it: steps that ranks take on their own until their
    parameters are averaged (DiLoCo's paper takes 500)."""
    outer_lr: Annotated[float, Field(gt=0, le=100), NO_BOOL] | None = None
    """``diloco``: part of the way to the ranks' average that a synchronisation goes; null takes the
    paper's 0.7."""
    outer_momentum: Annotated[float, Field(ge=0, lt=1), NO_BOOL] | None = None
    """``diloco``: Nesterov momentum of the synchronisations; null takes the paper's 0.9."""

    @model_validator(mode="after")
    def _fields_fit_the_name(self) -> Self:
        for field, names in _FOR.items():
            value = getattr(self, field)
            asked = value is not False and value != type(self).model_fields[field].default
            if asked and self.name not in names:
                raise at_field(
                    (field,),
                    f"is a setting of {' and '.join(names)}, and name is {self.name}",
                    f"remove it, or set name: {names[0]}",
                )
        for field in ("powersgd_rank", "powersgd_start_step"):
            if getattr(self, field) is not None and self.compression != "powersgd":
                raise at_field(
                    (field,),
                    f"is a setting of compression: powersgd, and compression is {self.compression}",
                    "remove it, or set compression: powersgd",
                )
        if self.sync_every_steps is None and self.name in _FOR["sync_every_steps"]:
            raise at_field(
                ("sync_every_steps",),
                f"is required, because name is {self.name}",
                "set the number of steps between averages, such as sync_every_steps: 16",
                show=False,
            )
        return self

    def check_run(self, *, precision: str, steps: int | None) -> None:
        """Raise where the run leaves this section no meaning."""
        if self.compression != "powersgd":
            return
        if precision == "fp16":
            raise at_field(
                ("train", "strategy", "compression"),
                "stores errors of gradients, whose scale changes at each step with precision fp16",
                "use precision bf16 or fp32, or compression bf16",
            )
        if steps is not None and steps <= self.powersgd_starts:
            raise at_field(
                ("train", "strategy", "powersgd_start_step"),
                f"{self.powersgd_starts} of {steps} steps are sent uncompressed, so nothing would "
                f"be compressed",
                "use a smaller powersgd_start_step, such as a tenth of the steps",
                show=False,
            )

    def check_devices(self, *, gpu_type: str | None, nodes: int | None) -> None:
        """Raise where the job's devices are none for this strategy."""
        if not self.one_process:
            return
        found = ""
        if (nodes or 1) > 1:
            found = f"is one process that drives the devices of one node, and nodes is {nodes}"
        elif gpu_type == "cpu":
            found = "is one process that drives several GPUs, and gpu_type is cpu"
        if found:
            raise at_field(
                ("train", "strategy", "name"), found, "set name: ddp, which supports both"
            )

    @property
    def label(self) -> str:
        """Name and compression, the fields that define the sum of the gradients."""
        return self.name if self.compression == "none" else f"{self.name} {self.compression}"

    @property
    def announced(self) -> str:
        """The setting under which other layouts give other numbers; empty without one."""
        if self.compression == "powersgd":
            return "compression powersgd"
        return f"strategy {self.name}" if self.name in _FOR["sync_every_steps"] else ""

    @property
    def one_process(self) -> bool:
        """True if one process drives all devices of its node.

        Otherwise there is one rank per device.
        """
        return self.name == "data_parallel"

    @property
    def buckets_hold_gradients(self) -> bool:
        """True if gradients are views of the buckets.

        Only applies to strategies with buckets and more than one rank.
        """
        return self.name in _DDP and self.gradient_as_bucket_view is not False

    @property
    def powersgd_starts(self) -> int:
        """Steps whose gradients PowerSGD leaves whole."""
        return POWERSGD_START_STEP if self.powersgd_start_step is None else self.powersgd_start_step
