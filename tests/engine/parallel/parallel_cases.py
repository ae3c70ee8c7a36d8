"""Runs of the small language model on ranks of the pool, with a cut."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp._fully_shard._fsdp_collectives import foreach_all_gather
from torch.utils.data import Dataset

from lockstep.domain.spec.parallel import Parallel
from lockstep.domain.spec.train import Train
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.data.loader import Batches
from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.parallel.collectives import TensorGroup
from lockstep.engine.parallel.cut import cut_model
from lockstep.engine.parallel.pipeline import Pipeline
from lockstep.engine.parallel.staged import StageParallel
from lockstep.engine.parallel.tensor import TensorParallel
from lockstep.engine.preflight import additivity_check, uncut
from lockstep.engine.preflight.additivity_check import Checked
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.mesh import Mesh, mesh_of
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.step.replicas import ReplicaCheck
from lockstep.engine.step.staged import StagedGradientStep
from lockstep.engine.strategies.ddp import DDP
from lockstep.engine.task.dropout import Dropout
from lockstep.engine.task.interface import Task
from tests.engine.cases import checking_once
from tests.engine.parallel.small_lm import ITEMS, PLAN, VOCABULARY, deep, initial, item, loss_of
from tests.engine.shortage import Fails

Mutate = Callable[[], contextlib.AbstractContextManager[None]]


class Items(Dataset[Any]):
    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        return item(index)


class SmallTask(Task):
    """Own task with a tensor plan."""

    not_state = ("micro_batches", "plan")

    def __init__(self, plan: dict[str, str] | None = None):
        self.micro_batches: list[list[int]] = []
        self.plan = PLAN if plan is None else plan

    def model(self) -> nn.Module:
        return initial(Dropout)

    def tensor_plan(self, model: nn.Module) -> dict[str, str]:
        return self.plan

    def dataset(self, split: str) -> Dataset[Any]:
        return Items()

    def weight(self, batch: Any) -> float:
        return float((batch[2] != -100).sum())

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        if model.training:
            self.micro_batches.append(batch[0].tolist())
        return loss_of(model, batch[1], batch[2])


class Deep(SmallTask):
    """Has a block for each stage: three are for two stages, and four stages need more."""

    def __init__(self, *, blocks: int = 3, tied: bool = True):
        super().__init__()
        self.blocks, self.tied = blocks, tied

    def model(self) -> nn.Module:
        return deep(Dropout, blocks=self.blocks, tied=self.tied)


class Masked(Deep):
    """Has no target that counts."""

    def weight(self, batch: Any) -> float:
        return 0.0


class TwoCalls(Deep):
    """Calls the model twice in a micro-batch."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, batch) + 0 * super().loss(model, batch)


class Penalized(Deep):
    def penalty(self, model: nn.Module) -> Tensor:
        return model.get_parameter("position.weight").square().sum()


class Counting(Deep):
    """Counts in its forward."""

    def model(self) -> nn.Module:
        model = super().model()
        block: Any = model.get_submodule("blocks.1")
        block.register_buffer("seen", torch.zeros(()))

        def count(*_: object) -> None:
            block.seen += 1

        block.register_forward_hook(count)
        return model


class Half(Deep):
    """Does not train what comes before its last block."""

    def model(self) -> nn.Module:
        model = super().model()
        for name, parameter in model.named_parameters():
            parameter.requires_grad_(name.startswith(("blocks.2", "token", "head")))
        return model


class Shallow(SmallTask):
    """Has a block too few for three stages."""


class OddBlocks(Deep):
    """Has blocks that return a tuple, or take a second activation."""

    def __init__(self, odd: str):
        super().__init__()
        self.odd = odd

    def model(self) -> nn.Module:
        return Odd(self.odd).double()


class OddBlock(nn.Module):
    def __init__(self, odd: str):
        super().__init__()
        self.layer, self.odd = nn.Linear(16, 16), odd

    def forward(self, x: Tensor, first: Tensor) -> Any:
        found = self.layer(x) + first * 0.5
        return (found,) if self.odd == "tuple" else found


