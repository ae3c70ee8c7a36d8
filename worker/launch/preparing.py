"""Preparation of an attempt's folder: code, checkpoint, and the assignment that the launcher reads.

Every part may be repeated after an interrupted call.

Not here: the choice of the checkpoint (``worker.launch.resuming``), retries, and the start of the
launcher (``worker.agent.assignment``).
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, cast

from lockstep.domain.kinds.devices import DeviceName
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import AssignmentFile, EngineEvent
from lockstep.domain.life.timings import Timings
from lockstep.domain.spec.init_from import job_checkpoint
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.stored import read_stored_spec
from lockstep.domain.training.memory import in_words
from lockstep.domain.training.plan import BatchPlan
from lockstep.storage.attempts.attempts import Claim, Published
from lockstep.storage.objects.blobs import BlobStore
from lockstep.system.files import BROKEN, FULL
from lockstep.worker.folders import Folder
from lockstep.worker.launch import code, resuming

DISK_FREE_BYTES_MIN: Final = 64 * 2**20
"""On the disk of the node's folder. Below it no attempt is started: its logs, metrics and
checkpoints would not fit."""


class InitUnavailableError(Exception):
    """The checkpoint that ``train.init_from`` names is not there.

    Trying again does not bring it.
    """


def prepare(
    folder: Folder,
    claim: Claim,
    blobs: BlobStore,
    timings: Timings,
    *,
    interface: str | None = None,
    others: Sequence[Published] = (),
) -> None:
    """Make the folder complete, up to ``assignment.json``, which is written last.

    ``interface`` is the network interface that reaches the other nodes of a gang. ``others`` are
    checkpoints to resume from if none of the claim's is whole.

    Raises
    ------
    code.CodeUnavailableError
        If the job's code cannot be fetched.
    InitUnavailableError
        If the initial weights do not exist.
    UnreadableSpecError
        If the spec of another version has fields that this one cannot read.
    pydantic.ValidationError
        If this version cannot read the plan.
    OSError
        If the disk is full, the disk or the store fails, or no published checkpoint is whole;
        temporary.
    """
    spec = read_stored_spec(claim.spec)
    plan = None if claim.plan is None else BatchPlan.model_validate(claim.plan)
    folder.create()
    _check_disk(folder.path)
    folder.reserve()
    missing = code.bring(spec.code, folder.file(attempt.CODE), blobs)
    resumes_from = claim.published or claim.inherited
    resuming.bring(folder, resumes_from, blobs, others)
    if missing:
        event = EngineEvent(kind="code_incomplete", time=time.time(), data={"why": missing})
        spool = folder.file(attempt.EVENTS)
        written = spool.read_text(encoding="utf-8") if spool.exists() else ""
        if event.kind not in written:  # Preparation is repeated after a failure.
            spool.write_text(f"{written}{event.model_dump_json()}\n", encoding="utf-8")
    init = folder.file(attempt.INIT)
    if not resumes_from and (key := _init_of(spec, claim)) is not None and not init.exists():
        # The engine verifies it; there is no alternative.
        blobs.get_tree(key, init)
    folder.write_assignment(_assignment_of(claim, spec, plan, timings, interface))


def is_disk_failure(error: Exception) -> bool:
    """Return whether an error of :func:`prepare` is a full or failing disk."""
    return isinstance(error, OSError) and error.errno in FULL | BROKEN


def is_full_disk(error: Exception) -> bool:
    """Return whether an error of :func:`prepare` is a full disk, which may get space again."""
    return isinstance(error, OSError) and error.errno in FULL


def _check_disk(folder: Path) -> None:
    """Refuse a disk that is nearly full, before anything of the job is on it."""
    free = shutil.disk_usage(folder).free
    if free < DISK_FREE_BYTES_MIN:
        raise OSError(
            errno.ENOSPC,
            f"the disk has {in_words(free)} free; at least {in_words(DISK_FREE_BYTES_MIN)} are "
            f"required",
            str(folder),
        )


def _init_of(spec: JobSpec, claim: Claim) -> str | None:
    source = job_checkpoint(spec.train.init_from) if spec.train is not None else None
    if source is not None and claim.init is None:
        raise InitUnavailableError(
            f"train.init_from: {source} no longer exists: its job may have pruned it"
        )
    return claim.init


def _assignment_of(
    claim: Claim, spec: JobSpec, plan: BatchPlan | None, timings: Timings, interface: str | None
) -> AssignmentFile:
    return AssignmentFile(
        job_id=claim.job_id,
        attempt_number=claim.attempt_number,
        assignment_id=claim.assignment_id,
        spec=spec,
        plan=plan,
        node_name=claim.node_name,
        node_rank=claim.node_rank,
        node_count=claim.node_count,
        ranks_here=claim.ranks_here,
        world_size=claim.world_size,
        devices=claim.devices,
        device_kind=cast(DeviceName, claim.device_kind),  # Validated here.
        rendezvous_host=claim.rendezvous_host,
        rendezvous_port=claim.rendezvous_port,
        interface=interface,
        stop_grace_seconds=timings.stop_grace_seconds,
        exit_stall_seconds=timings.exit_stall_seconds,
    )
