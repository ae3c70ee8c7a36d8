"""Runs of compiled models on ranks, with a backend that needs no C++ compiler."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from lockstep.domain.spec.job import Strategy as Options
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.model import compiling
from lockstep.engine.model.activation_checkpointing import checkpoint_blocks
from lockstep.engine.model.objective import Objective
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.ddp import DDP
from lockstep.engine.task.interface import Task
from tests.engine import cases
from tests.engine.cases import Seen
from tests.engine.toy import Net, Toy


@contextlib.contextmanager
def counting() -> Iterator[Any]:
    """Compile from scratch, with graphs unchanged; yield the counters of dynamo."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    with mock.patch.object(compiling, "BACKEND", "aot_eager"):
        yield counters["stats"]
    torch._dynamo.reset()


@dataclass
class Compiled:
    """One run of a compiled model."""

    seen: Seen
    graphs: list[int] = field(default_factory=list)
    """Number of compiled graphs at the end of each step."""


@contextlib.contextmanager
def masked_passes_compiled() -> Iterator[None]:
    """Compile also for the single sample of passes that leave no trace."""
    loss = Objective._loss
    with mock.patch.object(
        Objective, "_loss", lambda self, batch, *, masked: loss(self, batch, masked=False)
    ):
        yield


def train(
    ranks: Ranks,
    toy: Toy,
    settings: dict[str, Any],
    folder: Path,
    mutate: Callable[[], contextlib.AbstractContextManager[None]] | None = None,
) -> Compiled:
    """Train once; return the number of compiled graphs until each step."""
    finish, graphs = Trainer._finish_step, []

    def noting(self: Trainer, *arguments: Any, **options: Any) -> None:
        graphs.append(stats["unique_graphs"])
        finish(self, *arguments, **options)
        assert stats["unique_graphs"] == graphs[-1], (
            "an evaluation or a checkpoint compiled something"
        )

    with counting() as stats, mock.patch.object(Trainer, "_finish_step", noting):
        seen = cases.train(ranks, toy, settings, folder, mutate)
    return Compiled(seen, graphs)


class Deep(Task):
    """Six blocks of 1 MiB each, so that DDP has several buckets."""

    def model(self) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(
            *(nn.Sequential(nn.Linear(512, 512), nn.Tanh()) for _ in range(6)),
            nn.Linear(512, 1, bias=False),
        )

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        loss: Tensor = (model(batch) ** 2).sum()
        return loss


Launched = tuple[list[int], dict[str, Tensor]]


def launched_early(ranks: Ranks, checkpointed: bool) -> tuple[Launched, Launched]:
    """Count the buckets that were launched before the gradient of the first layer, which is
    computed last; return the gradients, too.

    For two micro-batches of this rank alone and a last one: uncompiled and compiled. The gradients
    without a compiler are those of kept activations.
    """
    with counting():
        plain, kept = _launched_early(ranks, compiles=False, checkpointed=False)
        if checkpointed:
            plain, _ = _launched_early(ranks, compiles=False, checkpointed=True)
        return (plain, kept), _launched_early(ranks, compiles=True, checkpointed=checkpointed)


def _launched_early(ranks: Ranks, *, compiles: bool, checkpointed: bool) -> Launched:
    task = Deep()
    model = task.model()
    if checkpointed:
        checkpoint_blocks(model)
    objective = Objective(task, model, compiled=compiling.compiled(model) if compiles else None)
    strategy = DDP(objective, ranks, Options(bucket_cap_mb=1))
    batch = torch.randn(4, 512, generator=torch.Generator().manual_seed(ranks.rank))
    for _ in range(2):  # Fixes the buckets.
        strategy.begin_reduction()
        strategy.forward(batch, None, penalize=True)[0].backward()  # type: ignore[no-untyped-call]
        assert strategy.finish_reduction()
    for parameter in model.parameters():
        parameter.grad = None
    launched: list[int] = []
    reducer = strategy._reducer
    assert reducer is not None
    first = next(model.parameters())
    hook = first.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
        lambda _: launched.append(reducer.launched)
    )
    for _ in range(2):
        strategy.begin_reduction()
        with strategy.micro_batch(last=False):
            strategy.forward(batch, {"loss": 1.0}, penalize=False)[0].backward()  # type: ignore[no-untyped-call]
    strategy.begin_reduction()
    strategy.forward(batch, {"loss": 1.0}, penalize=True)[0].backward()  # type: ignore[no-untyped-call]
    assert strategy.finish_reduction()
    hook.remove()
    found = {
        name: value.grad.clone()
        for name, value in model.named_parameters()
        if value.grad is not None
    }
    strategy.close()
    return launched, found


def refuses(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path) -> None:
    """Run a model whose compiler fails."""

    def broken(*_: Any) -> Any:
        raise RuntimeError("No working C++ compiler found")

    with counting(), mock.patch.object(compiling, "BACKEND", broken):
        cases.train(ranks, toy, settings, folder)


def raises(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path) -> None:
    """Run a model that raises once it is compiled."""

    def boom(*_: Any) -> None:
        raise ValueError("boom")

    with counting(), mock.patch.object(Net, "forward", boom):
        cases.train(ranks, toy, settings, folder)
