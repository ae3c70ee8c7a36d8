"""Section of the spec about the cut of one copy of the model, and errors of such a cut.

Not here: the places of ranks (``domain.training.layout``), the sharing of gradients between copies
(``domain.spec.strategy``).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from typing import TYPE_CHECKING, Annotated, Any, Final

from pydantic import Field

from lockstep.domain import limits
from lockstep.domain.errors import FieldError
from lockstep.domain.spec import tasks
from lockstep.domain.spec.fields import NO_BOOL, Section

if TYPE_CHECKING:
    from lockstep.domain.spec.job import JobSpec
    from lockstep.domain.spec.train import Train

Parts = Annotated[int, Field(ge=1, le=limits.WORLD_SIZE_MAX), NO_BOOL] | None
_TENSOR: Final = "/train/parallel/tensor"
_PIPELINE: Final = "/train/parallel/pipeline"


class Parallel(Section):
    """Cut of one copy of the model over several devices."""

    tensor: Parts = None
    """Devices that share every layer of one copy of the model: weights are cut, and so is the work
    on each sample. They are neighbours on one node. The copies, ``gpus`` / ``tensor``, share the
    batch. Null does not cut."""
    pipeline: Parts = None
    """Stages that share the layers of one copy of the model: each holds some blocks, and passes
    activations on. The copies, ``gpus`` / (``tensor`` × ``pipeline``), share the batch. Null keeps
    one."""

    @property
    def tensor_size(self) -> int:
        """Ranks of one tensor group."""
        return self.tensor or 1

    @property
    def stages(self) -> int:
        """Stages of the pipeline."""
        return self.pipeline or 1

    @property
    def ranks_per_copy(self) -> int:
        """Ranks that hold one copy of the model together."""
        return self.tensor_size * self.stages


def check_parallel(spec: JobSpec) -> Iterator[FieldError]:
    """Yield the errors of the cut of a spec's model on the requested ranks."""
    if spec.train is None or spec.train.parallel.ranks_per_copy == 1:
        return
    yield from _wrong_numbers(spec, spec.train.parallel)
    if spec.train.parallel.tensor_size > 1:
        yield from _unsupported(spec.train)
        yield from _indivisible(spec.train)
    if spec.train.parallel.stages > 1:
        yield from _not_in_stages(spec.train)


def _wrong_numbers(spec: JobSpec, parallel: Parallel) -> Iterator[FieldError]:
    gpus, unit, island = spec.resources.gpus, parallel.ranks_per_copy, parallel.tensor_size
    nodes = spec.resources.nodes or 1
    stated = [("", gpus)] if isinstance(gpus, int) else [("/min", gpus.min), ("/max", gpus.max)]
    for place, count in stated:
        if count % unit:
            why = (
                f"expected a multiple of tensor × pipeline ({unit}), so that each copy of the "
                f"model is whole, got {count}"
            )
        elif count % (nodes * island):
            why = (
                f"a tensor group stays inside one node: expected a multiple of tensor ({island}) "
                f"per node, and {count} gpus on {nodes} nodes are {count / nodes:g} each"
            )
        else:
            continue
        nearest = " or ".join(map(str, _nearest(spec, count)))
        yield FieldError(
            f"/resources/gpus{place}",
            why,
            count,
            f"request {nearest} gpus" if nearest else "use fewer nodes, or a larger batch",
        )
        return


