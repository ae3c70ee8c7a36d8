"""Command and environment of the ranks of an attempt.

The service's environment holds the addresses of database and broker, and tokens. The ranks'
environment is therefore a list of variables to *keep*: a list of variables to remove would miss the
next credential. The job's own ``env`` and the names below are added; ``RANK``, ``WORLD_SIZE`` and
others are set as torchrun does. ``domain.job_environment`` lists them all.

``OMP_NUM_THREADS`` follows one fixed rule, because the number of threads is part of a run's
arithmetic: on CPU slots 1 (a slot is a core); on GPUs the node's cores divided by the ranks on it,
at most 8. The job's ``env`` may set another.

Not here: passing it to the ranks (``engine.launcher.start.ranks``).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import NamedTuple

from lockstep.domain import job_environment
from lockstep.domain.kinds.devices import HIDDEN, ORDER, named
from lockstep.domain.life import attempt
from lockstep.domain.life.attempt import AssignmentFile
from lockstep.domain.spec import launchers
from lockstep.domain.spec.job import JobSpec, PathCode
from lockstep.engine.launcher import evidence
from lockstep.engine.runtime import heartbeat

SITE = Path(__file__).parent / "start" / "site"
THREADS_PER_RANK_MAX = 8
_LOOPBACK = "lo"

_KEPT = re.compile("|".join(kept.pattern for kept in job_environment.KEPT))


class Command(NamedTuple):
    """Command of a rank, for exec."""

    argv: list[str]
    script: str | None
    """The Python file among them, which must exist; None for a program or a module."""


def scrub(environ: MutableMapping[str, str]) -> None:
    """Remove from the launcher's own environment everything that ranks must not inherit."""
    for name in list(environ):
        if not _KEPT.fullmatch(name):
            del environ[name]
    # The launcher imports torch but computes nothing; without this torch could open a context on
    # every GPU.
    environ.update(HIDDEN)


def working_folder(folder: Path) -> Path:
    """Return the working directory of the ranks: the job's code, if it has any."""
    code = folder / attempt.CODE
    return code if code.is_dir() else folder


def command_of(assignment: AssignmentFile, folder: Path) -> Command:
    """Return the command of each rank."""
    script = assignment.spec.script
    if script is None:
        # -P: the working folder is the job's code, whose modules may have any name.
        return Command(
            [sys.executable, "-P", "-m", "lockstep.engine", "--attempt", str(folder)], None
        )
    if script.command[0] in launchers.MODULE_OPTIONS:
        return Command([sys.executable, "-m", *script.command[1:]], None)
    if script.command[0].endswith(".py"):
        return Command([sys.executable, *script.command], script.command[0])
    return Command(list(script.command), None)


def rank_environment(
    assignment: AssignmentFile, folder: Path, *, cores: int, rank: int = 0
) -> dict[str, str]:
    """Variables that a rank of the attempt gets beside torchrun's."""
    kind = named(assignment.device_kind)
    threads = max(1, min(THREADS_PER_RANK_MAX, cores // assignment.ranks_here))
    return {
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1" if kind.is_slot else str(threads),
        **_interface(assignment),
        **assignment.spec.env,
        **ORDER,
        **kind.environment(assignment.devices),
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "LOCKSTEP_METRICS": str(folder / attempt.METRICS),
        "LOCKSTEP_OUTPUT": str(_output(assignment.spec, folder)),
        **_of_script(assignment.spec, folder, rank),
        **_stacks(assignment.spec, folder, rank),
        "LOCKSTEP_JOB_ID": assignment.job_id,
        "LOCKSTEP_ATTEMPT": str(assignment.attempt_number),
        # Under torchrun it counts restarts within one attempt; there are none.
        "TORCHELASTIC_RESTART_COUNT": str(assignment.attempt_number - 1),
    }


def _output(spec: JobSpec, folder: Path) -> Path:
    """Return the folder whose files are kept, as the agent has made it."""
    inside = working_folder(folder) / attempt.OUTPUT
    beside = isinstance(spec.code, PathCode) or inside.is_symlink() or not inside.is_dir()
    return folder / attempt.OUTPUT if beside else inside


def _of_script(spec: JobSpec, folder: Path, rank: int) -> dict[str, str]:
    if spec.script is None:
        return {}
    own = spec.env.get("PYTHONPATH")
    return {
        "LOCKSTEP_TENSORBOARD": str(folder / attempt.TENSORBOARD),
        "LOCKSTEP_STOP": str(folder / attempt.STOP_NOTICE),
        "LOCKSTEP_EXCEPTION": str(folder / evidence.uncaught_file(rank)),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(SITE), own))),
    }


def _stacks(spec: JobSpec, folder: Path, rank: int) -> dict[str, str]:
    """Return the variable by which a script's Python serves its stacks.

    None for a train job, whose ranks serve them themselves, and for a script whose silence is not
    reported.
    """
    if spec.script is None or spec.script.silence_seconds is None:
        return {}
    return {"LOCKSTEP_STACKS": str(heartbeat.stacks_of(folder, rank))}


def _interface(assignment: AssignmentFile) -> dict[str, str]:
    """Return the network interface for the ranks, unless the environment sets it.

    By default, Gloo takes the address of the host's own name, which on many systems is the
    loopback, and NCCL the first interface that is up, such as a container bridge. Ranks of one node
    need no other machine.
    """
    interface = _LOOPBACK if assignment.node_count == 1 else assignment.interface
    if interface is None:
        return {}
    names = {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": f"={interface}"}
    return {name: value for name, value in names.items() if name not in os.environ}
