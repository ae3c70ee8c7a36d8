"""Environment variables that every rank of a job gets, the source of ``docs/environment.md``.

A test compares the table with the environment of real ranks on one and on two nodes.

Not here: setting them (``engine.launcher``).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from lockstep.domain.kinds.devices import HIDDEN, ORDER

VERIFY: Final = "LOCKSTEP_VERIFY"
"""Order of ``lockstep verify`` to the engine (``domain.verify.orders``): the only variable of
Lockstep that a job's ``env`` may hold."""


class Variable(NamedTuple):
    """A variable that the launcher sets."""

    name: str
    value: str
    only: str = ""
    """Condition under which it is set; empty for always."""
    can_be_replaced: bool = False
    """The job's ``env`` may set another value."""


class Kept(NamedTuple):
    """Variables of the node that are passed on as they are.

    Everything else of the node's environment is removed.
    """

    pattern: str
    """Regular expression for whole names."""
    names: str
    """The same as text."""


OF_LOCKSTEP: Final = (
    Variable("LOCKSTEP_JOB_ID", "Id of the job."),
    Variable("LOCKSTEP_ATTEMPT", "Number of the attempt, from 1."),
    Variable(
        "LOCKSTEP_METRICS",
        "File to which rank 0 appends metrics as JSON lines ([metrics.md](metrics.md)).",
    ),
    Variable(
        "LOCKSTEP_OUTPUT",
        "Folder for files to keep: `output` in the working folder, or beside it with "
        "`code: {path}`. What is written elsewhere in the working folder is kept, too "
        "([scripts.md](scripts.md#files)).",
    ),
    Variable(
        "LOCKSTEP_TENSORBOARD",
        "Folder whose TensorBoard event files become series.",
        only="`kind: script`",
    ),
    Variable(
        "LOCKSTEP_STOP",
        "File that exists once the job is asked to stop, before the [signal](scripts.md): a JSON "
        "object with `reason` (`cancelled`, `paused`, …) and `deadline`, "
        "the time of SIGKILL in seconds since the epoch.",
        only="`kind: script`",
    ),
    Variable(
        "LOCKSTEP_STACKS",
        "File to which Python appends the stacks of its threads at the signal `SIGRTMIN+5`, which "
        "the launcher sends to a script that is [silent](logs.md#a-script-that-is-silent).",
        only="`kind: script`",
    ),
    Variable(
        "LOCKSTEP_EXCEPTION",
        "File into which Python writes the exception that ends it, for the outcome.",
        only="`kind: script`",
    ),
)
OF_TORCHRUN: Final = (
    Variable("RANK", "Rank of this process in the attempt, from 0."),
    Variable("LOCAL_RANK", "Rank on this node, from 0, and index of its device."),
    Variable("WORLD_SIZE", "Number of ranks of the attempt."),
    Variable("LOCAL_WORLD_SIZE", "Number of ranks on this node."),
    Variable("GROUP_RANK", "Rank of this node, from 0."),
    Variable("GROUP_WORLD_SIZE", "Number of nodes."),
    Variable("ROLE_NAME", "`rank`."),
    Variable("ROLE_RANK", "As `RANK`."),
    Variable("ROLE_WORLD_SIZE", "As `WORLD_SIZE`."),
    Variable("MASTER_ADDR", "Address of the rendezvous."),
    Variable("MASTER_PORT", "Port of the rendezvous, reserved for this attempt."),
    Variable(
        "TORCHELASTIC_RESTART_COUNT",
        "Number of attempts before this one (`LOCKSTEP_ATTEMPT` − 1), as torchrun sets it after "
        "as many restarts.",
    ),
    Variable("TORCHELASTIC_MAX_RESTARTS", "`0`: retries are new attempts, limited by `retry.max`."),
    Variable("TORCHELASTIC_RUN_ID", "Job id and attempt number."),
    Variable("TORCHELASTIC_ERROR_FILE", "File for the exception of torch's `record` decorator."),
    Variable("TORCHELASTIC_USE_AGENT_STORE", "`False`: rank 0 opens the store."),
    Variable("TORCH_NCCL_ASYNC_ERROR_HANDLING", "`1`, as under torchrun.", can_be_replaced=True),
    Variable("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "`1`: ranks do not share the launcher's store."),
)
OF_THE_MACHINE: Final = (
    *(
        Variable(name, "Devices of the attempt on this node, by bus number; empty on CPU slots.")
        for name in HIDDEN
    ),
    *(Variable(name, f"`{value}`.") for name, value in ORDER.items()),
    Variable(
        "OMP_NUM_THREADS",
        "`1` on CPU slots; on GPUs the node's cores divided by its ranks, at most 8.",
        can_be_replaced=True,
    ),
    Variable("PYTHONUNBUFFERED", "`1`: lines arrive as they are printed.", can_be_replaced=True),
    Variable(
        "PYTHONPATH",
        "A folder whose one module, `sitecustomize`, sets up `LOCKSTEP_STACKS` and "
        "`LOCKSTEP_EXCEPTION`, lets torch's store "
        "listen on loopback alone where its address is a loopback one, and removes the folder from "
        "`sys.path`; then the value of the job's `env`.",
        only="`kind: script`",
    ),
    Variable(
        "GLOO_SOCKET_IFNAME",
        "`lo`; on several nodes the interface of the node's address.",
        can_be_replaced=True,
    ),
    Variable(
        "NCCL_SOCKET_IFNAME",
        "The same, with the prefix `=`.",
        can_be_replaced=True,
    ),
)
SET: Final = (*OF_LOCKSTEP, *OF_TORCHRUN, *OF_THE_MACHINE)

KEPT: Final = (
    Kept(
        "PATH|HOME|USER|LOGNAME|SHELL|TERM|TZ|TMPDIR|TEMP|TMP|LANG|LANGUAGE|LC_[A-Z]+|HOSTNAME",
        "`PATH`, `HOME`, `USER`, `LOGNAME`, `SHELL`, `TERM`, `TZ`, `TMPDIR`, `TEMP`, `TMP`, "
        "`LANG`, `LANGUAGE`, `LC_*`, "
        "`HOSTNAME`",
    ),
    Kept(
        "LD_LIBRARY_PATH|LD_PRELOAD|VIRTUAL_ENV|CONDA_PREFIX",
        "`LD_LIBRARY_PATH`, `LD_PRELOAD`, `VIRTUAL_ENV`, `CONDA_PREFIX`",
    ),
    Kept(
        "XDG_CACHE_HOME|XDG_DATA_HOME|XDG_CONFIG_HOME|HF_HOME|TORCH_HOME|TORCHINDUCTOR_CACHE_DIR|TRITON_CACHE_DIR",
        "`XDG_CACHE_HOME`, `XDG_DATA_HOME`, `XDG_CONFIG_HOME`, `HF_HOME`, `TORCH_HOME`, "
        "`TORCHINDUCTOR_CACHE_DIR`, "
        "`TRITON_CACHE_DIR`",
    ),
    Kept(
        "SSL_CERT_FILE|SSL_CERT_DIR|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE",
        "`SSL_CERT_FILE`, `SSL_CERT_DIR`, `REQUESTS_CA_BUNDLE`, `CURL_CA_BUNDLE`",
    ),
    Kept(
        "(?i:https?_proxy|no_proxy|all_proxy)",
        "`http_proxy`, `https_proxy`, `no_proxy`, `all_proxy`, in any case",
    ),
    Kept(
        "(?:CUDA|NVIDIA|NCCL|GLOO|TP_SOCKET|UCX|FI)_[A-Z0-9_]+",
        "all with the prefix `CUDA_`, `NVIDIA_`, `NCCL_`, `GLOO_`, `TP_SOCKET_`, `UCX_`, `FI_`",
    ),
)
