"""What the ranks of the pool do in the tests of what travels with gradients: fail on the way, or train two formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import torch

from lockstep.engine.data.loader import Batches, RankBatch
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.strategies.ddp import DDP
from lockstep.engine.strategies.reducer import Reducer
from lockstep.engine.strategies.rider import NUMBERS_MAX
from tests.engine import cases
from tests.engine.cases import Seen, planned
from tests.engine.strategy_cases import two_formats
from tests.engine.toy import Items, Toy, toy_task


def trained(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path) -> tuple[str, ...]:
    """Names of what is trained, saved and sent."""
    plan, spec = planned(settings, ranks.world_size)
    folder.mkdir(parents=True, exist_ok=True)
    task = toy_task(toy, folder)
    trainer = Trainer(spec, plan, task, ranks, folder)
    carried, close = [], DDP.close

    def closed(strategy: DDP) -> None:
        carried.append(strategy.carries)
        close(strategy)

    with mock.patch.object(DDP, "close", closed):
        trainer.run()
    assert carried == [NUMBERS_MAX]
    parts = trainer._parts
    moved = {id(parameter) for group in parts.optimizer.inner.param_groups for parameter in group["params"]}
    assert moved == {id(parameter) for parameter in task.built.parameters()}
    return tuple(parts.strategy.model_state())


def fetches_ahead(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path) -> list[tuple[bool, bool]]:
    """At the fetch of each batch: whether this rank's gradient has left it, and whether the others' was heard."""
    plan, spec = planned(settings, ranks.world_size)
    folder.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(spec, plan, toy_task(toy, folder), ranks, folder)
    fetch, seen = Batches._fetch, []

    def watched(batches: Batches) -> RankBatch:
        strategy = trainer._parts.strategy
        seen.append((strategy.sent, strategy.told is not None))
        return fetch(batches)

    with mock.patch.object(Batches, "_fetch", watched):
        trainer.run()
    return seen


def fails_to_fetch(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path) -> None:
    """The items of the third batch do not fit into memory on any rank."""
    fetch, seen = Items.__getitem__, 0

    def short(self: Items, index: int) -> Any:
        nonlocal seen
        seen += 1
        if seen > 2 * 12 // ranks.world_size + 26:
            raise torch.OutOfMemoryError("no room for an item")
        return fetch(self, index)

    with mock.patch.object(Items, "__getitem__", short):
        cases.train(ranks, toy, settings, folder)


def fails_when_all_is_sent(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path) -> None:
    """Every rank's memory ends when its gradient has left it."""
    with mock.patch.object(Reducer, "_hear", side_effect=[None, None, torch.OutOfMemoryError("too late")]):
        cases.train(ranks, toy, settings, folder)


def of_two_formats(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path, mutate: Any) -> Seen:
    """A run whose model has parameters in float64 and one in float32."""
    with two_formats():
        return cases.train(ranks, toy, settings, folder, mutate)
