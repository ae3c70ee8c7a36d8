"""Tasks whose samples use different parts of the model, or whose weights have unusual memory
layouts.

Every item carries an integer key, by which the model chooses. ``reference`` trains the same model
in a plain loop: one process, the whole batch in one forward, gradients set to None in between.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.interface import Task
from tests.engine.cases import checking_once, planned, whole

FEATURES, WIDTH, KEYS, ITEMS = 3, 6, 4, 40


def key(index: int) -> int:
    """Return the key of an item. Keys 2 and 3 are rare, so that whole batches have none of them."""
    return {4: 2, 9: 3, 30: 2, 31: 3}.get(index, index % 2)


def item(index: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(500 + index)
    x = torch.randn(FEATURES, dtype=torch.float64, generator=generator)
    y = torch.randn((), dtype=torch.float64, generator=generator)
    return torch.tensor(key(index)), x, y


class Items(Dataset[Any]):
    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        return (torch.tensor(index), *item(index))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden + torch.tanh(self.mix(hidden))


class Net(nn.Module):
    """Embeds, runs a body that subclasses choose, and returns one number."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(FEATURES, WIDTH)
        self.parts = nn.ModuleList(Layer() for _ in range(KEYS))
        self.out = nn.Linear(WIDTH, 1)

    def forward(self, keys: Tensor, x: Tensor) -> Tensor:
        hidden = self.body(keys, torch.tanh(self.embed(x)))
        return self.out(hidden).squeeze(-1)

    def body(self, keys: Tensor, hidden: Tensor) -> Tensor:
        for part in self.parts:
            hidden = part(hidden)
        return hidden


class Experts(Net):
    """Each sample uses the expert of its key; experts without rows are not called."""

    def body(self, keys: Tensor, hidden: Tensor) -> Tensor:
        result = hidden
        for index, expert in enumerate(self.parts):
            rows = (keys == index).nonzero().squeeze(-1)
            if len(rows):
                result = result.index_copy(0, rows, expert(hidden[rows]))
        return result


class LayerDrop(Net):
    """A layer is dropped for the samples of one key, and not called if no sample is left."""

    def body(self, keys: Tensor, hidden: Tensor) -> Tensor:
        for index, part in enumerate(self.parts):
            kept = keys != index
            if kept.any():
                hidden = torch.where(kept.unsqueeze(-1), part(hidden), hidden)
        return hidden


class Skipped(Net):
    """The last block is called only for batches in which some sample has key 2 or 3."""

    def body(self, keys: Tensor, hidden: Tensor) -> Tensor:
        for part in self.parts[:-1]:
            hidden = part(hidden)
        needs = keys >= 2
        return (
            torch.where(needs.unsqueeze(-1), self.parts[-1](hidden), hidden)
            if needs.any()
            else hidden
        )


class Heads(Net):
    """All heads are computed, and each sample's loss uses the head of its key: a head may have no
    backward."""

    def body(self, keys: Tensor, hidden: Tensor) -> Tensor:
        heads = [part(hidden) for part in self.parts]
        rows = [heads[int(key)][row] for row, key in enumerate(keys)]
        return torch.stack(rows)


class OwnParameters(Net):
    """The blocks are always called; a parameter outside of them is used for some keys only."""

    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ParameterList(torch.ones(WIDTH) for _ in range(KEYS))

    def body(self, keys: Tensor, hidden: Tensor) -> Tensor:
        hidden = super().body(keys, hidden)
        return torch.stack([hidden[row] * self.scales[int(key)] for row, key in enumerate(keys)])


class Late(Net):
    """All keys but 3 use the same parts: single samples at the start may not reveal the special
    one."""

    def body(self, keys: Tensor, hidden: Tensor) -> Tensor:
        plain = keys != 3
        for part in self.parts:
            if plain.any():
                hidden = torch.where(plain.unsqueeze(-1), part(hidden), hidden)
        return hidden


class Unused(Net):
    """A parameter that no sample uses."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Parameter(torch.ones(WIDTH))


class ChannelsLast(Net):
    """Convolutions with weights in the usual layout for GPUs."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.ModuleList()
        self.first = nn.Conv2d(2, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 2, 3, padding=1)

    def body(self, keys: Tensor, hidden: Tensor) -> Tensor:
        image = hidden.view(-1, 2, 1, 3)
        return hidden + self.second(torch.tanh(self.first(image))).reshape(-1, WIDTH)


class Packed(ChannelsLast):
    """The same model in the usual layout."""


class Strided(Net):
    """Weight with gaps in memory: every second column of a larger tensor."""

    def __init__(self) -> None:
        super().__init__()
        for part in self.parts:
            wide = torch.zeros(WIDTH, 2 * WIDTH, dtype=torch.float64)
            wide[:, ::2] = part.mix.weight.detach()
            part.mix.double().weight = nn.Parameter(wide[:, ::2])


class Transposed(Net):
    """Weights that are transposed views."""

    def __init__(self) -> None:
        super().__init__()
        for part in self.parts:
            part.mix.weight = nn.Parameter(part.mix.weight.detach().t())


KINDS: dict[str, type[Net]] = {
    kind.__name__: kind
    for kind in (
        Experts,
        LayerDrop,
        Skipped,
        Heads,
        OwnParameters,
        Late,
        Unused,
        ChannelsLast,
        Packed,
        Strided,
        Transposed,
    )
}


def initial(kind: str) -> Net:
    torch.manual_seed(11)
    model = KINDS[kind]().double()
    return model.to(memory_format=torch.channels_last) if kind == "ChannelsLast" else model


class ConditionalTask(Task):
    def __init__(self, kind: str):
        self.kind = kind
        self.batches: list[list[int]] = []

    def model(self) -> nn.Module:
        self.built = initial(self.kind)
        return self.built

    def dataset(self, split: str) -> Dataset[Any]:
        return Items()

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        _, keys, x, y = batch
        return ((model(keys, x) - y) ** 2).sum()


class Declared(ConditionalTask):
    conditional = True


def reference(kind: str, settings: dict[str, Any], batches: list[list[int]]) -> dict[str, Tensor]:
    """Train in a plain loop, the whole batch in one forward."""
    torch.set_num_threads(1)
    model = initial(kind)
    options = dict(settings["optimizer"])
    kinds = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    optimizer_class = kinds[options.pop("name")]
    decay = options.pop("weight_decay", 0.0)
    groups = [
        {"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = optimizer_class(groups, foreach=False, **options)
    for batch in batches:
        keys, x, y = (torch.stack(parts) for parts in zip(*map(item, batch), strict=True))
        optimizer.zero_grad(set_to_none=True)
        (((model(keys, x) - y) ** 2).sum() / len(batch)).backward()
        if limit := settings.get("clip_grad_norm"):
            torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        optimizer.step()
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def train(
    ranks: Ranks,
    kind: str,
    settings: dict[str, Any],
    folder: Path,
    declared: bool = False,
    resumes: bool = False,
) -> dict[str, Tensor]:
    """Train through the engine; return the whole weights."""
    plan, spec = planned(settings, ranks.world_size)
    folder.mkdir(parents=True, exist_ok=True)
    task = Declared(kind) if declared else ConditionalTask(kind)
    resumed = resumes or (folder / "resume").exists()
    with checking_once((kind, declared, resumed)):
        Trainer(spec, plan, task, ranks, folder, resumes=resumes).run()
    return {name: whole(value) for name, value in task.built.state_dict().items()}
