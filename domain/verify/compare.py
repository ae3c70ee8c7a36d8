"""Differences of two runs, and the tolerance for them.

All differences are relative: |a − b| / max(|a|, |b|) of the loss and of the gradient's norm at each
step, ‖a − b‖ / ‖b‖ of the final weights. Rounding alone makes runs of other layouts differ, and
training may amplify it. The twin shows by how much: it differs from the reference in the last digit
of the first weights only. The tolerance is ten times its difference, and at least a floor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from lockstep.domain.verify.weights import INCOMPARABLE, distance

SERIES: Final = {"loss": "train/loss", "gradient": "train/grad_norm"}
"""The quantities of each step, and their series."""
WEIGHTS: Final = "weights"
QUANTITIES: Final = (*SERIES, WEIGHTS)
TWIN_FACTOR: Final = 10.0
FLOOR: Final = 1e-6
"""Smallest tolerance in float32."""
FLOOR_DOUBLE: Final = 1e-12
"""Smallest tolerance in float64."""


class Result(NamedTuple):
    """Result of one run."""

    series: Mapping[str, Mapping[int, float]] = {}
    """Values by step, of each of ``SERIES``."""
    weights: Path | None = None
    """Its ``model.safetensors``; None if it exported none."""
    warnings: tuple[str, ...] = ()
    refusal: str = ""
    """Message of the engine if it refused the run; empty otherwise."""


class Difference(NamedTuple):
    """Relative differences of a run from the reference."""

    steps: dict[str, dict[int, float]]
    """By quantity and step."""
    weights: float | None
    """None if one of both exported none."""
    double: bool = False
    """True if the weights are in float64."""

    def largest(self) -> dict[str, float | None]:
        """The largest difference of each quantity."""
        found = {name: max(values.values(), default=None) for name, values in self.steps.items()}
        return {**found, WEIGHTS: self.weights}


Tolerance = dict[str, float]
"""Largest accepted difference of each quantity."""


class Excess(NamedTuple):
    """First difference beyond the tolerance."""

    step: int | None
    """None for the final weights."""
    quantity: str
    difference: float
    tolerance: float


def difference(run: Result, reference: Result) -> Difference:
    """The differences of a run from the reference, at the steps that the run trained."""
    steps = {}
    for quantity, series in SERIES.items():
        ours, theirs = run.series.get(series, {}), reference.series.get(series, {})
        first = min(ours, default=math.inf)
        compared = sorted(step for step in ours.keys() | theirs.keys() if step >= first)
        steps[quantity] = {step: _apart(ours.get(step), theirs.get(step)) for step in compared}
    if run.weights is None or reference.weights is None:
        return Difference(steps, None)
    found = distance(run.weights, reference.weights)
    return Difference(steps, found.relative, found.double)


def tolerance(twin: Difference) -> Tolerance:
    """The tolerance that follows from the twin."""
    floor = FLOOR_DOUBLE if twin.double else FLOOR
    return {name: max(floor, TWIN_FACTOR * (far or 0.0)) for name, far in twin.largest().items()}


def excess(found: Difference, limits: Tolerance) -> Excess | None:
    """The first difference beyond the tolerance: by step, then the weights."""
    beyond = [
        Excess(step, quantity, far, limits[quantity])
        for quantity, values in found.steps.items()
        for step, far in values.items()
        if far > limits[quantity]
    ]
    if beyond:
        return min(beyond, key=lambda each: each.step or 0)
    far = found.weights or 0.0
    return Excess(None, WEIGHTS, far, limits[WEIGHTS]) if far > limits[WEIGHTS] else None


def _apart(one: float | None, other: float | None) -> float:
    if one is None or other is None:
        return INCOMPARABLE
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    apart = abs(one - other) / max(abs(one), abs(other))
    return apart if math.isfinite(apart) else INCOMPARABLE
