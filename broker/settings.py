"""Where the broker is: the part of the environment that every program with a bell shares.

Programs inherit from ``BrokerSettings`` and read it once, at their start.

Not here: where the databases are (``storage.settings``).
"""

from __future__ import annotations

from pydantic import field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

SCHEMES = ("redis", "rediss", "redis+socket")


class BrokerSettings(BaseSettings):
    """``LOCKSTEP_BROKER_URL``."""

    model_config = SettingsConfigDict(env_prefix="LOCKSTEP_", frozen=True, extra="ignore")

    broker_url: str
    """``redis://host:6379/0``, ``rediss://…``, or ``redis+socket:///absolute/broker.sock``."""

    @field_validator("broker_url")
    @classmethod
    def _known_scheme(cls, value: str) -> str:
        scheme, separator, rest = value.partition("://")
        if not separator or scheme not in SCHEMES:
            # `value` may hold a password, so only its scheme is repeated.
            shown = f"{scheme}://" if separator else "a URL without ://"
            raise ValueError(f"the broker's URL starts with {' or '.join(f'{one}://' for one in SCHEMES)}, not {shown}")
        if scheme == "redis+socket" and not rest.startswith("/"):
            raise ValueError("a socket's URL needs an absolute path, with three slashes: redis+socket:///absolute/path")
        return value
