"""The job spec: one type that is the request body, the stored spec, the YAML file and the engine's input.

Every field of the interface is here and checked, also those whose function comes later; ``domain.support`` refuses
the latter by name, so that nothing a person asks for is ever ignored. Unknown fields are refused.

Not here: what is derived from the spec (``domain.plan``), and where it may run (``domain.placement``).
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import PydanticCustomError

from domain import limits, tasks

NAME = r"^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"

Name = Annotated[
    str, Field(pattern=NAME, description="Lower-case letters, digits, '.', '_' and '-'; 1 to 63 characters.")
]
EnvName = Annotated[str, Field(pattern=ENV_NAME)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

RESERVED_ENV = frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE ROLE_NAME "
    "MASTER_ADDR MASTER_PORT CUDA_VISIBLE_DEVICES".split()
)
"""Set by the launcher for every rank; a job that sets them itself would break its own gang."""


class _Spec(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class GpuRange(_Spec):
    """An elastic job's bounds: it may be shrunk to ``min`` and grown to ``max`` while it lives."""

    min: Annotated[int, Field(ge=1, le=limits.WORLD_SIZE_MAX)]
    max: Annotated[int, Field(ge=1, le=limits.WORLD_SIZE_MAX)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"min ({self.min}) is larger than max ({self.max})")
        return self


class Resources(_Spec):
    """Devices the job asks for. One rank runs on each."""

    gpus: Annotated[int, Field(ge=1, le=limits.WORLD_SIZE_MAX)] | GpuRange = 1
    """Devices over all nodes (GPUs; CPU slots on nodes without GPUs), or bounds for an elastic job."""
    gpu_type: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Device type as ``lockstep nodes`` prints it (``NVIDIA H200``, ``cpu``); null takes any, but never two types."""
    nodes: Annotated[int, Field(ge=1, le=1_024)] | None = None
    """Exactly this many nodes, with equally many devices each; null uses the fewest."""

    @model_validator(mode="after")
    def _nodes_divide(self) -> Self:
        if self.nodes is not None and isinstance(self.gpus, int) and self.gpus % self.nodes:
            raise ValueError(f"gpus ({self.gpus}) must be a multiple of nodes ({self.nodes})")
        return self


class Batch(_Spec):
    """The promise, and how much of it fits on one device at a time."""

    size: Annotated[int, Field(ge=1, le=limits.BATCH_SIZE_MAX)]
    """Samples in one optimizer step, over all ranks. This never changes while the job lives."""
    micro_size: Annotated[int, Field(ge=1, le=limits.BATCH_SIZE_MAX)] | Literal["auto"] = "auto"
    """Samples in one forward and backward on one device, at most."""


class AdamW(_Spec):
    """AdamW (Loshchilov & Hutter 2019, arXiv 1711.05101)."""

    name: Literal["adamw"] = "adamw"
    lr: Annotated[float, Field(gt=0, le=100)] = 3e-4
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.1
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.95)
    eps: Annotated[float, Field(gt=0, le=1)] = 1e-8


class SGD(_Spec):
    """Stochastic gradient descent, with momentum as PyTorch defines it."""

    name: Literal["sgd"]
    lr: Annotated[float, Field(gt=0, le=1000)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    nesterov: bool = False
    weight_decay: Annotated[float, Field(ge=0, le=10)] = 0.0

    @model_validator(mode="after")
    def _nesterov_needs_momentum(self) -> Self:
        if self.nesterov and self.momentum == 0:
            raise ValueError("nesterov needs a momentum above 0")
        return self


Optimizer = Annotated[AdamW | SGD, Field(discriminator="name")]


class Schedule(_Spec):
    """Learning rate as a function of the optimizer step."""

    name: Literal["constant", "cosine", "linear"] = "constant"
    """After the warm-up: stay at ``lr``, or fall to ``min_lr`` at the last step along a cosine or a line."""
    warmup_steps: Annotated[int, Field(ge=0, le=limits.STEPS_MAX)] = 0
    """Optimizer steps over which the rate rises linearly to ``lr``."""
    min_lr: Annotated[float, Field(ge=0)] = 0.0


class Strategy(_Spec):
    """How gradients are shared between ranks."""

    name: Literal["ddp", "manual", "data_parallel", "zero1", "fsdp", "local_sgd", "diloco"] = "ddp"
    bucket_cap_mb: Annotated[float, Field(gt=0, le=4_096)] | None = None
    """MiB per gradient bucket of DDP; null keeps torch's own sizes (a small first bucket, then 25)."""
    compression: Literal["none", "fp16", "bf16", "powersgd"] = "none"


