"""Job spec: one type for the request body, the stored spec, the YAML file and the engine.

Every field of the interface is defined and checked here, also those of later versions, which
``domain.spec.feature_gate`` refuses by name. Unknown fields are refused, never ignored.

Not here: values derived from the spec (``domain.training.plan``), placement
(``domain.placement.decide``), the section about sharing of work between ranks
(``domain.spec.strategy``).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    Tag,
    ValidationError,
    field_validator,
    model_validator,
)

from lockstep.domain import limits
from lockstep.domain.errors import at_field
from lockstep.domain.spec import tasks
from lockstep.domain.spec.fields import (
    FOLDER,
    NO_BOOL,
    EnvName,
    FreeEnvName,
    Name,
    Section,
    Sha256,
    choice,
    git_ref,
    git_url,
    kind_of_code,
    kind_of_gpus,
    kind_of_micro_size,
    no_nul,
)
from lockstep.domain.spec.init_from import checked_source
from lockstep.domain.spec.optimizer import SGD as SGD  # noqa: PLC0414 - the spec's names, for others too
from lockstep.domain.spec.optimizer import AdamW as AdamW  # noqa: PLC0414 - the same
from lockstep.domain.spec.optimizer import Optimizer as Optimizer  # noqa: PLC0414 - the same
from lockstep.domain.spec.optimizer import Schedule as Schedule  # noqa: PLC0414 - the same
from lockstep.domain.spec.strategy import Strategy as Strategy  # noqa: PLC0414 - so that spec.Strategy is a name for others, too


class GpuRange(Section):
    """An elastic job's bounds: it may be shrunk to ``min`` and grown to ``max`` while it lives."""

    min: Annotated[int, Field(ge=1, le=limits.WORLD_SIZE_MAX), NO_BOOL]
    """Devices the job is never shrunk below."""
    max: Annotated[int, Field(ge=1, le=limits.WORLD_SIZE_MAX), NO_BOOL]
    """Devices the job is never grown beyond."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise at_field(("max",), f"expected at least min ({self.min})", "swap min and max, or raise max")
        return self


class Resources(Section):
    """Devices the job asks for. One rank runs on each."""

    gpus: Annotated[
        Annotated[int, Field(ge=1, le=limits.WORLD_SIZE_MAX), NO_BOOL, Tag("count")]
        | Annotated[GpuRange, Tag("GpuRange")],
        choice(kind_of_gpus, "a number of devices, or {min: 1, max: 8}"),
    ] = 1
    """Devices over all nodes (GPUs; CPU slots on nodes without GPUs), or bounds for an elastic job."""
    gpu_type: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Device type as ``lockstep nodes`` prints it (``NVIDIA H200``, ``cpu``); null takes any, but never two types."""
    nodes: Annotated[int, Field(ge=1, le=1_024), NO_BOOL] | None = None
    """Exactly this many nodes, with equally many devices each; null takes one node. The result is the same on any number;
    the speed is not, so a job is never spread without being asked."""

    @model_validator(mode="after")
    def _nodes_divide(self) -> Self:
        if self.nodes is not None and isinstance(self.gpus, int) and self.gpus % self.nodes:
            raise at_field(
                ("gpus",),
                f"expected a multiple of nodes ({self.nodes}), because all nodes provide the same number",
                "change gpus, or omit nodes",
            )
        return self


class Batch(Section):
    """The promise, and how much of it fits on one device at a time."""

    size: Annotated[int, Field(ge=1, le=limits.BATCH_SIZE_MAX), NO_BOOL]
    """Samples in one optimizer step, over all ranks. This never changes while the job lives."""
    micro_size: Annotated[
        Annotated[int, Field(ge=1, le=limits.BATCH_SIZE_MAX), NO_BOOL, Tag("samples")]
        | Annotated[Literal["auto"], Tag("auto")],
        choice(kind_of_micro_size, "a number of samples, or auto"),
    ] = "auto"
    """Samples in one forward and backward on one device, at most. ``auto`` tries sizes at the start of the first attempt:
    on GPUs it takes the largest that leaves ``memory_headroom``, on CPUs the smallest that is as fast as any. The batch,
    and so the training, is the same whatever comes out."""


