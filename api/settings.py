"""Settings of the api, read from the environment and validated before anything is opened.

A service without authentication must not be reachable from other machines: only loopback addresses
are accepted with ``auth`` off. The error names the settings to change.

Not here: creating the token in ``token_file`` (``api.auth.bearer``).
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode, SettingsConfigDict

from lockstep.broker.settings import BrokerSettings
from lockstep.storage.db.settings import StorageSettings


class ApiSettings(StorageSettings, BrokerSettings):
    """``LOCKSTEP_*`` variables of the api, including those of the databases and the broker."""

    model_config = SettingsConfigDict(
        env_prefix="LOCKSTEP_", frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8470
    """0 selects a free port, which is logged."""
    auth: Literal["on", "off"] = "on"
    """``off`` accepts requests of every program that reaches the port, and of no web page except
    the service's own. Loopback only."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """Additional host names under which a browser reaches the service with ``auth`` off.
    Comma-separated; loopback is always allowed."""
    token_file: Path | None = None
    """File with one valid token, created on the first start."""
    migrate: Literal["on", "off"] = "on"
    """Upgrade the databases to this version's schema before listening."""
    rate_limit_requests: Annotated[int, Field(ge=0, le=10**9)] = 36_000
    """Requests per token and window, in any distribution; 0 disables the limit. The default is 600
    per second, the load of 500 dashboards that share a token."""
    rate_limit_seconds: Annotated[int, Field(ge=1, le=86_400)] = 60
    """Length of the window."""
    timeout_default_seconds: Annotated[float, Field(ge=0, le=366 * 86_400)] | None = None
    """Time limit of a job that gives none, where its project has no default; 0 for none. If it is
    not set: none for a person alone, 24 hours once a project has members."""
    timeout_max_seconds: Annotated[float, Field(gt=0, le=366 * 86_400)] | None = None
    """Largest time limit of a job. With it, each job has one."""
    log_format: Literal["console", "json"] = "console"
    """Log lines for people, or one JSON object per line."""

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _host_names(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        names = [name.strip().lower() for name in value.split(",") if name.strip()]
        for name in names:
            if not re.fullmatch(r"[a-z0-9._-]+|[0-9a-f:]+", name):
                raise ValueError(
                    f"expected host names separated by commas, without scheme and port, got "
                    f"{name!r}"
                )
        return names

    @field_validator("token_file")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_absolute():
            raise ValueError(f"expected an absolute path, got {str(path)!r}")
        return path

    @model_validator(mode="after")
    def _open_only_on_loopback(self) -> Self:
        if self.auth == "off" and not is_loopback(self.host):
            raise ValueError(
                f"LOCKSTEP_AUTH=off would let every client that reaches {self.host} run code on "
                "the nodes; set LOCKSTEP_AUTH=on, or LOCKSTEP_HOST=127.0.0.1"
            )
        return self


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach ``host``.

    Names other than ``localhost`` are not resolved, since their address may change, and count as
    not loopback.
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