class Checkpoint(_Spec):
    """When training state is saved, and how much of it is kept. The last step is always saved."""

    every_steps: Annotated[int, Field(ge=1, le=limits.STEPS_MAX)] | None = None
    """Null saves only the end of the run."""
    keep_last: Annotated[int, Field(ge=1, le=1_000)] = 3
    keep_best: Annotated[str, Field(min_length=1, max_length=limits.METRIC_NAME_CHARS_MAX)] | None = None
    """Also keep the checkpoint with the lowest value of this metric."""


class Eval(_Spec):
    """Evaluation on the task's ``eval`` split."""

    every_steps: Annotated[int, Field(ge=1, le=limits.STEPS_MAX)] | None = None
    """Null never evaluates. Otherwise also after the last step."""


class Loader(_Spec):
    """How samples reach a rank."""

    workers: Annotated[int, Field(ge=0, le=64)] = 0
    """Processes per rank that fetch and collate samples; 0 does it in a thread of the rank."""


class Train(_Spec):
    """A training run whose loop the engine owns: here the promise about the batch holds."""

    task: Annotated[str, Field(min_length=1, max_length=500)]
    """A built-in task, or ``path/to/file.py:ClassName`` from the job's code."""
    task_args: dict[str, Any] = Field(default_factory=dict)
    batch: Batch
    steps: Annotated[int, Field(ge=1, le=limits.STEPS_MAX)] | None = None
    """Optimizer steps. Exactly one of ``steps`` and ``epochs`` is given."""
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    optimizer: Optimizer = AdamW()
    schedule: Schedule = Schedule()
    clip_grad_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Largest 2-norm of the whole batch's gradient; null does not clip."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    strategy: Strategy = Strategy()
    checkpoint: Checkpoint = Checkpoint()
    eval: Eval = Eval()
    loader: Loader = Loader()
    log_every_steps: Annotated[int, Field(ge=1, le=1_000_000)] = 1
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 1337
    init_from: Annotated[str, Field(min_length=1, max_length=1_000)] | None = None
    deterministic: bool = False
    compile: bool = False
    activation_checkpointing: bool = False
    memory_headroom: Annotated[float, Field(ge=0, lt=0.9)] = 0.15
    """Fraction of device memory that ``micro_size: auto`` leaves free."""

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give exactly one of steps and epochs")
        if self.schedule.min_lr > self.optimizer.lr:
            raise ValueError(f"schedule.min_lr ({self.schedule.min_lr}) is above optimizer.lr ({self.optimizer.lr})")
        return self

    @model_validator(mode="after")
    def _task_exists(self) -> Self:
        if tasks.is_own_task(self.task):
            return self
        if self.task not in tasks.BUILT_IN:
            known = ", ".join(sorted(tasks.BUILT_IN))
            raise at_field(
                ("task",), f"no task is named {self.task!r}; built in: {known}; or path/to/file.py:ClassName"
            )
        try:
            tasks.parse_args(self.task, self.task_args)
        except ValidationError as error:
            line = error.errors()[0]
            raise at_field(("task_args", *line["loc"]), f"{line['msg']}, got {line['input']!r}") from None
        return self


