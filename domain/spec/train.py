"""Section ``train`` of the job spec."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    Tag,
    ValidationError,
    model_validator,
)

from lockstep.domain import limits
from lockstep.domain.errors import at_field
from lockstep.domain.spec import tasks
from lockstep.domain.spec.fields import (
    NO_BOOL,
    Section,
    choice,
    kind_of_micro_size,
)
from lockstep.domain.spec.init_from import checked_source
from lockstep.domain.spec.optimizer import NAMES, AdamW, OptimizerClass
from lockstep.domain.spec.optimizer import Optimizer as Optimizer  # noqa: PLC0414 - the same
from lockstep.domain.spec.optimizer import Schedule as Schedule  # noqa: PLC0414 - the same
from lockstep.domain.spec.parallel import Parallel
from lockstep.domain.spec.strategy import Strategy as Strategy  # noqa: PLC0414 - so that spec.Strategy is a name for others, too


class Batch(Section):
    """The promise, and how much of it fits on one device at a time."""

    size: Annotated[int, Field(ge=1, le=limits.BATCH_SIZE_MAX), NO_BOOL]
    """Samples in one optimizer step, over all ranks. This never changes while the job lives."""
    micro_size: Annotated[
        Annotated[int, Field(ge=1, le=limits.BATCH_SIZE_MAX), NO_BOOL, Tag("samples")]
        | Annotated[Literal["auto"], Tag("auto")],
        choice(kind_of_micro_size, "a number of samples, or auto"),
    ] = "auto"
    """Samples in one forward and backward on one device, at most. ``auto`` tries sizes at the start
    of the first attempt: on GPUs it takes the largest that leaves ``memory_headroom``, on CPUs the
    smallest that is as fast as any. In a pipeline stages wait for at most a fifth of a step, if the
    batch allows it. The batch, and so the training, is the same whatever comes out.
    """


class Checkpoint(Section):
    """Schedule and retention of saved training state. The last step is always saved."""

    every_steps: Annotated[int, Field(ge=1, le=limits.STEPS_MAX), NO_BOOL] | None = None
    """Null saves only the end of the run."""
    keep_last: Annotated[int, Field(ge=1, le=1_000), NO_BOOL] = 3
    """Checkpoints kept; older ones are deleted once a newer one is safe."""
    keep_best: (
        Annotated[str, Field(min_length=1, max_length=limits.METRIC_NAME_CHARS_MAX)] | None
    ) = None
    """Also keep the checkpoint whose step had the lowest value of this metric, such as
    ``eval/loss``; of equal ones the earliest. A step that did not measure it, or measured NaN, is
    never the best."""
    background: bool = True
    """Write while training continues, from a copy in the host's memory that is as large as model
    and optimizer together. False needs no such memory, and training waits."""


class Eval(Section):
    """Evaluation on the task's ``eval`` split."""

    every_steps: Annotated[int, Field(ge=1, le=limits.STEPS_MAX), NO_BOOL] | None = None
    """Null never evaluates. Otherwise also after the last step."""


class Loader(Section):
    """Loading of samples on a rank."""

    workers: Annotated[int, Field(ge=0, le=64), NO_BOOL] = 0
    """Processes per rank that fetch and collate samples; 0 does it in the rank: in a thread, if
    fetching is slow and neither samples nor model draw random numbers on the host."""


class Stall(Section):
    """Time limits for a run in which no rank makes progress.

    A rank that waits for another has no limit of its own.
    """

    first_step_seconds: Annotated[float, Field(gt=0, le=7 * 24 * 3600), NO_BOOL] = 1800.0
    """Limit until the first step is done, and within set-up, an evaluation or a checkpoint."""
    min_seconds: Annotated[float, Field(gt=0, le=7 * 24 * 3600), NO_BOOL] = 300.0
    """Limit afterwards, unless ``factor`` gives a longer one."""
    factor: Annotated[float, Field(ge=1, le=10_000), NO_BOOL] = 20.0
    """Limit afterwards in multiples of the median step."""


