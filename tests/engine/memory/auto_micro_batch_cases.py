"""Searches of the pool's ranks for ``micro_size: auto``, with the changes that they cause.

Not here: the required results (``tests.engine.memory.test_auto_micro_batch``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.data.loader import MicroBatch, RankBatch, weights_of
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.memory import auto
from lockstep.engine.memory.auto import choose
from lockstep.engine.model.objective import Objective
from lockstep.engine.model.precision import Precision
from lockstep.engine.runtime.heartbeat import Heartbeat
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.timeline import HostTimeline
from lockstep.engine.state.inventory import Inventory
from lockstep.engine.step.gradient import GradientStep
from lockstep.engine.step.optimizer import Optimizer
from lockstep.engine.strategies.ddp import DDP
from tests.engine.toy import Net, Toy, ToyTask, item

BATCH = 24
TOY = Toy(buffer=True, dropout=0.5)
TRAIN = Train.model_validate({"task": "causal_lm", "batch": {"size": BATCH}, "steps": 3})
MEMORY = (
    "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: not enough memory: you tried to "
    "allocate 1 bytes."
)


class Draws(Net):
    """Draws from all three of the host's generators."""

    def forward(self, x: Tensor) -> Tensor:
        random.random()
        np.random.rand()
        return super().forward(x)


class Task(ToyTask):
    """Runs out of memory, or fails otherwise, at a given point."""

    fails_on: int | None = None
    fails_from = 1
    message = MEMORY
    rank = 0

    def model(self) -> nn.Module:
        torch.manual_seed(7)
        self.built = Draws(self.toy)
        return self.built

    def loss(self, model: nn.Module, batch: Any) -> Any:
        if self.fails_on == self.rank and len(batch[0]) >= self.fails_from:
            raise RuntimeError(self.message)
        return super().loss(model, batch)


@dataclass
class Found:
    """Observations of one rank in one search."""

    size: int = 0
    tried: list[int] = field(default_factory=list)
    """Sizes of the created batches."""
    changed: list[str] = field(default_factory=list)
    """Names of the values that are not bitwise equal to those before."""
    collectives_in_trials: int = 0


