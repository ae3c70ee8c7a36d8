"""Attempt folder: the contract between agent, launcher and engine.

Each of them may die at any time.

Each assignment of an attempt has one folder on its node. The three programs share nothing else: no
pipe, no socket, no parenthood. Every file is JSON, written to a temporary name in the same folder
and renamed, so a reader never sees a partial file. The agent keeps space for those without which
a full disk would change the attempt's end: ``fence``, ``stop``, ``gang_failed``, ``stop.json``,
``result.json`` and ``logs/uploaded``. Spools and logs are appended line by line, and a
reader takes whole lines only.

* ``assignment.json`` (agent): the work (``AssignmentFile``); complete before the launcher starts.
* ``launcher.json`` (launcher): its process (``LauncherFile``), so that a new agent can adopt it.
* ``fence`` (agent): a deadline (``FenceFile``) after which the launcher kills its ranks by itself.
* ``stop`` (agent): request for a graceful stop (``StopFile``).
* ``gang_failed`` (agent): empty; ranks of another node failed, so these must end.
* ``stop.json`` (launcher): the same for a script (``StopNotice``), written before its signal.
* ``result.json`` (launcher): the outcome (``ResultFile``); its presence means that no rank is left.
* ``ranks.json`` (launcher): ``{"ranks": [{"rank": int, "pid": int}]}`` once all were started, for
  drills and operators.
* ``errors/rank<R>.json`` (rank R): its failure: ``{"reason": Reason, "exception": str, "traceback":
  str, "step": int, "time": float}``. ``errors/elastic<R>.json`` is torch's ``record``, for scripts.
* ``launch/`` (launcher): the ranks' pipes, their command, and the store of a train job on one node;
  removed before the result is written.
* ``heartbeats/`` (rank R): ``rank<R>``, its heartbeat (``engine.runtime.heartbeat``); removed as
  well.
* ``stacks/`` (rank R): ``rank<R>.txt`` and ``rank<R>.json``, stacks and last collectives of a run
  that stalled; of a script that is silent, stacks, removed before the result is written.
* ``spool/metrics.jsonl`` (rank 0): one ``metrics.StepValues`` per line.
* ``spool/events.jsonl`` (rank 0): one ``EngineEvent`` per line.
* ``spool/system.jsonl`` (agent): one ``metrics.StepValues`` per line, the attempt's use of its node
  (``worker.devices.sampling``).
* ``tensorboard/`` (script): TensorBoard event files; scalars are stored as series
  (``worker.upload.tensorboard``).
* ``logs/NNNNNN.jsonl`` (launcher): one ``LogRecord`` per line, in segments numbered from 0. The
  agent deletes the oldest of the segments before ``logs/uploaded``.
* ``logs/uploaded`` (agent): ``UploadedFile``, the part of the logs that is in the database. The
  launcher pauses its ranks when uploads lag.
* ``checkpoints/`` (rank 0): one folder per checkpoint, complete when it has its ``manifest.json``.
* ``save_time.json`` (first rank of each node): ``grace.SaveTime``, a forecast after the first step,
  and on rank 0 the duration of the last save. The grace of a stop depends on it.
* ``resume/`` (agent): the checkpoint to resume from, if any.
* ``init/`` (agent): another job's checkpoint with the initial weights, if ``train.init_from`` names
  one.
* ``code/`` (agent): the job's code, unpacked, or nothing; the ranks' working directory.
* ``output/`` (ranks): ``$LOCKSTEP_OUTPUT`` of a job whose code is used in place; of others it is in
  ``code/``.
* ``kept.json`` (agent): ``KeptMemory``, the code as it was unpacked and the files that are stored.
* ``launcher.log`` (agent): the launcher's own output.
* ``memory_before.json`` (agent): ``MemoryFile``, device memory to return to before the devices are
  released.

Not here: the launcher (``engine.launcher``), uploads (``worker.upload``).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, Field, ModelWrapValidatorHandler, model_validator

from lockstep.domain.kinds.devices import DeviceName
from lockstep.domain.life.grace import StopReason
from lockstep.domain.life.outcomes import Outcome
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.stored import read_tolerantly
from lockstep.domain.training.plan import BatchPlan

ASSIGNMENT: Final = "assignment.json"
LAUNCHER: Final = "launcher.json"
FENCE: Final = "fence"
STOP: Final = "stop"
STOP_NOTICE: Final = "stop.json"
GANG_FAILED: Final = "gang_failed"
ENDED_WITH_GANG: Final = "the ranks on this node were ended because those of another node failed"
"""Message of an outcome."""
RESULT: Final = "result.json"
METRICS: Final = "spool/metrics.jsonl"
EVENTS: Final = "spool/events.jsonl"
SYSTEM: Final = "spool/system.jsonl"
TENSORBOARD: Final = "tensorboard"
LOGS: Final = "logs"
UPLOADED: Final = "logs/uploaded"
FOLLOWED: Final = "followed.json"
EVENT_FILES: Final = "event_files.json"
REPORTED: Final = "reported.json"
CHECKPOINTS: Final = "checkpoints"
SAVE_TIME: Final = "save_time.json"
RESUME: Final = "resume"
INIT: Final = "init"
CODE: Final = "code"
OUTPUT: Final = "output"
KEPT: Final = "kept.json"
LAUNCHER_LOG: Final = "launcher.log"
MANIFEST: Final = "manifest.json"
RANKS: Final = "ranks.json"
ERRORS: Final = "errors"
LAUNCH: Final = "launch"
HEARTBEATS: Final = "heartbeats"
STACKS: Final = "stacks"
MEMORY_BEFORE: Final = "memory_before.json"
MARK_VARIABLE: Final = "LOCKSTEP_ATTEMPT_FOLDER"
"""In the first environment of a launcher, and so of its ranks: the attempt's folder."""
GROUP_VARIABLE: Final = "LOCKSTEP_CGROUP"
"""In the launcher's environment: the folder of the control group that it enters first, if the agent
could make one."""
UMASK_VARIABLE: Final = "LOCKSTEP_UMASK"
"""In the launcher's environment: the file mode mask of its ranks, in octal digits. The service's
files are for its user alone, and a script's files are as its node would make them."""


