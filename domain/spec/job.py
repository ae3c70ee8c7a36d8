"""Job spec: one type for the request body, the stored spec, the YAML file and the engine.

Every field of the interface is defined and checked here, also those of later versions, which
``domain.spec.feature_gate`` refuses by name. Unknown fields are refused, never ignored.

Not here: values derived from the spec (``domain.training.plan``), placement
(``domain.scheduling.decide``), the section about sharing of work between ranks
(``domain.spec.strategy``).
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import (
    AfterValidator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from lockstep.domain import limits
from lockstep.domain.errors import at_field
from lockstep.domain.kinds.offers import CUDA, OFFERS_MAX, normal
from lockstep.domain.spec import tasks
from lockstep.domain.spec.fields import (
    FOLDER,
    NO_BOOL,
    EnvName,
    FreeEnvName,
    Name,
    Offer,
    Section,
    Sha256,
    choice,
    git_ref,
    git_url,
    kind_of_code,
    kind_of_gpus,
    no_nul,
)
from lockstep.domain.spec.optimizer import Optimizer as Optimizer  # noqa: PLC0414 - the same
from lockstep.domain.spec.optimizer import Schedule as Schedule  # noqa: PLC0414 - the same
from lockstep.domain.spec.outputs import Outputs
from lockstep.domain.spec.strategy import Strategy as Strategy  # noqa: PLC0414 - so that spec.Strategy is a name for others, too
from lockstep.domain.spec.train import Train

SILENCE_SECONDS: Final = 600.0
"""Not written into stored specs: programs of the version before do not know the field."""


class GpuRange(Section):
    """An elastic job's bounds: it may be shrunk to ``min`` and grown to ``max`` while it lives."""

    min: Annotated[int, Field(ge=1, le=limits.WORLD_SIZE_MAX), NO_BOOL]
    """Devices the job is never shrunk below."""
    max: Annotated[int, Field(ge=1, le=limits.WORLD_SIZE_MAX), NO_BOOL]
    """Devices the job is never grown beyond."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise at_field(
                ("max",), f"expected at least min ({self.min})", "swap min and max, or raise max"
            )
        return self


class Resources(Section):
    """Devices the job asks for. One rank runs on each."""

    gpus: Annotated[
        Annotated[int, Field(ge=1, le=limits.WORLD_SIZE_MAX), NO_BOOL, Tag("count")]
        | Annotated[GpuRange, Tag("GpuRange")],
        choice(kind_of_gpus, "a number of devices, or {min: 1, max: 8}"),
    ] = 1
    """Devices over all nodes (GPUs.

    CPU slots on nodes without GPUs), or bounds for an elastic job.
    """
    gpu_type: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Device type as ``lockstep nodes`` prints it (``NVIDIA H200``, ``cpu``); null takes any, but
    never two types."""
    nodes: Annotated[int, Field(ge=1, le=1_024), NO_BOOL] | None = None
    """Exactly this many nodes, with equally many devices each; null takes one node. The result is
    the same on any number; the speed is not, so a job is never spread without being asked."""
    needs: Annotated[list[Offer], Field(max_length=OFFERS_MAX), AfterValidator(normal)] = Field(
        default_factory=list
    )
    """Names that each of its nodes offers, such as ``data:imagenet`` (docs/several_nodes.md). Names
    that are given twice count once."""

    @model_validator(mode="after")
    def _nodes_divide(self) -> Self:
        if self.nodes is not None and isinstance(self.gpus, int) and self.gpus % self.nodes:
            raise at_field(
                ("gpus",),
                f"expected a multiple of nodes ({self.nodes}), because all nodes provide the same "
                f"number",
                "change gpus, or omit nodes",
            )
        return self