class Odd(nn.Module):
    def __init__(self, odd: str):
        super().__init__()
        self.odd = odd
        self.token, self.head = nn.Embedding(12, 16), nn.Linear(16, 12)
        blocks = [OddBlock(odd) for _ in range(2)]
        self.blocks = nn.ModuleDict({"a": blocks[0]}) if odd == "dict" else nn.ModuleList(blocks)
        self.shift = nn.Parameter(torch.full((16,), 0.1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens)
        first = x if self.odd == "skip" else torch.zeros_like(x)
        if self.odd == "carried":  # Computed before the blocks, and used behind them.
            first = (x * self.shift).detach()
        for block in self.blocks if self.odd != "dict" else self.blocks.values():
            x = block(x, first)
            x = x[0] if self.odd == "tuple" else x
        return self.head(x + self.shift)


class Tight(Deep):
    """Has no memory for three samples on the second rank."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        if model.training and len(batch[0]) >= 3 and torch.distributed.get_rank() == 1:
            raise torch.OutOfMemoryError("three samples do not fit")
        return super().loss(model, batch)


class Chain(Deep):
    """Names its blocks itself: the first stage has one, the last one the others."""

    def pipeline_stages(self, model: nn.Module) -> list[nn.Module]:
        return [model.get_submodule("blocks.0"), model.get_submodule("tail")]

    def model(self) -> nn.Module:
        return Tailed()


class Tailed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        whole = deep(Dropout)
        self.token, self.position, self.head = whole.token, whole.position, whole.head
        self.blocks, self.tail = whole.blocks[:1], nn.Sequential(*whole.blocks[1:])

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        return self.head(self.tail(self.blocks[0](x)))


class Stack(SmallTask):
    """Its cut layers are blocks themselves."""

    def model(self) -> nn.Module:
        torch.manual_seed(7)
        layers = [nn.Linear(8, 8) for _ in range(4)]
        return nn.Sequential(nn.Embedding(VOCABULARY, 8), *layers, nn.Linear(8, 12)).double()

    def tensor_plan(self, model: nn.Module) -> dict[str, str]:
        return {"1": "colwise", "2": "rowwise", "3": "colwise", "4": "rowwise"}


class Drawing(SmallTask):
    """Has torch's dropout inside its cut MLP."""

    def model(self) -> nn.Module:
        return initial(nn.Dropout)


def model_of(task: Task) -> dict[str, Any]:
    """Return the attributes of a task that choose its model."""
    return {k: each for k, each in vars(task).items() if k in ("blocks", "tied", "odd", "family")}


def train(
    ranks: Ranks,
    settings: dict[str, Any],
    folder: Path,
    mutate: Mutate | None = None,
    task: Task | None = None,
) -> list[list[int]]:
    """Run the engine once; return the ids of each micro-batch of the training."""
    spec = Train.model_validate({"task": "own.py:SmallTask", "task_args": {}, **settings})
    plan = BatchPlan(
        batch_size=spec.batch.size,
        micro_batch_size=None,
        accumulation_steps=None,
        world_size=ranks.world_size,
        tensor=spec.parallel.tensor_size,
        pipeline=spec.parallel.stages,
    )
    if spec.batch.micro_size != "auto":
        plan = plan.settled(spec.batch.micro_size)
    folder.mkdir(parents=True, exist_ok=True)
    task = task or SmallTask()
    # The check of the loss sees the whole model alone.
    additive = mock.patch.object(additivity_check, "check", return_value=Checked())
    kind = type(task), str(model_of(task)), (folder / "resume").exists()
    known = checking_once(kind, keeps=mutate is None)
    with known, additive, mutate() if mutate else contextlib.nullcontext():
        trainer = Trainer(spec, plan, task, ranks, folder)
        loop, begun = trainer._train, []

        def from_here() -> bool:
            begun.append(len(getattr(task, "micro_batches", [])))
            return loop()

        trainer._train = from_here  # type: ignore[method-assign] # micro-batches of the checks are left out
        trainer.run()
    return getattr(task, "micro_batches", [])[begun[0] :]


def refused(ranks: Ranks, settings: dict[str, Any], folder: Path, plan: dict[str, str]) -> None:
    """Run a task with another plan, which must raise."""
    train(ranks, settings, folder, task=SmallTask(plan))


def diverged(ranks: Ranks, name: str) -> str:
    """Change a number on rank 3 of two copies; return the message of the comparison.

    On eight ranks the copies have a second stage.
    """
    mesh = mesh_of(ranks, Parallel(tensor=2, pipeline=ranks.world_size // 4))
    assert mesh.tensor is not None
    model = initial(Dropout)
    check = ReplicaCheck(model, ranks)
    cut = cut_model(model, PLAN, TensorGroup(mesh.tensor, mesh.place.tensor))
    if mesh.stage is None:
        check.cut(cut.cuts, mesh.layout)
    else:
        check.of_stage(model, mesh, cut.cuts)
    check.compare(1)
    if ranks.rank == 3:
        model.get_parameter(name).data.view(-1)[0] += 1
    try:
        check.compare(2)
    except EngineError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def gathered_once_per_step() -> Iterator[None]:
    """Count the gathers of each block, in two passes of the start and four steps."""
    gather = "torch.distributed.fsdp._fully_shard._fsdp_param_group.foreach_all_gather"
    with mock.patch(gather, wraps=foreach_all_gather) as gathers:
        yield
    of_blocks = Counter(id(call.args[0]) for call in gathers.call_args_list)
    assert set(of_blocks.values()) == {2 + 4}, of_blocks


# --- wrong rules


@contextlib.contextmanager
def unchecked() -> Iterator[None]:
    with mock.patch.object(uncut, "_difference", return_value=""):
        yield


@contextlib.contextmanager
def dropout_unaware_of_the_cut() -> Iterator[None]:
    ignored = property(lambda self: None, lambda self, cut: None)
    with mock.patch.object(Dropout, "cut", ignored):
        yield


@contextlib.contextmanager
def unaware_and_unchecked() -> Iterator[None]:
    with dropout_unaware_of_the_cut(), unchecked():
        yield


@contextlib.contextmanager
def norm_of_every_rank() -> Iterator[None]:
    """Count what all ranks of a tensor group hold once per rank."""

    def all_of_them(self: TensorParallel, parameters: Any) -> list[Tensor]:
        return [each.grad for each in parameters if each.grad is not None]

    with mock.patch.object(TensorParallel, "counted", all_of_them):
        yield


@contextlib.contextmanager
def weights_of_every_rank() -> Iterator[None]:
    """Count the weights and losses of a copy once per rank."""
    with mock.patch.object(Mesh, "counts", True):
        yield


@contextlib.contextmanager
def no_sum_of_tied_weights() -> Iterator[None]:
    with mock.patch.object(StageParallel, "settle", return_value=None):
        yield


@contextlib.contextmanager
def last_forward_outside_no_sync() -> Iterator[None]:
    """Let the last forward announce the reduction, as a plain loop does."""
    run, mode, arm = StagedGradientStep._run_micro_batches, DDP.micro_batch, DDP.backward
    left = [-1]

    def counting(self: Any, batch: Any, *rest: Any) -> None:
        left[0] = len(batch.micro_batches)
        run(self, batch, *rest)

    def plain(self: Any, *, last: bool, empty: bool = False) -> Any:
        left[0] -= 1
        return mode(self, last=last or left[0] == 0, empty=empty)

    def armed(self: Any, *, last: bool, empty: bool = False) -> Any:
        return arm(self, last=last and left[0] < 0, empty=empty)

    with (
        mock.patch.object(StagedGradientStep, "_run_micro_batches", counting),
        mock.patch.object(DDP, "micro_batch", plain),
        mock.patch.object(DDP, "backward", armed),
    ):
        yield


@contextlib.contextmanager
def data_per_rank() -> Iterator[None]:
    """Give each rank a shard, as if it had a copy of the model."""
    build = Batches.__init__

    def by_rank(self: Batches, *arguments: Any, rank: int, **more: Any) -> None:
        build(self, *arguments, rank=(rank + torch.distributed.get_rank()) % 2, **more)

    with mock.patch.object(Batches, "__init__", by_rank):
        yield


@contextlib.contextmanager
def shortage_in_stage(points: list[tuple[int, int, str, int]]) -> Iterator[None]:
    """Let memory end at points: the attempt of a step, the rank, the place, the micro-batch."""
    run_step, attempts = Pipeline.step, 0

    def step(
        self: Pipeline, keys: Any, forward: Any, backward: Any, *, drains: bool = False
    ) -> None:
        nonlocal attempts
        attempts += drains
        due = [
            (place, index)
            for attempt, rank, place, index in points
            if drains and (attempt, rank) == (attempts, dist.get_rank())
        ]

        def short_forward(index: int) -> Tensor:
            with short_of("activation", index, due), short_of("middle", index, due):
                found: Tensor = forward(index)
            if ("forward", index) in due:
                raise torch.OutOfMemoryError("out of memory (injected)")
            return Fails.apply(found) if ("backward", index) in due else found

        def short_backward(index: int, run: Any) -> None:
            with short_of("gradient", index, due):
                backward(index, run)

        run_step(self, keys, short_forward, short_backward, drains=drains)

    with mock.patch.object(Pipeline, "step", step):
        yield


def short_of(
    place: str, index: int, due: list[tuple[str, int]]
) -> contextlib.AbstractContextManager[Any]:
    """Let no memory be there for a message, or in the middle of a backward."""
    if (place, index) not in due:
        return contextlib.nullcontext()
    if place == "middle":
        # Gradients of the layers behind it exist, and their buckets are on their way.
        norm = nn.LayerNorm.forward
        return mock.patch.object(
            nn.LayerNorm, "forward", lambda self, x: norm(self, Fails.apply(x))
        )
    empty = torch.empty

    def full(*arguments: Any, dtype: Any = None, **more: Any) -> Tensor:
        if dtype is not None and dtype.is_floating_point:
            raise torch.OutOfMemoryError("out of memory (injected)")
        return empty(*arguments, dtype=dtype, **more)

    return mock.patch.object(torch, "empty", full)
