"""The attempt's folder: the contract between agent, launcher and engine, so that any of them can die.

Each assignment of an attempt has one folder on its node. The three programs share nothing else: no pipe, no socket, no
parenthood. Every file is JSON, written to a temporary name in the same folder and renamed, so that a reader sees it
whole or not at all; the spools and logs are appended line by line, and a reader takes whole lines only.

========================  ============  ====================================================================
file                      written by    says
========================  ============  ====================================================================
``assignment.json``       agent         what to run (``AssignmentFile``); complete before the launcher starts
``launcher.json``         launcher      which process it is (``LauncherFile``), so that a new agent can adopt it
``fence``                 agent         a deadline (``FenceFile``) after which the launcher kills its ranks by itself
``stop``                  agent         a graceful stop is asked for (``StopFile``)
``result.json``           launcher      the outcome (``ResultFile``); its presence means that no rank is left
``ranks.json``            launcher      ``{"ranks": [{"rank": int, "pid": int}]}`` once all were started: for drills and operators
``errors/rank<R>.json``   rank R        ``{"reason": Reason, "exception": str, "traceback": str, "step": int, "time": float}``:
                                        why it failed; ``errors/elastic<R>.json`` is torch's ``record``, for scripts
``launch/``               launcher      the ranks' pipes and command; gone before the result is written
``pulse/``                rank R        ``rank<R>``: what it does right now, for the launcher (``engine.runtime.heartbeat``); gone as well
``stacks/``               rank R        ``rank<R>.txt``, ``rank<R>.json``: stacks and last collectives of a run that stalled
``spool/metrics.jsonl``   rank 0        one ``metrics.Record`` per line
``spool/events.jsonl``    rank 0        one ``EngineEvent`` per line
``spool/system.jsonl``    agent         one ``metrics.Record`` per line: what the attempt takes of its node (``worker.devices.sampling``)
``tensorboard/``          script        TensorBoard event files, whose scalars are stored as series (``worker.upload.tensorboard``)
``logs/NNNNNN.jsonl``     launcher      one ``LogRecord`` per line, in segments numbered from 0; of those that lie wholly
                                        before ``logs/shipped`` the agent deletes the oldest
``logs/shipped``          agent         ``ShippedFile``: what of the logs is in the database, so that the launcher can
                                        hold its ranks back when shipping lags
``checkpoints/``          rank 0        one folder per checkpoint, complete when it has its ``manifest.json``
``resume/``               agent         the checkpoint to go on from, if any
``init/``                 agent         another job's checkpoint to take the first weights from, if ``train.init_from`` names one
``code/``                 agent         the job's code, unpacked, or nothing; the ranks' working directory
``launcher.log``          agent         the launcher's own output
``memory_before.json``    agent         ``MemoryFile``: what the devices' memory must come back to before they are released
========================  ============  ====================================================================

Not here: what the launcher does with it (``engine.launcher``), and how it is shipped (``worker.upload.shipping``).
"""

from __future__ import annotations

from typing import Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, ModelWrapValidatorHandler, model_validator

from lockstep.domain.life.outcomes import Outcome
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.stored import read_tolerantly
from lockstep.domain.training.plan import BatchPlan

ASSIGNMENT: Final = "assignment.json"
LAUNCHER: Final = "launcher.json"
FENCE: Final = "fence"
STOP: Final = "stop"
RESULT: Final = "result.json"
METRICS: Final = "spool/metrics.jsonl"
EVENTS: Final = "spool/events.jsonl"
SYSTEM: Final = "spool/system.jsonl"
TENSORBOARD: Final = "tensorboard"
LOGS: Final = "logs"
SHIPPED: Final = "logs/shipped"
CHECKPOINTS: Final = "checkpoints"
RESUME: Final = "resume"
INIT: Final = "init"
CODE: Final = "code"
LAUNCHER_LOG: Final = "launcher.log"
MANIFEST: Final = "manifest.json"
RANKS: Final = "ranks.json"
ERRORS: Final = "errors"
LAUNCH: Final = "launch"
PULSE: Final = "pulse"
STACKS: Final = "stacks"
MEMORY_BEFORE: Final = "memory_before.json"
MARK_VARIABLE: Final = "LOCKSTEP_ATTEMPT_FOLDER"
"""In the first environment of a launcher, and so of its ranks: the attempt's folder."""
GROUP_VARIABLE: Final = "LOCKSTEP_CGROUP"
"""In the launcher's environment: the folder of the control group that it enters first, if the agent could make one."""


def segment_name(number: int) -> str:
    """File name of a log segment inside ``logs/``."""
    return f"{number:06d}.jsonl"