class Script(Section):
    """An existing torchrun script, run unchanged."""

    command: Annotated[
        list[Annotated[str, AfterValidator(no_nul)]], Field(min_length=1, max_length=1_000)
    ]
    """Script and arguments, as after ``torchrun``: ``[train.py, --lr, "3e-4"]``. A name ending in
    ``.py`` and a module (``[-m, pkg.train]``) are run by the node's Python; anything else is run as
    a program. A launcher
    (``torchrun``, ``accelerate``, ``deepspeed``, ``mpirun``) that would be started in more than one
    rank is refused: Lockstep starts the ranks."""
    nproc_per_node: Annotated[int, Field(ge=1, le=1_024), NO_BOOL] | None = None
    """Ranks per node; null starts one per device."""
    silence_seconds: Annotated[float, Field(ge=1, le=7 * 24 * 3600), NO_BOOL] | None = Field(
        default=SILENCE_SECONDS, exclude_if=lambda seconds: seconds == SILENCE_SECONDS
    )
    """Seconds without output, without a metric and with idle devices after which the job gets the
    event ``silent``, with the stacks of its ranks; null reports nothing. The job continues."""

    @field_validator("command")
    @classmethod
    def _not_empty(cls, command: list[str]) -> list[str]:
        if not command[0].strip():
            raise at_field(
                (0,),
                "expected a script or a program",
                "put the script first, such as [train.py, --lr, 0.1]",
            )
        if command[0] in ("-m", "--module") and not (
            len(command) > 1 and re.fullmatch(r"\w+(\.\w+)*", command[1])
        ):
            raise at_field(
                (1,) if len(command) > 1 else (0,),
                f"expected a module after {command[0]}",
                "write it as Python does, such as [-m, package.train]",
            )
        return command


class UploadedCode(Section):
    """A code archive sent before with ``PUT /v1/uploads/{sha256}``."""

    upload: Sha256
    """The archive's SHA-256, which is also its name in the store."""


class GitCode(Section):
    """A commit of a git repository that the service and its nodes can reach."""

    git: Annotated[str, Field(min_length=1, max_length=2_000), AfterValidator(git_url)]
    """The repository's address, without a password: the machines' own keys and credential helpers
    are used."""
    ref: Annotated[str, Field(min_length=1, max_length=500), AfterValidator(git_ref)] = "HEAD"
    """Branch, tag or whole commit id. It is resolved at the submit; every attempt runs the same
    commit. Submodules are fetched, too; their addresses follow the rules of the repository's."""


class PathCode(Section):
    """A folder that is already on the nodes."""

    path: Annotated[str, Field(pattern=FOLDER)]
    """Absolute path of the folder on every node."""


RETRY_EXIT_CODES: Final = (75,)
"""``EX_TEMPFAIL`` of sysexits.h. Not written into stored specs, as above."""


class Retry(Section):
    """Retries of a job after a failure that may pass, or that asks for one."""

    max: Annotated[int, Field(ge=0, le=100), NO_BOOL] = 3
    """Retries after the first attempt. Preemption and service restarts are not counted, and
    progress since the last failure (a newer checkpoint; of a script, a later step in its metrics)
    starts the count again. ``3`` ends a job when four attempts in a row got no further."""
    total: Annotated[int, Field(ge=1, le=1_000), NO_BOOL] | None = None
    """Attempts in all, counted or not; null has no limit of its own."""
    on_exit: Annotated[
        list[Annotated[int, Field(ge=1, le=255), NO_BOOL]], Field(max_length=255)
    ] = Field(
        default_factory=lambda: [*RETRY_EXIT_CODES],
        exclude_if=lambda codes: codes == [*RETRY_EXIT_CODES],
    )
    """Exit codes by which a rank asks for a retry. It is counted like one after a failure."""
    on_error: bool = False
    """Retry after every exception and every exit code of the job's own code, too."""


class Retention(Section):
    """Time for which a job's data is kept after its end; null keeps it until the job is deleted."""

    metrics_days: Annotated[int, Field(ge=1, le=limits.RETENTION_DAYS_MAX), NO_BOOL] | None = None
    """Days until the points of its series are deleted. The last value of each series stays."""
    logs_days: Annotated[int, Field(ge=1, le=limits.RETENTION_DAYS_MAX), NO_BOOL] | None = None
    """Days until the lines of its log are deleted."""
    files_days: Annotated[int, Field(ge=1, le=limits.RETENTION_DAYS_MAX), NO_BOOL] | None = None
    """Days until the files that it kept are deleted."""


