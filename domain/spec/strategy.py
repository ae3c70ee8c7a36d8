"""Section of the spec about the sharing of one training run between ranks.

Not here: the strategies (``engine.strategies``), the ones that are supported
(``domain.spec.feature_gate``).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from lockstep.domain import limits
from lockstep.domain.errors import at_field
from lockstep.domain.kinds.strategies import STRATEGIES, StrategyKind, StrategyName, names_with
from lockstep.domain.spec.fields import NO_BOOL, Section

POWERSGD_START_STEP: Final = 100
"""Default of ``powersgd_start_step``."""


class Strategy(Section):
    """Sharing of one model's training between ranks."""

    name: Annotated[
        StrategyName, Field(description=" ".join(row.means for row in STRATEGIES.values()))
    ] = "ddp"
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
    shard: Annotated[int, Field(ge=2, le=limits.WORLD_SIZE_MAX), NO_BOOL] | None = None
    """``fsdp``: ranks that keep one copy of the model together, neighbours in rank order. The
    number of ranks is a multiple of it, and the gradients of the copies are summed. Null keeps one
    copy on all ranks, as any number does that is not smaller. With ``parallel.tensor`` ranks with
    the same slices are counted: the copies of the model."""
    reduce: Literal["each_micro_batch"] | None = None
    """``fsdp``: ``each_micro_batch`` reduces the gradient after every micro-batch, so that a rank
    keeps its part of it alone, for more messages. Null reduces once per step, and keeps a gradient
    of the whole model until then."""

    @model_validator(mode="after")
    def _fields_fit_the_name(self) -> Self:
        for field, described in type(self).model_fields.items():
            names, value = names_with(field), getattr(self, field)
            requested = value is not False and value != described.default
            if names and requested and self.name not in names:
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
        for field in self.kind.required:
            if getattr(self, field) is None:
                raise at_field(
                    (field,),
                    f"is required, because name is {self.name}",
                    f"set it, such as {field}: 16",
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
        if not self.kind.one_process:
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

    def check_ranks(self, fewest: int, most: int, unit: int = 1) -> None:
        """Raise where some number of ranks is no multiple of ``shard``.

        Parameters
        ----------
        fewest, most : int
            Bounds of the ranks.
        unit : int
            Ranks that hold one copy of the model's layers together. Then the copies are counted.
        """
        odd = [
            copies for copies in range(fewest // unit, most // unit + 1) if not self.divides(copies)
        ]
        if odd:
            assert self.shard is not None
            below = odd[0] - odd[0] % self.shard
            what = "ranks" if unit == 1 else f"copies on {odd[0] * unit} ranks ({unit} each)"
            raise at_field(
                ("train", "strategy", "shard"),
                f"is {self.shard}, and {odd[0]} {what} are no multiple of it, so a sharded copy of "
                "the model would be incomplete",
                f"request {below * unit} or {(below + self.shard) * unit} gpus, or set another "
                "shard",
                show=False,
            )

    def divides(self, ranks: int) -> bool:
        """Return whether each sharded copy is complete on this number of ranks with one slice."""
        return self.shard is None or ranks <= self.shard or ranks % self.shard == 0

    @property
    def label(self) -> str:
        """Name, and the other fields that define the sum of the gradients."""
        compression = "" if self.compression == "none" else self.compression
        shard = "" if self.shard is None else f"shard {self.shard}"
        return " ".join(filter(None, (self.name, compression, shard, self.reduce)))

    @property
    def announced(self) -> str:
        """The setting under which other layouts give other numbers; empty without one."""
        if self.compression == "powersgd":
            return "compression powersgd"
        return "" if self.kind.keeps_promise else f"strategy {self.name}"

    @property
    def kind(self) -> StrategyKind:
        """The row of this strategy."""
        return STRATEGIES[self.name]

    @property
    def buckets_hold_gradients(self) -> bool:
        """True if gradients are views of the buckets.

        Only applies to strategies with buckets and more than one rank.
        """
        return (
            "gradient_as_bucket_view" in self.kind.settings
            and self.gradient_as_bucket_view is not False
        )

    @property
    def powersgd_starts(self) -> int:
        """Steps whose gradients PowerSGD leaves whole."""
        return POWERSGD_START_STEP if self.powersgd_start_step is None else self.powersgd_start_step