class _File(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Order(_File):
    """A file that must be carried out whole, by a program of perhaps another version: see ``domain.spec.stored``."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="wrap")
    @classmethod
    def _tolerant(cls, document: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        return read_tolerantly(document, validate)


class AssignmentFile(_Order):
    """What one node is to run for one attempt. Holds no credential of the service."""

    job_id: str
    attempt_number: int
    """Counted from 1."""
    assignment_id: str
    spec: JobSpec
    plan: BatchPlan | None
    """None for a script."""
    node_name: str
    node_rank: int = 0
    node_count: int = 1
    ranks_here: int
    """Ranks to start on this node."""
    world_size: int
    devices: list[int]
    """Indices of the node's devices that the attempt holds, one per rank in rank order."""
    device_kind: Literal["cuda", "cpu"]
    rendezvous_host: str = "127.0.0.1"
    rendezvous_port: int
    interface: str | None = None
    """Network interface that reaches the attempt's other nodes; None leaves the choice to NCCL and Gloo."""
    stop_grace_seconds: float
    exit_stall_seconds: float


class LauncherFile(_File):
    """Which process the launcher is. A pid alone may have been given to another process since."""

    pid: int
    start_ticks: int
    """Field 22 of ``/proc/PID/stat``: clock ticks from boot to the process's start."""
    boot_id: str
    """``/proc/sys/kernel/random/boot_id``."""


class FenceFile(_Order):
    """When the launcher must have killed its ranks unless the agent renews."""

    deadline_boottime: float
    """Seconds on ``CLOCK_BOOTTIME``, counted from *before* the renewing statement was sent."""


class StopFile(_Order):
    """A graceful stop: ranks save a checkpoint at a step boundary and end. After the grace they are killed.

    Of a train job, a step that is unfinished at half the grace is abandoned, and the one before it saved.
    """

    reason: Literal["cancelled", "timed_out", "shutdown", "preempted"]
    grace_seconds: float


class ResultFile(_File):
    """How the attempt ended on this node. Written after the last process of it is gone."""

    outcome: Outcome
    ended_at: float
    """Seconds since the epoch."""


class LogRecord(_File):
    """One line that a rank wrote, stamped when the launcher read it."""

    time: float
    """Seconds since the epoch."""
    rank: int
    """Global rank; -1 for the launcher itself."""
    stream: Literal["stdout", "stderr", "launcher"]
    text: str
    """Without its newline. Bytes that are not UTF-8 are replaced by U+FFFD."""


class ShippedFile(_File):
    """What of the logs is safely in the database: everything before this place."""

    segment: int
    offset: int
    """Bytes into that segment."""


class MemoryFile(_File):
    """Memory in use on the attempt's GPUs before it was launched."""

    used_bytes: dict[int, int]
    """By the device's index."""


class EngineEvent(_File):
    """Something that rank 0, or the launcher, wants known beyond a number.

    ======================  ==================================================================================
    kind                    data
    ======================  ==================================================================================
    ``running``             ``{}``: all ranks have met
    ``plan``                ``BatchPlan`` as settled, plus ``parameters`` (count), ``samples`` (of the dataset),
                            ``steps`` (of the run): what the engine actually does. Again when it changes, and when
                            ``memory``, its forecast, has been worked out
    ``resumed``             ``{"step": int, "from": str}``
    ``initialized``         ``{"from": str}``: a fresh start from the weights that ``train.init_from`` names
    ``checkpoint``          ``{"step": int, "folder": str, "bytes": int, "sha256": str, "final": bool}``; ``folder`` is
                            relative to ``checkpoints/``; ``sha256`` is of its manifest. With ``keep_best`` also
                            ``"metric": {"name": str, "value": number or None}``
    ``checkpoint_skipped``  ``{"folder": str, "why": str}``: torn or damaged, not used
    ``memory``              ``{"measured_bytes": number or None, "measure": str, "forecast_bytes": number
                            or None, "flops_per_sample": number or None, "peak_flops": number or None}``: at the end
                            of a run; ``measure`` is ``allocated`` on CUDA and ``tensors`` on the CPU, or, where
                            ``measured_bytes`` is None, why; the last two are what ``throughput/tflops_per_second``
                            and ``throughput/mfu`` are worked out from
    ``warning``             ``{"message": str}``
    ======================  ==================================================================================
    """

    kind: Literal["running", "plan", "resumed", "initialized", "checkpoint", "checkpoint_skipped", "memory", "warning"]
    time: float
    """Seconds since the epoch."""
    data: dict[str, Any] = {}
