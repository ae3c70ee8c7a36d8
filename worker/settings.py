"""The node agent's settings, read from the environment once, at its start.

Not here: the timings, which are in the database (``storage.control.agreed_timings``), and which
settings reach user code (none: ``worker.launch.launching``).
"""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_settings import NoDecode

from lockstep.broker.settings import BrokerSettings
from lockstep.domain.kinds.offers import offers_of
from lockstep.storage.db.settings import StorageSettings

_NAME_CHARS_MAX = 63


def node_name_of(text: str) -> str:
    """A host's name as a node's name.

    Lower-case letters, digits, ``.``, ``_`` and ``-``, 1 to 63 characters.
    """
    name = re.sub(r"[^a-z0-9._-]+", "-", text.lower())[:_NAME_CHARS_MAX].strip("-._")
    return name or "node"


class AgentSettings(StorageSettings, BrokerSettings):
    """``LOCKSTEP_…`` of one node agent."""

    node_name: str = Field(default_factory=lambda: node_name_of(socket.gethostname()))
    """Unique name of this node; by default the host's name."""
    node_dir: Path
    """Absolute folder that holds one folder per attempt; on a disk with room for checkpoints."""
    node_address: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    """Address of this node for others (docs/several_nodes.md); by default the address from which it
    reaches the job database."""
    node_offers: Annotated[tuple[str, ...], NoDecode] = ()
    """Names that jobs can need (``resources.needs``), such as ``data:imagenet,rack:a``.
    Comma-separated, at most 64. The agent adds ``python:…`` and ``kind:…`` itself."""
    cpu_slots: Annotated[int, Field(ge=0, le=1_024)] | None = None
    """Devices of a node without GPUs; by default the cores, at least 2."""
    stop_jobs_on_exit: bool = False
    """On SIGTERM, stop the jobs as well: they save a checkpoint, are requeued uncharged and go on
    at the next start. Off, an agent's end leaves training running, so that a deploy never disturbs
    it; ``lockstep up`` turns it on."""
    warm_launch: bool = True
    """Keep one process that has imported torch, from which launchers are forked: a job's first step
    comes seconds sooner, for about 400 MB of memory."""
    keep_folders: Annotated[int, Field(ge=0)] = 0
    """Number of ended attempts' folders that are kept for inspection, the newest ones. Their
    results are in the database and the store."""
    log_format: Literal["console", "json"] = "console"
    """Log lines for people, or one JSON object per line."""

    @field_validator("node_name")
    @classmethod
    def _name(cls, value: str) -> str:
        if node_name_of(value) != value:
            raise ValueError(
                f"{value!r} is not a valid node name: expected lower-case letters, digits, '.', "
                f"'_' and '-', 1 to 63 characters; for example {node_name_of(value)!r}"
            )
        return value

    @field_validator("node_offers", mode="before")
    @classmethod
    def _offers(cls, value: object) -> object:
        return offers_of(value) if isinstance(value, str) else value

    @field_validator("node_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        if not value.is_absolute():
            raise ValueError(f"{value} is a relative path; expected an absolute path")
        return value
