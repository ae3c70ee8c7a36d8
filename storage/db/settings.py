"""Settings of databases and blob store, shared by all programs that use them.

Programs inherit from ``StorageSettings`` and read it once, at their start.

Not here: the broker (``broker.settings``).
"""

from __future__ import annotations

from typing import Self

from pydantic import field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict
from sqlalchemy import make_url
from sqlalchemy.exc import ArgumentError

DRIVERS = ("sqlite", "postgresql+psycopg")


def default_series_url(database_url: str) -> str:
    """The series database that belongs to a jobs database.

    For SQLite the file ``series.db`` beside it; for PostgreSQL the same database.
    """
    url = make_url(database_url)
    if url.get_backend_name() != "sqlite":
        return database_url
    folder = (url.database or "").rpartition("/")[0]
    return url.set(database=f"{folder}/series.db").render_as_string(hide_password=False)


class StorageSettings(BaseSettings):
    """``LOCKSTEP_DATABASE_URL``, ``LOCKSTEP_SERIES_URL`` and ``LOCKSTEP_STORE``."""

    model_config = SettingsConfigDict(
        env_prefix="LOCKSTEP_", frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    database_url: str
    """``sqlite:////absolute/jobs.db`` or ``postgresql+psycopg://user:password@host/name``."""
    series_url: str = ""
    """By default ``series.db`` beside the SQLite file, or the same database."""
    store: str
    """An absolute folder, or an fsspec URL such as ``s3://bucket/prefix``."""

    @field_validator("database_url", "series_url")
    @classmethod
    def _known_driver(cls, value: str) -> str:
        if not value:
            return value
        try:
            url = make_url(value)
        except ArgumentError:
            # `value` may hold a password, so it is not repeated.
            raise ValueError(
                "not a database URL; expected sqlite:////absolute/path or postgresql+psycopg://…"
            ) from None
        if url.drivername not in DRIVERS:
            raise ValueError(
                f"{url.drivername!r} is not supported; expected one of {', '.join(DRIVERS)}"
            )
        if url.drivername == "sqlite" and not (url.database or "").startswith("/"):
            raise ValueError(
                "an SQLite URL needs an absolute path, with four slashes: sqlite:////absolute/path"
            )
        return value

    @model_validator(mode="after")
    def _series_default(self) -> Self:
        if not self.series_url:
            object.__setattr__(self, "series_url", default_series_url(self.database_url))
        return self
