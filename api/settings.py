"""What the api reads from its environment, checked before anything is opened.

A service that guards nothing must not be reachable from elsewhere: without authentication only loopback is accepted, and
the refusal says how to go on.

Not here: making the token of ``token_file`` (``api.auth.bearer``).
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


class Settings(StorageSettings, BrokerSettings):
    """``LOCKSTEP_*`` of the api, beside those of the databases and the broker."""

    model_config = SettingsConfigDict(env_prefix="LOCKSTEP_", frozen=True, extra="ignore")

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int, Field(ge=0, le=65_535)] = 8470
    """0 takes a free port; the log says which."""
    auth: Literal["on", "off"] = "on"
    """``off`` lets in every program that reaches the port, and no web page but its own; accepted on loopback only."""
    allowed_hosts: Annotated[tuple[str, ...], NoDecode] = ()
    """With ``auth`` off: names, separated by commas, under which a browser reaches the service, besides loopback."""
    token_file: Path | None = None
    """A file that keeps one valid token, made on the first start."""
    migrate: Literal["on", "off"] = "on"
    """Bring the databases to this version's schema before listening."""
    timings_scale: Annotated[float, Field(gt=0, le=1_000)] = 1.0
    """Factor on every wait of ``domain.life.timings``; the same for all programs."""
    rate_limit_requests: Annotated[int, Field(ge=0, le=10**9)] = 36_000
    """Requests that one token may make in a window, at once or spread; 0 sets no limit. The default, 600 a second, is what
    500 dashboards ask for that share a token."""
    rate_limit_seconds: Annotated[int, Field(ge=1, le=86_400)] = 60
    """The window."""
    log_format: Literal["console", "json"] = "console"

    @field_validator("allowed_hosts", mode="before")
    @classmethod
    def _host_names(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        names = [name.strip().lower() for name in value.split(",") if name.strip()]
        for name in names:
            if not re.fullmatch(r"[a-z0-9._-]+|[0-9a-f:]+", name):
                raise ValueError(f"expected names of hosts separated by commas, without scheme and port, got {name!r}")
        return names

    @field_validator("token_file")
    @classmethod
    def _absolute(cls, path: Path | None) -> Path | None:
        if path is not None and not path.is_absolute():
            raise ValueError(f"an absolute path is expected, got {str(path)!r}")
        return path

    @model_validator(mode="after")
    def _open_only_on_loopback(self) -> Self:
        if self.auth == "off" and not is_loopback(self.host):
            raise ValueError(
                f"LOCKSTEP_AUTH=off would let everybody who reaches {self.host} run code on your nodes; "
                "set LOCKSTEP_AUTH=on, or LOCKSTEP_HOST=127.0.0.1"
            )
        return self


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach ``host``. A name other than ``localhost`` is not looked up: it may change."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"
