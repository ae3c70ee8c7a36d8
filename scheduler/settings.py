"""The scheduler's settings, read from the environment once, at its start.

It owns the timings of all programs: no other program reads them from its environment.

Not here: the waits themselves (``domain.life.timings``), and the row from which the other programs
read them (``storage.control.agreed_timings``).
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, get_type_hints

from pydantic import Field, TypeAdapter, create_model, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from lockstep.broker.settings import BrokerSettings
from lockstep.domain.life.timings import Timings
from lockstep.storage.db.settings import StorageSettings

_HINTS: Final = get_type_hints(Timings, include_extras=True)
_MEANINGS: Final = TypeAdapter(Timings).json_schema()["properties"]
_WAITS: Final[dict[str, Any]] = {
    name: (_HINTS[name], Field(wait["default"], description=wait["description"]))
    for name, wait in _MEANINGS.items()
}
_TimingSettings: Final = create_model("_TimingSettings", __base__=BaseSettings, **_WAITS)


class SchedulerSettings(StorageSettings, BrokerSettings, _TimingSettings):
    """``LOCKSTEP_…`` of one scheduler, with one variable for each wait of ``Timings``."""

    model_config = SettingsConfigDict(
        env_prefix="LOCKSTEP_", frozen=True, extra="ignore", use_attribute_docstrings=True
    )

    timings_scale: Annotated[float, Field(gt=0, le=1_000)] = 1.0
    """Factor on every timing of all programs, for tests."""
    log_format: Literal["console", "json"] = "console"
    """Log lines for people, or one JSON object per line."""

    @property
    def timings(self) -> Timings:
        """Timings of all programs."""
        waits = {name: getattr(self, name) for name in _WAITS}
        return Timings(**waits).scaled(self.timings_scale)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        self.timings  # noqa: B018 -- raises for an order of the waits that is not safe
        return self
