"""Strategies by which ranks share one model's training: one row for each.

Not here: the spec's section (``domain.spec.strategy``), the classes (``engine.strategies``, which
has one for each row).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

StrategyName = Literal["ddp", "manual", "data_parallel", "zero1", "fsdp", "local_sgd", "diloco"]

_BUCKETS: Final = ("bucket_cap_mb", "gradient_as_bucket_view", "static_graph")


@dataclass(frozen=True, kw_only=True)
class StrategyKind:
    """Traits of a strategy."""

    name: StrategyName
    means: str
    """One sentence for the user."""
    settings: tuple[str, ...] = ()
    """Fields of the section that have a meaning with this strategy and with few others."""
    required: tuple[str, ...] = ()
    """Those of ``settings`` that must be set."""
    keeps_promise: bool = True
    """False if other layouts give other numbers."""
    one_process: bool = False
    """True if one process drives all devices of its node; otherwise each device has a rank."""
    collective_forward: bool = False
    """True if ranks wait for each other in every forward, so none can compute alone."""
    shards_model: bool = False
    """True if each rank keeps a part of the parameters, gradients and optimizer state."""
    shards_optimizer: bool = False
    """True if each rank keeps a part of the optimizer state only."""
    cuts_layers: bool = False
    """True if the layers of each copy of the model may be cut (``train.parallel``)."""
    has_stages: bool = False
    """True if ranks may share the blocks of each copy of the model, in stages."""
    gradient_copies: int | None = None
    """Gradients on their way between ranks, in sizes of the gradient; None if memory cannot be
    forecast."""
    optimizer_needs: Literal["", "parameters", "elements"] | None = ""
    """Parts of an optimizer's work that must not depend on each other; None if only the kinds that
    the engine makes itself will do."""


STRATEGIES: Final = {
    row.name: row
    for row in (
        StrategyKind(
            name="ddp",
            means="``ddp`` is torch's DistributedDataParallel: every rank holds the whole model.",
            settings=(*_BUCKETS, "compression"),
            cuts_layers=True,
            has_stages=True,
            gradient_copies=1,
        ),
        StrategyKind(
            name="manual",
            means="``manual`` is the same by hand, to be read.",
            cuts_layers=True,
            has_stages=True,
            gradient_copies=1,
        ),
        StrategyKind(
            name="data_parallel",
            means="``data_parallel`` is torch's older DataParallel: one process drives all devices "
            "of one node.",
            one_process=True,
        ),
        StrategyKind(
            name="zero1",
            means="``zero1`` is ``ddp`` with the optimizer's state shared out over the ranks.",
            settings=_BUCKETS,
            shards_optimizer=True,
            gradient_copies=1,
            optimizer_needs="parameters",
        ),
        StrategyKind(
            name="fsdp",
            means="``fsdp`` shards parameters, gradients and optimizer state over the ranks.",
            settings=("shard", "reduce"),
            cuts_layers=True,
            has_stages=True,
            collective_forward=True,
            shards_model=True,
            gradient_copies=0,
            optimizer_needs="elements",
        ),
        StrategyKind(
            name="local_sgd",
            means="``local_sgd`` lets each rank step on its own shard of the batch and averages "
            "the parameters now and then: the promise about the batch does not hold.",
            settings=("sync_every_steps",),
            required=("sync_every_steps",),
            keeps_promise=False,
            optimizer_needs=None,
        ),
        StrategyKind(
            name="diloco",
            means="``diloco`` does the same, with an outer optimizer for the average.",
            settings=("sync_every_steps", "outer_lr", "outer_momentum"),
            required=("sync_every_steps",),
            keeps_promise=False,
            optimizer_needs=None,
        ),
    )
}
"""Rows by name."""


def names_with(setting: str) -> tuple[str, ...]:
    """Return the strategies that list a setting; empty if it has a meaning with all."""
    return tuple(name for name, row in STRATEGIES.items() if setting in row.settings)
