"""Runs of a toy through the engine on ranks of the pool, with observations from outside.

Gradients and rates are read from torch's own hook before each optimizer step, so no part of the
engine reports on itself.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch.distributed.tensor import DTensor
from torch.optim.optimizer import register_optimizer_step_pre_hook

from lockstep.domain.spec.batch import accumulation_steps, ceil_div
from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.loop import checking
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.model.precision import Precision
from lockstep.engine.preflight import additivity_check
from lockstep.engine.preflight.additivity_check import Checked
from lockstep.engine.preflight.items import fetched_again
from lockstep.engine.preflight.repeatability import RepeatabilityResult, check_loss
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.star import Star
from lockstep.engine.state.inventory import Inventory
from tests.engine.toy import Toy, toy_task

ADAMW: dict[str, Any] = {
    "name": "adamw",
    "lr": 1e-2,
    "weight_decay": 0.1,
    "betas": [0.9, 0.95],
}
OPTIONS: dict[str, Any] = {
    "batch": {"size": 14, "micro_size": 2},
    "optimizer": ADAMW,
    "schedule": {"name": "cosine", "warmup_steps": 3, "min_lr": 1e-3},
    "clip_grad_norm": 0.5,
    "steps": 12,
}
"""A run with every part that changes weights: schedule, clipping, several micro-batches."""


@dataclass
class Seen:
    """Observations of one rank in one run."""

    steps_done: int = 0
    stopped: bool = False
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    gradients: list[dict[str, torch.Tensor]] = field(default_factory=list)
    """Before each optimizer step, as passed to the optimizer."""
    rates: list[float] = field(default_factory=list)
    micro_batches: list[list[int]] = field(default_factory=list)
    """Ids of every micro-batch, without those of the warm-up."""
    left_over: list[str] = field(default_factory=list)
    """Parameters that still had a gradient at the end."""
    collectives: Counter[str] = field(default_factory=Counter)
    """Their number for each kind, if requested: those of Gloo by torch's profiler, and control
    operations."""


@contextlib.contextmanager
def checks_in_every_step() -> Iterator[None]:
    """Let rank 0 check for a stop in every step, however fast the steps are."""
    with mock.patch("lockstep.engine.runtime.stopping._READS_APART_SECONDS", 0.0):
        yield


_checked: dict[Hashable, Any] = {}
"""Results of the checks before step 1 in this rank."""


@contextlib.contextmanager
def checking_once(task: Hashable, *, keeps: bool = True) -> Iterator[None]:
    """Check the items and the loss of a task once in each rank.

    These checks see neither strategy nor optimizer, and leave model and generators as they were.
    They take most of the time of a short run. A rank compares no sums with others here, so the
    ranks of a run may have checked different tasks before; ``tests.engine.preflight`` compares
    them.

    Parameters
    ----------
    task : hashable
        Stands for the task and its dataset, and for a resume.
    keeps : bool
        False to use what is known and to keep no result, as a broken rule may break a check.
    """
    add = additivity_check.check

    def once(key: Hashable, check: Callable[[], Any]) -> Any:
        if (found := _checked.get(key)) is None:
            found = check()
            if keeps:
                _checked[key] = found
        return found

    def additive(*arguments: Any, train: Train, ranks: Ranks, **more: Any) -> Checked:
        key = ("sum", task, train.seed, train.precision, train.batch.size > 1)
        found: Checked = once(key, lambda: add(*arguments, train=train, **more))
        return found

    def items(
        dataset: Any, size: int, collate: Any, *, seed: int
    ) -> tuple[dict[int, Any], list[str]]:
        key = ("items", task, size, seed)
        fetched, warnings = once(key, lambda: fetched_again(dataset, size, collate, seed=seed))
        return dict(fetched), list(warnings)

    def repeatable(
        inventory: Inventory, sample: Any, precision: Precision, *, seed: int, device: torch.device
    ) -> RepeatabilityResult:
        key = ("loss", task, precision.name, seed, device)
        found: RepeatabilityResult = once(
            key, lambda: check_loss(inventory, sample, precision, seed=seed, device=device)
        )
        assert not found.unseen, "it must be noted in each run"
        assert not found.of_dataset
        return found

    with (
        mock.patch.object(additivity_check, "check", additive),
        mock.patch.object(checking, "fetched_again", items),
        mock.patch.object(checking, "check_loss", repeatable),
    ):
        yield


def train(
    ranks: Ranks,
    toy: Toy,
    settings: dict[str, Any],
    folder: Path,
    mutate: Callable[[], contextlib.AbstractContextManager[None]] | None = None,
    count: bool = False,
    kind: Hashable = None,
) -> Seen:
    """Run the engine once on these ranks. ``kind`` names what the task has besides the toy."""
    plan, spec = planned(settings, ranks.world_size)
    folder.mkdir(parents=True, exist_ok=True)
    task = toy_task(toy, folder)
    seen = Seen()
    trainer = Trainer(spec, plan, task, ranks, folder)
    loop = trainer._train
    before_the_loop: list[int] = []

    def train_from_here() -> bool:
        before_the_loop.append(len(task.micro_batches))
        return loop()

    trainer._train = train_from_here  # type: ignore[method-assign] # micro-batches of the checks before it are left out

    def look(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not before_the_loop or optimizer is not trainer._parts.step.optimizer.inner:
            return  # One of the checks, or one that a sharded optimizer drives inside.
        names = {id(parameter): name for name, parameter in task.built.named_parameters()}
        seen.rates.append(optimizer.param_groups[0]["lr"])
        seen.gradients.append(
            {
                names[id(p)]: p.grad.detach().clone()
                for group in optimizer.param_groups
                for p in group["params"]
                if p.grad is not None
            }
        )

    hook = register_optimizer_step_pre_hook(look)
    profiler = (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) if count else None
    )
    # A broken rule may show in the checks; counts of items include theirs.
    once = not (mutate or toy.stop_after or toy.log_items)
    known = checking_once((replace(toy, items=0), kind, (folder / "resume").exists()))
    try:
        with (
            known if once else contextlib.nullcontext(),
            mutate() if mutate else contextlib.nullcontext(),
        ):
            if profiler is not None:
                reduce = mock.patch.object(Star, "reduce", autospec=True, side_effect=Star.reduce)
                with profiler, reduce as control:
                    ending = trainer.run()
                # Not key_averages(): it builds a tree of all operators, which takes seconds.
                names = [e.name() for e in profiler.profiler.kineto_results.events()]  # type: ignore[union-attr]
                seen.collectives = Counter(each for each in names if each.startswith("gloo:"))
                seen.collectives["control"] = control.call_count
            else:
                ending = trainer.run()
    finally:
        hook.remove()
    seen.steps_done, seen.stopped = ending.steps_done, ending.stopped
    # Only now: requests of a test to the ranks must not be counted.
    seen.gradients = [
        {name: whole(value) for name, value in each.items()} for each in seen.gradients
    ]
    seen.weights = {name: whole(value) for name, value in task.built.state_dict().items()}
    seen.micro_batches = task.micro_batches[before_the_loop[0] :]
    seen.left_over = [
        name
        for name, parameter in task.built.named_parameters()
        # Views of buckets are zeroed instead of dropped where micro-batches are added up.
        if parameter.grad is not None
        and (not spec.strategy.buckets_hold_gradients or parameter.grad.any())
    ]
    return seen


def train_apart(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path) -> Seen:
    """Train with each rank on a node of its own, with its own folder."""
    return train(replace(ranks, local_rank=0), toy, settings, folder / f"node{ranks.rank}")


def whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of a tensor, gathered if it is sharded: then all ranks must call this."""
    found = tensor.detach()
    return found.full_tensor() if isinstance(found, DTensor) else found.clone()


def planned(settings: dict[str, Any], world_size: int) -> tuple[BatchPlan, Train]:
    spec = Train.model_validate({"task": "causal_lm", "task_args": {}, **settings})
    micro = min(spec.batch.micro_size, ceil_div(spec.batch.size, world_size))
    steps = accumulation_steps(spec.batch.size, micro, world_size)
    plan = BatchPlan(
        batch_size=spec.batch.size,
        micro_batch_size=micro,
        accumulation_steps=steps,
        world_size=world_size,
    )
    return plan, spec
