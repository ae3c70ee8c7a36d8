"""Scaling of a job: the cost of the same batch on other numbers of devices, and advice.

The batch is the same on every number of ranks, so this is strong scaling: on W ranks a step should
take 1/W of the time of one. Efficiency is the throughput on W ranks over W/W₀ times that on the
fewest, W₀.

Not here: the measurement (``engine.runtime.timeline``), its collection (``cli.jobs.scaling``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from pydantic import ValidationError

from lockstep.domain.spec.strategy import Strategy

_BOUND: Final = 0.15
"""A part above this fraction of the step is mentioned in the advice."""
_GOOD: Final = 0.9
"""Efficiency above which nothing needs to be done."""
_SLOWER: Final = 1.25
"""Growth of the computing time per sample and rank above which the ranks are in each other's
way."""
_GAIN_MIN: Final = 0.03
"""Smallest gain of a bucket size that is worth a setting."""
_NOT_TRAINING: Final = ("eval", "checkpoint")


class ScalingRun(NamedTuple):
    """One run: medians over its measured steps, of rank 0."""

    world_size: int
    bucket_cap_mb: float | None
    step_seconds: float
    """Of training: evaluation and checkpoints left out."""
    samples_per_second: float
    parts: dict[str, float]
    """Seconds of each step by part: data, forward, backward, communication, optimizer, other."""

    def share(self, part: str) -> float:
        """Return the fraction of the step that a part takes."""
        return self.parts.get(part, 0.0) / self.step_seconds if self.step_seconds else 0.0

    @property
    def compute_seconds(self) -> float:
        """Forward and backward."""
        return self.parts.get("forward", 0.0) + self.parts.get("backward", 0.0)


class Row(NamedTuple):
    """A run beside the one on the fewest ranks."""

    measured: ScalingRun
    speedup: float
    efficiency: float
    """1 is linear."""


def measured(
    world_size: int,
    steps: Sequence[Mapping[str, float]],
    *,
    batch_size: int,
    bucket_cap_mb: float | None = None,
) -> ScalingRun:
    """Medians of a run's steps.

    Parameters
    ----------
    world_size : int
    steps : sequence of mapping
        Seconds by part of each measured step, as ``time/<part>_seconds`` has them, without
        ``step``.
    batch_size : int
        Samples of one step.
    bucket_cap_mb : float, optional
        The bucket size that was asked for.

    Raises
    ------
    ValueError
        If there is no step.
    """
    if not steps:
        raise ValueError("no step was measured")
    training = [
        {part: value for part, value in step.items() if part not in _NOT_TRAINING} for step in steps
    ]
    step_seconds = median(sum(step.values()) for step in training)
    parts = {
        part: median(step.get(part, 0.0) for step in training)
        for part in sorted({p for s in training for p in s})
    }
    return ScalingRun(world_size, bucket_cap_mb, step_seconds, batch_size / step_seconds, parts)


def compared(runs: Sequence[ScalingRun]) -> list[Row]:
    """Each run beside the one on the fewest ranks, in the order given."""
    first = min(runs, key=lambda run: run.world_size)
    rows = []
    for run in runs:
        speedup = run.samples_per_second / first.samples_per_second
        rows.append(Row(run, speedup, speedup * first.world_size / run.world_size))
    return rows


def advice(rows: Sequence[Row], strategy: Strategy, *, swept: bool = False) -> str:
    """Return one sentence: the bottleneck of the run on the most ranks, and a remedy.

    Parameters
    ----------
    rows : sequence of Row
    strategy : domain.strategy.Strategy
        Of all runs. Nothing is recommended that the spec refuses for it, or that it already has.
    swept : bool
        True if sizes of buckets were compared already.
    """
    most = max(rows, key=lambda row: row.measured.world_size)
    fewest = min(rows, key=lambda row: row.measured.world_size)
    run = most.measured
    data, waiting, update = (run.share(part) for part in ("data", "communication", "optimizer"))
    ranks = "1 rank" if run.world_size == 1 else f"{run.world_size} ranks"
    if data >= _BOUND and data >= waiting:
        return (
            f"data-bound: on {ranks} {data:.0%} of the step waits for data; raise "
            f"train.loader.workers"
        )
    if waiting >= _BOUND:
        slower = _growth(run, fewest.measured)
        if slower > _SLOWER:
            return _in_the_way(ranks, slower, strategy)
        options = _to_wait_less(strategy, swept=swept)
        return (
            f"communication-bound: on {ranks} {waiting:.0%} of the step waits for the other "
            f"ranks; {options}"
        )
    if update >= _BOUND:
        shares = (
            run.world_size > 1
            and not (strategy.kind.shards_optimizer or strategy.kind.shards_model)
            and _takes(strategy, name="zero1")
        )
        return (
            f"update-bound: on {ranks} the optimizer takes {update:.0%} of the step; a larger "
            "batch.size needs fewer "
            f"updates{', train.strategy.name: zero1 shares them' if shares else ''}"
        )
    if most is fewest or most.efficiency >= _GOOD:
        return (
            f"compute-bound, the goal: on {ranks} {run.compute_seconds / run.step_seconds:.0%} of "
            f"the step computes"
        )
    slower = _growth(run, fewest.measured)
    if slower > _SLOWER:
        return _in_the_way(ranks, slower, strategy)
    return (
        f"on {ranks} {most.efficiency:.0%} of linear, without a dominant part of the step; a "
        "larger batch.size gives each rank more work per step"
    )


def best_bucket(runs: Sequence[ScalingRun]) -> str:
    """One sentence about a sweep of bucket sizes.

    Parameters
    ----------
    runs : sequence of ScalingRun
        With two or more of torch's default, whose spread is the error of the measurement.
    """
    usual = [run.step_seconds for run in runs if run.bucket_cap_mb is None]
    sizes = [run for run in runs if run.bucket_cap_mb is not None]
    best = min(sizes, key=lambda run: run.step_seconds)
    spread = max(_GAIN_MIN, max(usual) / min(usual) - 1)
    gain = min(usual) / best.step_seconds - 1
    if gain <= spread:
        return (
            f"omit strategy.bucket_cap_mb: no size is more than {100 * spread:.0f} % faster than "
            "torch's default, the spread of equal runs"
        )
    return (
        f"strategy.bucket_cap_mb: {best.bucket_cap_mb:g} is {gain:.0%} faster than torch's default"
    )


def _growth(run: ScalingRun, first: ScalingRun) -> float:
    """Return the ratio of a rank's compute time per sample to that on the fewest ranks."""
    if not first.compute_seconds:
        return 1.0
    return (run.compute_seconds * run.world_size) / (first.compute_seconds * first.world_size)


def _to_wait_less(strategy: Strategy, *, swept: bool) -> str:
    options = ["use fewer ranks or a larger batch.size"]
    if not swept and _takes(strategy, bucket_cap_mb=25.0):
        options.append("try --buckets")
    if strategy.compression == "none" and _takes(strategy, compression="bf16"):
        options.append("train.strategy.compression: bf16")
    *others, last = options
    return f"{', '.join(others)}, or {last}" if others else last


def _takes(strategy: Strategy, **changes: object) -> bool:
    """Return whether the spec accepts this strategy with these changes."""
    try:
        Strategy.model_validate(strategy.model_dump() | changes)
    except ValidationError:
        return False
    return True


def _in_the_way(ranks: str, slower: float, strategy: Strategy) -> str:
    if strategy.kind.one_process or strategy.kind.collective_forward:
        return (
            f"on {ranks} forward and backward take {slower:.1f} times as long per sample as on "
            f"the fewest ranks: with {strategy.name} the devices wait for each other in both; use "
            "fewer devices or a larger batch.size"
        )
    return (
        f"on {ranks} the computation takes {slower:.1f} times as long per sample as on the fewest "
        "ranks: the ranks share cores, memory or power; use fewer ranks on this node"
    )