def _nearest(spec: JobSpec, count: int) -> list[int]:
    """Return the next smaller and larger numbers of devices that the spec could have."""
    assert spec.train is not None
    strategy, unit = spec.train.strategy, spec.train.parallel.ranks_per_copy
    step = lcm(unit, (spec.resources.nodes or 1) * spec.train.parallel.tensor_size)
    most = min(spec.train.batch.size * unit, limits.WORLD_SIZE_MAX)
    able = [each for each in range(step, most + 1, step) if strategy.divides(each // unit)]
    return [*[each for each in able if each < count][-1:], *[e for e in able if e > count][:1]]


def _unsupported(train: Train) -> Iterator[FieldError]:
    """Yield what the cut of layers does not work with."""
    size, strategy = train.parallel.tensor, train.strategy
    if not strategy.kind.cuts_layers:
        yield FieldError(
            "/train/strategy/name",
            f"{strategy.name} needs the whole model on each rank, and tensor is {size}",
            strategy.name,
            "set name: ddp or name: fsdp",
        )
    for field, value, why, instead in (
        (
            "strategy/compression",
            strategy.compression if strategy.compression == "powersgd" else None,
            "the low rank of a slice of a weight depends on tensor",
            "use compression: bf16, or none",
        ),
        *_unsupported_by_cuts(train),
    ):
        if value is not None:
            yield FieldError(
                f"/train/{field}", f"with parallel.tensor {size}: {why}", value, instead
            )


def _unsupported_by_cuts(train: Train) -> list[tuple[str, Any, str, str]]:
    """Return field, value, reason and advice of what no cut of a model works with.

    The value is None where the field is as it should be.
    """
    # Stages try sizes together.
    auto = train.batch.micro_size == "auto" and train.parallel.stages == 1
    return [
        ("compile", train.compile or None, "not available yet", "set compile: false"),
        (
            "batch/micro_size",
            "auto" if auto else None,
            "auto tests sizes on each rank separately, and no rank can compute separately",
            "set the samples per device and micro-batch, such as micro_size: 8",
        ),
    ]


def _indivisible(train: Train) -> Iterator[FieldError]:
    """Yield the sizes of a built-in task's layers that cannot be cut equally."""
    if tasks.is_own_task(train.task):
        return
    size = train.parallel.tensor_size
    args: Any = tasks.parse_args(train.task, train.task_args)
    if isinstance(args, tasks.ImageClassificationArgs):
        yield FieldError(
            _TENSOR,
            f"the task {train.task} has no tensor plan",
            size,
            "omit it, or write a task with tensor_plan()",
        )
    if isinstance(args, tasks.CausalLMArgs):
        sizes = {"heads": args.heads, "4 × width": 4 * args.width}
        if args.tokenizer is None:
            sizes["vocabulary"] = 256
        for name, count in sizes.items():
            if count % size:
                yield FieldError(
                    _TENSOR,
                    f"cuts {name} ({count}) of {train.task} into {size} unequal parts",
                    size,
                    f"use a divisor of {count}",
                )


def _not_in_stages(train: Train) -> Iterator[FieldError]:
    """Yield what stages do not work with."""
    stages, strategy = train.parallel.stages, train.strategy
    cuts_layers = train.parallel.tensor_size > 1  # Then errors of both cuts were yielded.
    if not strategy.kind.has_stages and not (cuts_layers and not strategy.kind.cuts_layers):
        whole = strategy.kind.cuts_layers or strategy.kind.shards_optimizer
        yield FieldError(
            "/train/strategy/name",
            f"{strategy.name} is not available yet with pipeline {stages}"
            if whole
            else f"{strategy.name} needs the whole model on each rank, and pipeline is {stages}",
            strategy.name,
            "set name: ddp",
        )
    for field, value, why, instead in (
        (
            "strategy/static_graph",
            strategy.static_graph or None,
            "the order of forwards and backwards differs from that of a static graph",
            "omit it",
        ),
        (
            "strategy/compression",
            strategy.compression if strategy.compression == "powersgd" else None,
            "not available yet",
            "use compression: bf16, or none",
        ),
        *_unsupported_by_cuts(train),
    ):
        if value is not None and not (cuts_layers and field != "strategy/static_graph"):
            yield FieldError(
                f"/train/{field}", f"with parallel.pipeline {stages}: {why}", value, instead
            )
    yield from _too_many_stages(train)


def _too_many_stages(train: Train) -> Iterator[FieldError]:
    """Yield an error if a built-in task has fewer blocks than stages."""
    if tasks.is_own_task(train.task):
        return
    args: Any = tasks.parse_args(train.task, train.task_args)
    stages = train.parallel.stages
    if isinstance(args, tasks.ImageClassificationArgs):
        yield FieldError(
            _PIPELINE,
            f"the task {train.task} has no blocks that stages could share",
            stages,
            "omit it, or write a task whose model has an nn.ModuleList",
        )
    if isinstance(args, tasks.CausalLMArgs) and args.layers < stages:
        yield FieldError(
            _PIPELINE,
            f"{stages} stages need a block each, and {train.task} has {args.layers} (layers)",
            stages,
            f"use at most {args.layers}",
        )
