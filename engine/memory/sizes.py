"""Candidates for the micro-batch, and the choice between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lockstep.domain.spec.batch import ceil_div
from lockstep.domain.training.pipeline import enough

AS_FAST: Final = 0.95
"""Sizes with at least this fraction of the best throughput count as equally fast; smaller
differences are noise."""


_GAINLESS_MAX: Final = 2
"""Sizes in a row without a gain after which larger ones are not tried."""


@dataclass(frozen=True)
class Trial:
    """Cost of a micro-batch of one size, the maximum over the ranks."""

    peak_bytes: float
    """Of the device, at the fullest moment of a pass."""
    seconds_per_sample: float


class OutOfMemory:
    """Result of a trial that did not fit on some rank."""


OUT_OF_MEMORY: Final = OutOfMemory()


Try = Callable[[int], Trial | OutOfMemory]


def _line(first: tuple[int, Any], second: tuple[int, Any]) -> Callable[[int], float]:
    """The peak of any size, by those of two."""
    (small, at_small), (large, at_large) = first, second
    slope = (at_large.peak_bytes - at_small.peak_bytes) / (large - small)
    return lambda size: float(at_small.peak_bytes + slope * (size - small))


def candidates(shard: int, smallest: int = 1) -> list[int]:
    """Sizes worth trying for a rank with ``shard`` samples of each batch, smallest first."""
    found = [shard]
    while found[-1] > smallest:
        found.append(ceil_div(found[-1], 2))
    return found[::-1]


def within_bubble(sizes: Sequence[int], shard: int, stages: int) -> list[int]:
    """Return the sizes under which stages wait for at most a fifth of a step.

    Of a small shard, the smallest size: it makes the most micro-batches. Without a pipeline, all.

    Parameters
    ----------
    sizes : sequence of int
        Smallest first.
    shard : int
        Samples of a batch of one copy of the model.
    stages : int
    """
    found = [size for size in sizes if ceil_div(shard, size) >= enough(stages)]
    return found or [sizes[0]]


def largest(try_size: Try, sizes: Sequence[int], *, limit_bytes: float) -> int | None:
    """The largest of ``sizes`` whose peak is within the limit; None if not even the smallest is.

    Parameters
    ----------
    try_size : callable
    sizes : sequence of int
        Smallest first.
    limit_bytes : float
    """
    trials: dict[int, Trial | OutOfMemory] = {}

    def fits(size: int) -> bool:
        if size not in trials:
            trials[size] = try_size(size)
        found = trials[size]
        return isinstance(found, Trial) and found.peak_bytes <= limit_bytes

    small = [size for size in sizes[:2] if fits(size)]
    if len(small) < 2:
        return small[0] if small else None
    line = _line(*((size, trials[size]) for size in small))
    hopeful = [size for size in sizes if line(size) <= limit_bytes]
    return next(size for size in reversed([*small, *hopeful[2:]]) if fits(size))


def rehearsed(try_size: Try, sizes: Sequence[int], forecast: int, *, rehearses: bool) -> int | None:
    """Return the largest of ``sizes`` that a forecast allows and that can be run; None if none can.

    Parameters
    ----------
    try_size : callable
    sizes : sequence of int
        Smallest first.
    forecast : int
        The largest size that fits.
    rehearses : bool
        False if no size can be tried.
    """
    hopeful = [size for size in reversed(sizes) if size <= forecast]
    if not rehearses:
        return next(iter(hopeful), None)
    return next((size for size in hopeful if isinstance(try_size(size), Trial)), None)


def fastest(try_size: Try, sizes: Sequence[int], *, fits: Callable[[int], bool]) -> int | None:
    """The smallest of ``sizes`` that is as fast as the fastest; None if none can be run.

    Parameters
    ----------
    try_size : callable
    sizes : sequence of int
        Smallest first.
    fits : callable
        Whether a size may be tried.
    """
    speed: dict[int, float] = {}
    gainless = 0
    for size in sizes:
        trial = try_size(size) if fits(size) else OUT_OF_MEMORY
        if isinstance(trial, OutOfMemory):
            break
        best = max(speed.values(), default=0.0)
        speed[size] = 1 / trial.seconds_per_sample
        gainless = gainless + 1 if AS_FAST * speed[size] <= best else 0
        if gainless == _GAINLESS_MAX:
            break
    best = max(speed.values(), default=0.0)
    return next((size for size in sizes if speed.get(size, 0.0) >= AS_FAST * best > 0), None)