class Train(Section):
    """A training run whose loop the engine owns: here the promise about the batch holds."""

    task: Annotated[str, Field(min_length=1, max_length=500)]
    """A built-in task, or ``path/to/file.py:ClassName`` from the job's code."""
    task_args: dict[str, Any] = Field(default_factory=dict)
    """Arguments of the task: those of a built-in task are listed below, those of your own are its
    constructor's."""
    batch: Batch
    steps: Annotated[int, Field(ge=1, le=limits.STEPS_MAX), NO_BOOL] | None = None
    """Optimizer steps. Exactly one of ``steps`` and ``epochs`` is given."""
    epochs: Annotated[int, Field(ge=1, le=1_000_000), NO_BOOL] | None = None
    """Passes over the dataset. The last batch may be smaller; nothing is dropped or repeated."""
    optimizer: Optimizer = Field(default_factory=AdamW)
    """Update rule of the weights; AdamW if it is left out."""
    schedule: Schedule = Schedule()
    clip_grad_norm: Annotated[float, Field(gt=0), NO_BOOL] | None = 1.0
    """Largest 2-norm of the whole batch's gradient; null does not clip."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of forward and backward; parameters are kept in float32."""
    parallel: Parallel = Field(
        default_factory=Parallel, exclude_if=lambda section: section == Parallel()
    )
    """Cut of the model. Not written into stored specs by default: programs of the version before do
    not know it."""
    strategy: Strategy = Strategy()
    checkpoint: Checkpoint = Checkpoint()
    eval: Eval = Eval()
    loader: Loader = Loader()
    stall: Stall = Stall()
    debug: bool = False
    """Let ranks compare every collective before they enter it, and name those that disagree;
    several times slower."""
    log_every_steps: Annotated[int, Field(ge=1, le=1_000_000), NO_BOOL] = 1
    """Optimizer steps from one point of the metrics to the next."""
    seed: Annotated[int, Field(ge=0, lt=2**63), NO_BOOL] = 1337
    """Decides the initial weights, the order of samples and all random numbers of the engine."""
    init_from: (
        Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(checked_source)] | None
    ) = None
    """Initial weights; optimizer, schedule and data start fresh. ``job:ID``, ``job:ID@STEP`` or
    ``job:ID@best``: a checkpoint of another job, the newest if none is named. Or a path on the
    nodes: a checkpoint's folder, a ``.safetensors`` file, or a state dict that ``torch.save``
    wrote."""
    deterministic: bool = False
    """On CUDA, use deterministic kernels only, so that a resumed run is bitwise the same.

    Slower.
    """
    non_finite: Literal["stop", "skip"] = "stop"
    """Reaction to a step whose loss or gradient is not finite: end the run, or skip the step.
    Neither changes the weights."""
    tf32: bool = False
    """On CUDA, let matrix products and convolutions in float32 use TF32: faster, with three digits
    instead of seven."""
    compile: bool = False
    """Compile the model with ``torch.compile``."""
    activation_checkpointing: bool = False
    """Compute activations again in backward instead of keeping them: less memory, more time."""
    memory_headroom: Annotated[float, Field(ge=0, lt=0.9), NO_BOOL] = 0.15
    """Fraction of memory that ``micro_size: auto`` leaves free: of the device's, or on CPUs of the
    rank's part of the host's."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.steps is None and self.epochs is None:
            raise at_field(
                ("steps",),
                "expected steps or epochs, got neither",
                "add one, such as steps: 200",
                show=False,
            )
        if self.steps is not None and self.epochs is not None:
            raise at_field(
                ("epochs",),
                f"expected either steps ({self.steps}) or epochs, not both",
                "remove one",
            )
        return self

    @model_validator(mode="after")
    def _sections_fit(self) -> Self:
        if self.schedule.min_lr > self.optimizer.lr:
            raise at_field(
                ("schedule", "min_lr"),
                f"expected at most optimizer.lr ({self.optimizer.lr})",
                "lower min_lr, or raise optimizer.lr",
            )
        kind = self.strategy.kind
        if isinstance(self.optimizer, OptimizerClass) and kind.optimizer_needs is None:
            raise at_field(
                ("optimizer", "name"),
                f"is a class by its path, and with strategy {kind.name} ranks must average state "
                "that only some may have",
                f"use {' or '.join(NAMES)}, or another strategy",
            )
        if self.compile and kind.one_process:
            raise at_field(
                ("compile",),
                f"cannot be true with strategy {kind.name}, which copies the model",
                "use strategy ddp",
            )
        cap = self.strategy.bucket_cap_mb
        if self.compile and cap is not None and cap < 1:
            raise at_field(
                ("strategy", "bucket_cap_mb"),
                "expected at least 1 with compile: torch splits the graph at bucket "
                "boundaries, and the first bucket has 1 MiB",
                "raise it, or omit it",
            )
        best = self.checkpoint.keep_best
        if best is not None and best.startswith("eval/") and self.eval.every_steps is None:
            raise at_field(
                ("eval", "every_steps"),
                f"is required, because checkpoint.keep_best is {best}",
                "set an evaluation interval, such as eval: {every_steps: 50}",
                show=False,
            )
        return self

    @property
    def runs_own_code(self) -> bool:
        """True if a part is neither the engine's nor torch's, so no service may import it."""
        optimizer = self.optimizer
        foreign = isinstance(optimizer, OptimizerClass) and not optimizer.is_from_torch
        return foreign or tasks.is_own_task(self.task)

    @property
    def blocks(self) -> int | None:
        """Blocks of the model, if this section names them."""
        if tasks.is_own_task(self.task):
            return None
        args = tasks.parse_args(self.task, self.task_args)
        return args.layers if isinstance(args, tasks.CausalLMArgs) else None

    @model_validator(mode="after")
    def _task_exists(self) -> Self:
        if tasks.is_own_task(self.task):
            return self
        if self.task not in tasks.BUILT_IN:
            known = ", ".join(sorted(tasks.BUILT_IN))
            raise at_field(
                ("task",),
                f"expected a built-in task ({known}) or path/to/file.py:ClassName",
                choices=(*tasks.BUILT_IN,),
            )
        try:
            tasks.parse_args(self.task, self.task_args)
        except ValidationError as error:
            # `domain.spec.reading` explains the inner error's lines in the same words as the spec's
            # own.
            raise at_field(
                ("task_args",), f"do not match the arguments of {self.task}", inner=error
            ) from None
        return self