class Script(_Spec):
    """An existing torchrun script, run unchanged."""

    command: Annotated[list[str], Field(min_length=1, max_length=1_000)]
    """Script and arguments, as after ``torchrun``: ``[train.py, --lr, "3e-4"]``. A name ending in ``.py`` is run by the
    node's Python; anything else is run as a program."""
    nproc_per_node: Annotated[int, Field(ge=1, le=1_024)] | None = None
    """Ranks per node; null starts one per device."""

    @field_validator("command")
    @classmethod
    def _not_empty(cls, command: list[str]) -> list[str]:
        if not command[0].strip():
            raise ValueError("the first word, the script or program, is empty")
        if any("\0" in word for word in command):
            raise ValueError("a word contains a NUL character")
        return command


class UploadedCode(_Spec):
    """A code archive sent before with ``PUT /v1/uploads/{sha256}``."""

    upload: Sha256


class GitCode(_Spec):
    """A commit of a git repository that the nodes can reach."""

    git: Annotated[str, Field(min_length=1, max_length=2_000)]
    ref: Annotated[str, Field(min_length=1, max_length=500)] = "HEAD"


class PathCode(_Spec):
    """A folder that is already on the nodes."""

    path: Annotated[str, Field(pattern=r"^/")]


class Retry(_Spec):
    """How often a job whose failure may pass is tried again."""

    max: Annotated[int, Field(ge=0, le=100)] = 3
    """Retries after the first attempt. Preemption and service restarts are not counted."""


class JobSpec(_Spec):
    """A training job, as a person writes it."""

    name: Name
    project: Name = "default"
    kind: Literal["train", "script"]
    resources: Resources = Resources()
    train: Train | None = None
    script: Script | None = None
    code: UploadedCode | GitCode | PathCode | None = None
    env: dict[EnvName, Annotated[str, Field(max_length=32_768)]] = Field(default_factory=dict, max_length=1_000)
    secrets: Annotated[list[EnvName], Field(max_length=100)] = Field(default_factory=list)
    retry: Retry = Retry()
    timeout_seconds: Annotated[float, Field(gt=0, le=366 * 24 * 3600)] | None = None
    """Seconds of running, over all attempts, after which the job is stopped and failed; null has no limit."""
    priority: Annotated[int, Field(ge=0, le=100)] = 50
    """Larger goes first; equal priorities go by age."""
    labels: Annotated[
        dict[Annotated[str, Field(max_length=63)], Annotated[str, Field(max_length=255)]], Field(max_length=64)
    ] = Field(default_factory=dict)

    @field_validator("env")
    @classmethod
    def _env_is_free(cls, env: dict[str, str]) -> dict[str, str]:
        taken = sorted(name for name in env if name in RESERVED_ENV or re.match(r"LOCKSTEP_|TORCHELASTIC_", name))
        if taken:
            raise ValueError(f"{', '.join(taken)}: set by the launcher for each rank; use another name")
        if any("\0" in value for value in env.values()):
            raise ValueError("a value contains a NUL character")
        return env

    @model_validator(mode="after")
    def _kind_has_its_section(self) -> Self:
        for section in ("train", "script"):
            present = getattr(self, section) is not None
            if present and self.kind != section:
                raise at_field((section,), f"kind is {self.kind!r}, so there must be no {section!r} section")
            if not present and self.kind == section:
                raise at_field((section,), f"kind is {self.kind!r}, so a {section!r} section is needed")
        if self.train is not None and tasks.is_own_task(self.train.task) and self.code is None:
            raise at_field(("code",), f"task {self.train.task!r} is a file of the job's code, but there is no code")
        return self

    def world_size(self) -> int:
        """Ranks of one attempt; an elastic job starts at its largest."""
        if self.script is not None and self.script.nproc_per_node is not None:
            return self.script.nproc_per_node * (self.resources.nodes or 1)
        return self.device_count()

    def device_count(self) -> int:
        """Devices of one attempt; an elastic job starts at its largest."""
        gpus = self.resources.gpus
        return gpus if isinstance(gpus, int) else gpus.max


def at_field(location: tuple[str | int, ...], message: str) -> PydanticCustomError:
    """An error about one field, from a validator that saw the whole model (``domain.reading`` adds the location)."""
    return PydanticCustomError("at_field", "{message}", {"message": message, "location": location})