class Checkpoint(Section):
    """Schedule and retention of saved training state. The last step is always saved."""

    every_steps: Annotated[int, Field(ge=1, le=limits.STEPS_MAX), NO_BOOL] | None = None
    """Null saves only the end of the run."""
    keep_last: Annotated[int, Field(ge=1, le=1_000), NO_BOOL] = 3
    """Checkpoints kept; older ones are deleted once a newer one is safe."""
    keep_best: Annotated[str, Field(min_length=1, max_length=limits.METRIC_NAME_CHARS_MAX)] | None = None
    """Also keep the checkpoint whose step had the lowest value of this metric, such as ``eval/loss``; of equal ones the
    earliest. A step that did not measure it, or measured NaN, is never the best."""
    background: bool = True
    """Write while training goes on, from a copy in the host's memory that is as large as model and optimizer together.
    False needs no such memory, and training waits."""


class Eval(Section):
    """Evaluation on the task's ``eval`` split."""

    every_steps: Annotated[int, Field(ge=1, le=limits.STEPS_MAX), NO_BOOL] | None = None
    """Null never evaluates. Otherwise also after the last step."""


class Loader(Section):
    """Loading of samples on a rank."""

    workers: Annotated[int, Field(ge=0, le=64), NO_BOOL] = 0
    """Processes per rank that fetch and collate samples; 0 does it in a thread of the rank."""


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
    """Arguments of the task: those of a built-in task are listed below, those of your own are its constructor's."""
    batch: Batch
    steps: Annotated[int, Field(ge=1, le=limits.STEPS_MAX), NO_BOOL] | None = None
    """Optimizer steps. Exactly one of ``steps`` and ``epochs`` is given."""
    epochs: Annotated[int, Field(ge=1, le=1_000_000), NO_BOOL] | None = None
    """Passes over the dataset. The last batch may be smaller; nothing is dropped or repeated."""
    optimizer: Optimizer = AdamW()
    """Update rule of the weights."""
    schedule: Schedule = Schedule()
    clip_grad_norm: Annotated[float, Field(gt=0), NO_BOOL] | None = 1.0
    """Largest 2-norm of the whole batch's gradient; null does not clip."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of forward and backward; parameters are kept in float32."""
    strategy: Strategy = Strategy()
    checkpoint: Checkpoint = Checkpoint()
    eval: Eval = Eval()
    loader: Loader = Loader()
    stall: Stall = Stall()
    debug: bool = False
    """Let ranks compare every collective before they enter it, and name those that disagree; several times slower."""
    log_every_steps: Annotated[int, Field(ge=1, le=1_000_000), NO_BOOL] = 1
    """Optimizer steps from one point of the metrics to the next."""
    seed: Annotated[int, Field(ge=0, lt=2**63), NO_BOOL] = 1337
    """Decides the initial weights, the order of samples and all random numbers of the engine."""
    init_from: Annotated[str, Field(min_length=1, max_length=1_000), AfterValidator(checked_source)] | None = None
    """Initial weights; optimizer, schedule and data start fresh. ``job:ID``, ``job:ID@STEP`` or
    ``job:ID@best``: a checkpoint of another job, the newest if none is named. Or a path on the
    nodes: a checkpoint's folder, a ``.safetensors`` file, or a state dict that ``torch.save``
    wrote."""
    deterministic: bool = False
    """On CUDA, use deterministic kernels only, so that a resumed run is bitwise the same; slower."""
    non_finite: Literal["stop", "skip"] = "stop"
    """Reaction to a step whose loss or gradient is not finite: end the run, or skip the step.
    Neither changes the weights."""
    tf32: bool = False
    """On CUDA, let matrix products and convolutions in float32 use TF32: faster, with three digits instead of seven."""
    compile: bool = False
    """Compile the model with ``torch.compile``."""
    activation_checkpointing: bool = False
    """Compute activations again in backward instead of keeping them: less memory, more time."""
    memory_headroom: Annotated[float, Field(ge=0, lt=0.9), NO_BOOL] = 0.15
    """Fraction of memory that ``micro_size: auto`` leaves free: of the device's, or on CPUs of the rank's part of the host's."""

    @field_validator("optimizer", mode="before")
    @classmethod
    def _adamw_by_default(cls, value: object) -> object:
        """Let ``optimizer: {lr: 0.001}`` mean AdamW, as leaving the whole section out does."""
        return {"name": AdamW.model_fields["name"].default, **value} if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if self.steps is None and self.epochs is None:
            raise at_field(
                ("steps",), "expected steps or epochs, got neither", "add one, such as steps: 200", show=False
            )
        if self.steps is not None and self.epochs is not None:
            raise at_field(("epochs",), f"expected either steps ({self.steps}) or epochs, not both", "remove one")
        if self.schedule.min_lr > self.optimizer.lr:
            raise at_field(
                ("schedule", "min_lr"),
                f"expected at most optimizer.lr ({self.optimizer.lr})",
                "lower min_lr, or raise optimizer.lr",
            )
        if self.compile and self.strategy.name == "data_parallel":
            raise at_field(
                ("compile",), "cannot be true with strategy data_parallel, which copies the model", "use strategy ddp"
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
            # `domain.spec.reading` explains the inner error's lines in the same words as the spec's own.
            raise at_field(("task_args",), f"do not match the arguments of {self.task}", inner=error) from None
        return self


class Script(Section):
    """An existing torchrun script, run unchanged."""

    command: Annotated[list[Annotated[str, AfterValidator(no_nul)]], Field(min_length=1, max_length=1_000)]
    """Script and arguments, as after ``torchrun``: ``[train.py, --lr, "3e-4"]``. A name ending in ``.py`` is run by the
    node's Python; anything else is run as a program. A launcher (``torchrun``, ``accelerate``, ``deepspeed``, ``mpirun``)
    that would be started in more than one rank is refused: Lockstep starts the ranks."""
    nproc_per_node: Annotated[int, Field(ge=1, le=1_024), NO_BOOL] | None = None
    """Ranks per node; null starts one per device."""

    @field_validator("command")
    @classmethod
    def _not_empty(cls, command: list[str]) -> list[str]:
        if not command[0].strip():
            raise at_field(
                (0,),
                "expected a script or a program",
                "put the script first, such as [train.py, --lr, 0.1]",
            )
        return command


class UploadedCode(Section):
    """A code archive sent before with ``PUT /v1/uploads/{sha256}``."""

    upload: Sha256
    """The archive's SHA-256, which is also its name in the store."""


class GitCode(Section):
    """A commit of a git repository that the service and its nodes can reach."""

    git: Annotated[str, Field(min_length=1, max_length=2_000), AfterValidator(git_url)]
    """The repository's address, without a password: the machines' own keys and credential helpers are used."""
    ref: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(git_ref)] = "HEAD"
    """Branch, tag or whole commit id. It is resolved at the submit; every attempt runs the same
    commit. Submodules are not fetched."""