class JobSpec(Section):
    """A training job, as a user writes it."""

    name: Name
    project: Annotated[
        Name,
        Field(
            description="A job that gives none goes to `default` if you may submit there, else to "
            "your only project."
        ),
    ] = "default"
    kind: Literal["train", "script"]
    """``train``: the engine owns the loop and keeps the promise about the batch. ``script``: your
    own torchrun script."""
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
            choice(
                kind_of_code,
                "exactly one of {upload: SHA256}, {git: URL, ref: REF} and {path: FOLDER}",
            ),
        ]
        | None
    ) = None
    """Source of the job's own files; null for a job without any."""
    env: Annotated[
        dict[FreeEnvName, Annotated[str, Field(max_length=32_768), AfterValidator(no_nul)]],
        Field(max_length=1_000),
    ] = Field(default_factory=dict)
    """Environment variables of every rank, beside those that ``docs/environment.md`` lists."""
    secrets: Annotated[list[EnvName], Field(max_length=100)] = Field(default_factory=list)
    """Names of stored secrets that the ranks get as environment variables."""
    retry: Retry = Retry()
    retention: Retention = Retention()
    outputs: Outputs = Field(
        default_factory=Outputs, exclude_if=lambda outputs: outputs == Outputs()
    )
    """Files that are kept. Not written into stored specs by default, as above."""
    timeout_seconds: Annotated[float, Field(gt=0, le=366 * 24 * 3600), NO_BOOL] | None = None
    """Seconds of running, over all attempts, after which the job is stopped and failed; null has no
    limit."""
    stop_signal: Literal["TERM", "INT", "USR2", "HUP"] = Field(
        default="TERM", exclude_if=lambda name: name == "TERM"
    )
    """Signal that asks the ranks of a script to end, also on cancel: each rank's session gets it,
    and SIGKILL after the grace. ``$LOCKSTEP_STOP`` names the file with the reason. Not ``USR1``,
    which NCCL catches. A train job is asked without a signal."""
    stop_grace_seconds: (
        Annotated[float, Field(ge=0, le=limits.STOP_GRACE_SECONDS_MAX), NO_BOOL] | None
    ) = None
    """Seconds from the request to stop to SIGKILL. Null gives a script 30 s, and a train job three
    times its last save, which a number here does not shorten. With a number the request comes this
    much before ``timeout_seconds``, and without one then."""
    continues: (
        Annotated[str, Field(min_length=1, max_length=255), AfterValidator(no_nul)] | None
    ) = None
    """An ended job, whose newest checkpoint and kept files the first attempt begins with; `lockstep
    resume` of an ended job sets it. The other job stays as it ended."""
    priority: Annotated[int, Field(ge=0, le=100), NO_BOOL] = 50
    """Larger goes first; equal priorities go by age."""
    labels: Annotated[
        dict[
            Annotated[str, Field(max_length=limits.LABEL_KEY_CHARS_MAX)],
            Annotated[str, Field(max_length=limits.LABEL_VALUE_CHARS_MAX)],
        ],
        Field(max_length=limits.LABELS_PER_JOB_MAX),
    ] = Field(default_factory=dict)
    """Marks of your own, to find jobs by. They can be changed later, and the spec stays."""

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
    def _stop_fits(self) -> Self:
        if self.kind == "train" and self.stop_signal != "TERM":
            raise at_field(
                ("stop_signal",),
                "not allowed, because kind is train: its ranks save and end without a signal",
                "remove it",
            )
        seconds, limit = self.stop_grace_seconds, self.timeout_seconds
        if seconds is not None and limit is not None and seconds >= limit:
            raise at_field(
                ("stop_grace_seconds",),
                f"expected less than timeout_seconds ({limit:g}), before which it begins",
                "lower it, or raise timeout_seconds",
            )
        return self

    @model_validator(mode="after")
    def _strategy_fits(self) -> Self:
        if self.train is not None:
            self.train.strategy.check_run(precision=self.train.precision, steps=self.train.steps)
            self.train.strategy.check_devices(
                gpu_type=self.resources.gpu_type, nodes=self.resources.nodes
            )
            gpus = self.resources.gpus
            fewest = self.world_size() if isinstance(gpus, int) else gpus.min
            unit = self.train.parallel.ranks_per_copy
            self.train.strategy.check_ranks(fewest, self.world_size(), unit)
        return self

    def needs(self) -> list[str]:
        """Return what its nodes offer: as the spec says, and as its strategy requires."""
        drives_gpus = self.train is not None and self.train.strategy.kind.one_process
        return normal([*self.resources.needs, *[CUDA] * drives_gpus])

    def ranks_per_node(self) -> int | None:
        """Ranks on each node; None where it is one per device."""
        if self.script is not None:
            return self.script.nproc_per_node
        return 1 if self.train is not None and self.train.strategy.kind.one_process else None

    def world_size(self) -> int:
        """Ranks of one attempt; an elastic job starts at its largest."""
        per_node = self.ranks_per_node()
        return self.device_count() if per_node is None else per_node * (self.resources.nodes or 1)

    def device_count(self) -> int:
        """Devices of one attempt; an elastic job starts at its largest."""
        gpus = self.resources.gpus
        return gpus if isinstance(gpus, int) else gpus.max
