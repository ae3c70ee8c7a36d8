"""Start of a launcher: environment, session, output.

The environment is an allow list: the service's settings, its credentials and its ``PYTHONPATH``
must not reach user code, nor may variables that are added to the service later. The launcher adds
the job's own variables from its spec.

Not here: torchrun's variables of the ranks (``engine.launcher``).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from lockstep.domain.kinds.devices import ORDER
from lockstep.domain.life import attempt
from lockstep.system import processes
from lockstep.system.processes import ProcessKey
from lockstep.worker.folders import Folder
from lockstep.worker.launch.fork_client import ForkServer
from lockstep.worker.launch.groups import ControlGroup
from lockstep.worker.launch.sweeping import Children

# -P: the working directory is the attempt's folder, where a job's ``code`` must not shadow the
# module of that name.
LAUNCHER_COMMAND = (sys.executable, "-P", "-m", "lockstep.engine.launcher")

_PASSED_NAMES = frozenset(
    "PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TEMP TMP LD_LIBRARY_PATH LD_PRELOAD "
    "VIRTUAL_ENV CONDA_PREFIX "
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy "
    "https_proxy no_proxy "
    "HF_HOME TORCH_HOME XDG_CACHE_HOME XDG_DATA_HOME XDG_CONFIG_HOME OMP_NUM_THREADS "
    "MKL_NUM_THREADS OPENBLAS_NUM_THREADS "
    "COVERAGE_PROCESS_START".split()
)
_PASSED_PREFIXES = ("LC_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_", "TP_SOCKET_", "UCX_", "FI_")


def environment_of(agent: Mapping[str, str]) -> dict[str, str]:
    """Return the part of the agent's environment that launchers receive.

    All programs number devices as the drivers did when they were registered.
    """
    passed = {
        name: value
        for name, value in agent.items()
        if name in _PASSED_NAMES or name.startswith(_PASSED_PREFIXES)
    }
    return {**passed, **ORDER, "PYTHONUNBUFFERED": "1"}


def launch(
    folder: Folder,
    children: Children,
    fork_server: ForkServer | None,
    command: Sequence[str],
    environment: Mapping[str, str],
) -> ProcessKey | None:
    """Start the launcher of this folder: by the fork server if that is ready, else by ``command``.

    It outlives the agent. Return None if it has died already. ``environment`` is the result of
    :func:`environment_of`.

    Raises
    ------
    OSError
        If it cannot be started; no process of it is left then.
    """
    own = {attempt.MARK_VARIABLE: str(folder.path)}
    group = ControlGroup(folder.assignment_id).create()
    if group is not None:
        own[attempt.GROUP_VARIABLE] = str(group)
    log = folder.files.descriptor(attempt.LAUNCHER_LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    how: dict[str, Any] = {"cwd": folder.path, "environment": {**environment, **own}, "output": log}
    try:
        pid = children.fork(fork_server, **how) if fork_server is not None else None
        if pid is None:
            pid = children.start([*command, str(folder.path)], **how)
    finally:
        os.close(log)
    started = processes.process(pid)
    return None if started is None else started.key
