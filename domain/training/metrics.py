"""Names and file format of a job's metrics.

Ranks append one JSON object per line to the attempt's spool: ``{"step": 12, "time": 1700000000.5,
"values": {"train/loss": 2.5}}``. ``step`` counts optimizer steps from 1, ``time`` is seconds since
the epoch. A script's ``$LOCKSTEP_METRICS`` is such a file too, which may also have flat lines
(``{"step": 12, "loss": 2.5}``), or lines with ``values`` and other names. Non-finite values are the
strings ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``, in files and in the API: JSON has no numbers for them, and a NaN loss is the most
important point of a chart.

Not here: meanings of the series (``domain.training.series``), definitions of a script
(``domain.training.definitions``), storing points (``storage.series.series``), reading them
(``storage.series.series_query``).
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pydantic_core

from lockstep.domain import limits

SYSTEM: Final = "system/"
"""Measurements of node agents during an attempt: ``system/node<node rank>/…`` and
``system/rank<global rank>/…``. Both numbers are unique in a job, so no two agents write one series.
A job cannot write names with this prefix."""

NAME: Final = re.compile(rf"^[A-Za-z0-9_][A-Za-z0-9_./ -]{{0,{limits.METRIC_NAME_CHARS_MAX - 1}}}$")
_TIME_MAX: Final = 1e11
"""Seconds since the epoch in the year 5138: a larger number is in milliseconds, or no time at
all."""
_TIME_MIN: Final = 1e9
"""The year 2001: a smaller number in a flat line is a duration."""
_NO_TIME: Final = (
    "time is the time of the line, in seconds since the epoch; give a duration another name, such "
    "as step_seconds"
)
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_NON_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class StepValues(NamedTuple):
    """All values measured at one step."""

    step: int
    time: float
    values: dict[str, float]
    refused: Mapping[str, str] = MappingProxyType({})
    """Names of a line whose values are no metrics, and why."""


def jsonable(value: float) -> float | str:
    """A value as JSON carries it: non-finite ones as strings."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def from_json(value: object) -> float:
    """The inverse of :func:`jsonable`.

    Raises
    ------
    ValueError
        If ``value`` is neither a number nor the name of a non-finite one.
    """
    if isinstance(value, str) and value in _NON_FINITE:
        return _NON_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        names = ", ".join(_NON_FINITE)
        shown = json.dumps(value, ensure_ascii=False, default=repr)
        raise ValueError(f"expected a number or one of {names}; got {shown}")
    try:
        return float(value)
    except OverflowError:
        raise ValueError(
            f"expected a number below {sys.float_info.max:.2g}, got a larger one"
        ) from None


def encode(record: StepValues) -> str:
    """One spool line, without its newline."""
    values = {name: jsonable(value) for name, value in record.values.items()}
    return _ENCODER.encode({"step": record.step, "time": record.time, "values": values})


def decode(line: str | bytes, *, now: float, default_step: int) -> StepValues:
    """Read one spool line, or a script's flat line.

    A value that is not a metric is omitted and named in ``refused``; the others of its line are
    kept.

    Parameters
    ----------
    line : str or bytes
        One JSON object. Python's bare ``NaN`` and ``Infinity`` are accepted, because ``json.dumps``
        writes them.
    now : float
        Seconds since the epoch, for a line without ``time``.
    default_step : int
        For a line without ``step``.

    Raises
    ------
    ValueError
        If the line is not such an object, or its step or time is invalid; the message gives the
        reason.
    """
    try:
        # Four times as fast as json.loads, and there are thousands in a second.
        document = pydantic_core.from_json(line)
    except ValueError as error:
        raise ValueError(f"not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise ValueError('expected a JSON object such as {"step": 1, "loss": 2.5}')
    step = document.pop("step", default_step)
    time = document.pop("time", now)
    if isinstance(step, bool) or not isinstance(step, int) or not 0 <= step < 2**62:
        raise ValueError(f"step: expected a whole number of at least 0, got {step!r}")
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time < _TIME_MAX:
        raise ValueError(f"time: expected seconds since the epoch, got {time!r}")
    refused: dict[str, str] = {}
    values = document
    if isinstance(document.get("values"), Mapping):
        given = document.pop("values")
        values = {**document, **given} if document else given
    elif time < _TIME_MIN and time is not now:
        time, refused["time"] = now, _NO_TIME
    return StepValues(step, float(time), _numbers(values, refused), refused)


def _numbers(values: Mapping[str, Any], refused: dict[str, str]) -> dict[str, float]:
    """Return the values that are metrics, and add the others to ``refused``."""
    numbers: dict[str, float] = {}
    for name, value in values.items():
        if not is_name(name):
            refused[name] = name_refusal()
        elif type(value) is float:
            numbers[name] = value
        else:
            try:
                numbers[name] = from_json(value)
            except ValueError as error:
                refused[name] = str(error)
    return numbers


@lru_cache(maxsize=4 * limits.METRIC_NAMES_PER_JOB_MAX)
def is_name(name: str) -> bool:
    """Return whether this is a valid name of a series.

    Cached, because names repeat in every line.
    """
    return NAME.fullmatch(name) is not None


def name_refusal() -> str:
    """Return the reason for which a name is refused."""
    return (
        "not a metric name: expected letters, digits, '_', '.', '/', ' ' and '-', at most "
        f"{limits.METRIC_NAME_CHARS_MAX}"
    )