class Engine:
    """The parts of a run that a search gets."""

    def __init__(self, ranks: Ranks):
        self.ranks = ranks
        self.task = Task(TOY)
        self.task.rank = ranks.rank
        self.model = self.task.model()
        self.strategy = DDP(Objective(self.task, self.model), ranks, TRAIN.strategy)
        inventory = Inventory(self.model, self.task)
        self.gradient = GradientStep(
            self.task, self.strategy, Precision(), ranks, inventory, seed=1
        )
        self.gradient.warm_up(self.batch(1))
        self.optimizer = Optimizer(TRAIN, self.task, self.strategy, steps=3)

    def batch(self, size: int) -> Any:
        return self.task.collate([item(TOY, index) for index in range(size)])

    def choose(self, found: Found) -> int:
        def make_batch(size: int) -> Any:
            found.tried.append(size)
            return self.batch(size)

        shard = -(-BATCH // self.ranks.world_size)
        return choose(self.gradient, make_batch, self.ranks, shard=shard, headroom=0.15)

    def step(self, step: int) -> None:
        batch = self.batch(4)
        weights = weights_of(self.task.weight(batch), self.gradient.terms)
        micro_batches = [MicroBatch(batch, 4, weights, position=4 * index) for index in range(2)]
        whole = tuple(2 * self.ranks.world_size * weight for weight in weights)
        found = self.gradient.accumulate(
            RankBatch(step, BATCH, micro_batches), whole, HostTimeline(Heartbeat.unseen())
        )
        self.optimizer.update(step, found.sums, self.optimizer.norm(1.0))
        self.gradient.discard()


def choose_on_rank(ranks: Ranks, options: dict[str, Any] | None = None) -> Found:
    """Search once."""
    engine, found = Engine(ranks), Found()
    for name, value in (options or {}).items():
        setattr(engine.task, name, value)
    before, collectives = _state(engine), _sequence(ranks)
    try:
        found.size = engine.choose(found)
        # The ranks agree after each trial and before the first, through object collectives: a
        # second search in which no batch is made counts these. All others ran inside trials.
        found.collectives_in_trials = _sequence(ranks) - collectives - _agreements(found, ranks)
        after = _state(engine)
        found.changed = [name for name in before if before[name] != after[name]]
    finally:
        engine.gradient.close()
    return found


def weights_after_steps(ranks: Ranks, search: bool) -> list[bytes]:
    """Return the parameters, bit by bit, after three steps with or without a search before them."""
    engine = Engine(ranks)
    torch.manual_seed(11)
    if search:
        engine.choose(Found())
    for step in range(3):
        engine.step(step)
    engine.gradient.close()
    return [parameter.detach().numpy().tobytes() for parameter in engine.model.parameters()]


@dataclass
class Run:
    """Observations of one rank in a whole run with ``micro_size: auto``."""

    micro_batch_size: int | None = None
    weights: dict[str, bytes] = field(default_factory=dict)
    steps_done: int = 0


def train_with_auto(
    ranks: Ranks,
    folder: Path,
    *,
    steps: int,
    micro_size: int | str = "auto",
    resumes: bool = False,
    refuse: bool = False,
) -> Run:
    """Train the toy in float64; with ``refuse``, a search is an error."""
    toy = Toy(dropout=0.0)
    train = Train.model_validate(
        {
            "task": "causal_lm",
            "batch": {"size": BATCH, "micro_size": micro_size},
            "steps": steps,
            "checkpoint": {"every_steps": 2},
        }
    )
    plan = BatchPlan(
        batch_size=BATCH,
        micro_batch_size=None,
        accumulation_steps=None,
        world_size=ranks.world_size,
        steps=steps,
    )
    if isinstance(micro_size, int):
        plan = plan.settled(micro_size)
    task = ToyTask(toy, folder)
    trainer = Trainer(train, plan, task, ranks, folder, resumes=resumes)
    searched = auto.choose
    if refuse:
        auto.choose = _refused
    try:
        ending = trainer.run()
    finally:
        auto.choose = searched
    weights = {name: value.numpy().tobytes() for name, value in task.built.state_dict().items()}
    return Run(trainer.plan.micro_batch_size, weights, ending.steps_done)


def _refused(*_: Any, **__: Any) -> int:
    raise AssertionError("searched again")


def _state(engine: Engine) -> dict[str, Any]:
    """Return all state that a search must not change."""
    state: dict[str, Any] = {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "python": random.getstate(),
        "numpy": repr(np.random.get_state(legacy=True)),
        "gradients": [parameter.grad is None for parameter in engine.model.parameters()],
        "mode": engine.model.training,
    }
    for name, value in [*engine.model.named_parameters(), *engine.model.named_buffers()]:
        state[name] = value.detach().numpy().tobytes()
    for index, values in enumerate(engine.optimizer.inner.state.values()):
        state |= {
            f"optimizer {index} {name}": value.numpy().tobytes() for name, value in values.items()
        }
    reducer = engine.strategy._reducer
    if reducer is not None:
        state["buckets"] = [bucket.buffer().numpy().tobytes() for bucket in reducer.buckets()]
        state["bucket sizes"] = str(reducer.ddp._get_ddp_logging_data().get("rebuilt_bucket_sizes"))
    return state


def _sequence(ranks: Ranks) -> int:
    """Return the number of collectives that the group has run."""
    return (
        int(ranks.device_group._get_sequence_number_for_group())
        if ranks.device_group is not None
        else 0
    )


def _agreements(found: Found, ranks: Ranks) -> int:
    """Return the collectives of one gather, times the gathers of a search: host names, the fitting
    sizes, and one per trial."""
    if ranks.device_group is None:
        return 0
    before = _sequence(ranks)
    ranks.gather(0)
    each = _sequence(ranks) - before
    # Two batches are made to measure the growth of memory; every other one belongs to a trial.
    return each * (2 + len(found.tried) - 2)