def segment_name(number: int) -> str:
    """File name of a log segment inside ``logs/``."""
    return f"{number:06d}.jsonl"


class _File(BaseModel, frozen=True):
    """A file of the folder."""


class _Order(_File, extra="forbid"):
    """A file that must be carried out whole, by a program of perhaps another version.

    See ``domain.spec.stored``.
    """

    @model_validator(mode="wrap")
    @classmethod
    def _tolerant(cls, document: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        return read_tolerantly(document, validate)


class AssignmentFile(_Order):
    """Work of one node for one attempt. Holds no credential of the service."""

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
    device_kind: DeviceName
    rendezvous_host: str = "127.0.0.1"
    rendezvous_port: int
    interface: str | None = None
    """Network interface that reaches the attempt's other nodes; None leaves the choice to NCCL and
    Gloo."""
    stop_grace_seconds: float
    exit_stall_seconds: float


class LauncherFile(_File):
    """Identity of the launcher's process. A pid alone may belong to another process by now."""

    pid: int
    start_ticks: int
    """Field 22 of ``/proc/PID/stat``: clock ticks from boot to the process's start."""
    boot_id: str
    """``/proc/sys/kernel/random/boot_id``."""


class FenceFile(_Order):
    """Deadline by which the launcher must have killed its ranks, unless the agent renews it."""

    deadline_boottime: float
    """Seconds on ``CLOCK_BOOTTIME``, counted from *before* the renewing statement was sent."""


class StopFile(_Order):
    """A graceful stop: ranks save a checkpoint at a step boundary and end.

    After the grace (``domain.life.grace``) they are killed. A file that replaces it may shorten the
    grace.

    Of a train job, a step that is unfinished at half the grace is abandoned, and the one before it
    saved.
    """

    reason: StopReason
    grace_seconds: float


class StopNotice(_File):
    """Request to stop, for a script: it may read why, and until when it may save."""

    reason: StopReason
    deadline: float
    """Seconds since the epoch. Its processes are killed then."""


class ResultFile(_File):
    """Result of the attempt on this node. Written after its last process is gone."""

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


class FollowedFile(_File):
    """Identity of the metrics file that the agent reads, for a later agent.

    An *offset* counts all bytes of the attempt's metrics, also of the file's earlier contents.
    """

    base: int
    """Offset of the first byte of the file's present content."""
    offset: int
    """Offset up to which it is stored."""
    last_bytes: Annotated[str, Field(pattern="^([0-9a-f]{2})*$")]
    """The bytes before that offset, in hexadecimal digits."""


class EventFile(_File):
    """One TensorBoard event file of a script."""

    head: Annotated[str, Field(pattern="^([0-9a-f]{2})+$")]
    """Its first record, in hexadecimal digits."""
    source: str
    """Source of its offset in the database."""


class EventFilesFile(_File):
    """Event files that the agent reads, for a later agent."""

    files: dict[str, EventFile]
    """By their names below the folder."""
    used: list[str]
    """All sources of the attempt."""


class ReportedFile(_File):
    """Keys of the events that an attempt gets once, however often its agent is restarted."""

    keys: list[str]


class UploadedFile(_File):
    """Offset of the logs up to which all lines are in the database."""

    segment: int
    offset: int
    """Bytes into that segment."""


class MemoryFile(_File):
    """Memory in use on the attempt's GPUs before it was launched."""

    used_bytes: dict[int, int]
    """By the device's index."""


FileStamp = tuple[int, int, int, int]
"""Bytes, time of the contents, time of the last change (both in ns), and inode of a file."""


class KeptMemory(_File):
    """Known files of the job. A file with the same stamp is not read again."""

    code: dict[str, FileStamp] = {}
    """Names of the job's own code, by path in its working folder."""
    sent: dict[str, tuple[FileStamp | None, str]] = {}
    """Stored files, with the SHA-256 of what is stored. No stamp: the contents were lost."""


class EngineEvent(_File):
    """Event of rank 0 or the launcher, beside the metrics.

    Kinds and their data:

    * ``running``: ``{}``; the rendezvous of all ranks is complete.
    * ``plan``: ``BatchPlan`` as chosen, plus ``parameters`` (count), ``samples`` (of the dataset),
      ``steps`` (of the run). Sent again when it changes, and when ``memory``, its forecast, is
      computed.
    * ``resumed``: ``{"step": int, "from": str, "exact": bool}``; ``exact`` if the run ends as one
      that was not interrupted, in every bit. With other training fields also ``"changed": str``,
      with state that could not be restored ``"why": list of str``.
    * ``initialized``: ``{"from": str}``; a fresh start from the weights that ``train.init_from``
      names.
    * ``checkpoint``: ``{"step": int, "folder": str, "bytes": int, "sha256": str, "final": bool,
      "seconds": number}``.
      ``folder`` is relative to ``checkpoints/``; ``sha256`` is of its manifest. With ``keep_best``
      also ``"metric": {"name": str, "value": number or None}``.
    * ``checkpoint_skipped``: ``{"folder": str, "why": str}``; truncated or damaged, not used.
    * ``code_incomplete``: ``{"why": str}``; content that git keeps elsewhere and was not fetched.
    * ``memory``: ``{"measured_bytes": number or None, "measure": str, "forecast_bytes": number or
      None, "flops_per_sample": number or None, "peak_flops": number or None}`` at the end of a run.
      ``measure`` is ``allocated`` on CUDA and ``tensors`` on the CPU, or, if ``measured_bytes`` is
      None, the reason. ``throughput/tflops_per_second`` and ``throughput/mfu`` are computed from
      the last two.
    * ``silent``: ``{"message": str, "node": str, "ranks": list of int, "seconds": number,
      "stacks": str}``; a script wrote nothing for ``script.silence_seconds`` while its devices were
      idle. Once per node and silence.
    * ``output_again``: the same without ``stacks``; that silence of the node has ended.
    * ``warning``: ``{"message": str}``.
    """

    kind: Literal[
        "running",
        "plan",
        "resumed",
        "initialized",
        "checkpoint",
        "checkpoint_skipped",
        "code_incomplete",
        "memory",
        "silent",
        "output_again",
        "warning",
    ]
    time: float
    """Seconds since the epoch."""
    data: dict[str, Any] = {}