class PathCode(Section):
    """A folder that is already on the nodes."""

    path: Annotated[str, Field(pattern=FOLDER)]
    """Absolute path of the folder on every node."""


class Retry(Section):
    """Number of retries of a job after a failure that may pass."""

    max: Annotated[int, Field(ge=0, le=100), NO_BOOL] = 3
    """Retries after the first attempt. Preemption and service restarts are not counted, and progress since the last failure
    (a newer checkpoint; of a script, a later step in its metrics) starts the count again. ``3`` ends a job when four attempts in a row got no further."""


class Retention(Section):
    """Time for which a job's data is kept after its end; null keeps it until the job is deleted."""

    metrics_days: Annotated[int, Field(ge=1, le=limits.RETENTION_DAYS_MAX), NO_BOOL] | None = None
    """Days until the points of its series are deleted. The last value of each series stays."""
    logs_days: Annotated[int, Field(ge=1, le=limits.RETENTION_DAYS_MAX), NO_BOOL] | None = None
    """Days until the lines of its log are deleted."""


class JobSpec(Section):
    """A training job, as a user writes it."""

    name: Name
    project: Name = "default"
    kind: Literal["train", "script"]
    """``train``: the engine owns the loop and keeps the promise about the batch. ``script``: your own torchrun script."""
    resources: Resources = Resources()
    train: Train | None = None
    """Needed when ``kind`` is ``train``."""
    script: Script | None = None
    """Needed when ``kind`` is ``script``."""
    code: (
        Annotated[
            Annotated[UploadedCode, Tag("UploadedCode")]
            | Annotated[GitCode, Tag("GitCode")]
            | Annotated[PathCode, Tag("PathCode")],
            choice(kind_of_code, "exactly one of {upload: SHA256}, {git: URL, ref: REF} and {path: FOLDER}"),
        ]
        | None
    ) = None
    """Source of the job's own files; null for a job without any."""
    env: Annotated[
        dict[FreeEnvName, Annotated[str, Field(max_length=32_768), AfterValidator(no_nul)]], Field(max_length=1_000)
    ] = Field(default_factory=dict)
    """Environment variables of every rank, beside those that ``docs/environment.md`` lists."""
    secrets: Annotated[list[EnvName], Field(max_length=100)] = Field(default_factory=list)
    """Names of stored secrets that the ranks get as environment variables."""
    retry: Retry = Retry()
    retention: Retention = Retention()
    timeout_seconds: Annotated[float, Field(gt=0, le=366 * 24 * 3600), NO_BOOL] | None = None
    """Seconds of running, over all attempts, after which the job is stopped and failed; null has no limit."""
    priority: Annotated[int, Field(ge=0, le=100), NO_BOOL] = 50
    """Larger goes first; equal priorities go by age."""
    labels: Annotated[
        dict[Annotated[str, Field(max_length=63)], Annotated[str, Field(max_length=255)]], Field(max_length=64)
    ] = Field(default_factory=dict)
    """Marks of your own, to find jobs by."""

    @model_validator(mode="after")
    def _kind_has_its_section(self) -> Self:
        for section in ("train", "script"):
            present = getattr(self, section) is not None
            if present and self.kind != section:
                raise at_field(
                    (section,),
                    f"section not allowed, because kind is {self.kind}",
                    "remove one of them",
                    show=False,
                )
            if not present and self.kind == section:
                raise at_field(
                    (section,),
                    f"is required, because kind is {self.kind}",
                    "add it to the spec",
                    show=False,
                )
        if self.train is not None and tasks.is_own_task(self.train.task) and self.code is None:
            raise at_field(
                ("code",),
                f"is required, because the task {self.train.task} is a file of the job's code",
                "send the code folder: lockstep submit FILE --code DIR",
                show=False,
            )
        return self

    @model_validator(mode="after")
    def _strategy_fits(self) -> Self:
        if self.train is not None:
            self.train.strategy.check_run(precision=self.train.precision, steps=self.train.steps)
            self.train.strategy.check_devices(gpu_type=self.resources.gpu_type, nodes=self.resources.nodes)
        return self

    def ranks_per_node(self) -> int | None:
        """Ranks on each node; None where it is one per device."""
        if self.script is not None:
            return self.script.nproc_per_node
        return 1 if self.train is not None and self.train.strategy.one_process else None

    def world_size(self) -> int:
        """Ranks of one attempt; an elastic job starts at its largest."""
        per_node = self.ranks_per_node()
        return self.device_count() if per_node is None else per_node * (self.resources.nodes or 1)

    def device_count(self) -> int:
        """Devices of one attempt; an elastic job starts at its largest."""
        gpus = self.resources.gpus
        return gpus if isinstance(gpus, int) else gpus.max
