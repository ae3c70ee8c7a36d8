"""Tasks in which a sample's loss depends on the others in its micro-batch, each in one way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.preflight import chosen_samples
from lockstep.engine.preflight.additivity_check import check
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.dropout import Dropout
from lockstep.engine.task.interface import Task
from tests.engine.cases import planned
from tests.engine.preflight.loss_tasks import CLASSES, Classify
from tests.engine.spool import events

ITEMS = 48
WIDTH = 6


class Sentences(Task):
    """Token sequences of several lengths, padded with 0. The loss sums over the tokens: correct."""

    def __init__(self, lengths: str = "unequal"):
        rare = [3 if place == 40 else 9 for place in range(ITEMS)]
        equal = [9] * ITEMS
        unequal = [4 + 5 * place % 7 for place in range(ITEMS)]
        self.lengths = {"unequal": unequal, "rare": rare, "equal": equal}[lengths]

    def model(self) -> nn.Module:
        return nn.ModuleDict(
            {
                "embed": nn.Embedding(11, WIDTH),
                "mix": nn.MultiheadAttention(WIDTH, 2, batch_first=True),
                "lstm": nn.LSTM(WIDTH, WIDTH, batch_first=True),
                "head": nn.Linear(WIDTH, 11),
            }
        )

    def dataset(self, split: str) -> Any:
        generator = torch.Generator().manual_seed(5)
        return [torch.randint(1, 11, (n,), generator=generator) for n in self.lengths]

    def collate(self, samples: list[Tensor]) -> Tensor:
        return pad_sequence(samples, batch_first=True)

    def weight(self, batch: Tensor) -> float:
        return float((batch != 0).sum())

    def loss(self, model: Any, batch: Tensor) -> Tensor:
        hidden = self.hidden(model, model["embed"](batch), batch != 0)
        return self.summed(model["head"](hidden), batch)

    def hidden(self, model: Any, hidden: Tensor, mask: Tensor) -> Tensor:
        return hidden

    def summed(self, logits: Tensor, batch: Tensor) -> Tensor:
        return F.cross_entropy(
            logits.flatten(0, 1), batch.flatten(), ignore_index=0, reduction="sum"
        )


class MeanOfTokensTimesSamples(Sentences):
    """The loss of a model of transformers, times the samples."""

    def weight(self, batch: Tensor) -> float:
        return float(len(batch))

    def summed(self, logits: Tensor, batch: Tensor) -> Tensor:
        return super().summed(logits, batch) / (batch != 0).sum() * len(batch)


class MeanOverPadding(Sentences):
    """Each sample is a mean over its padded length."""

    def weight(self, batch: Tensor) -> float:
        return float(len(batch))

    def summed(self, logits: Tensor, batch: Tensor) -> Tensor:
        return (logits.mean(1) ** 2).sum()


class AttentionWithoutMask(Sentences):
    def hidden(self, model: Any, hidden: Tensor, mask: Tensor) -> Tensor:
        mixed: Tensor = model["mix"](hidden, hidden, hidden, need_weights=False)[0]
        return mixed


class AttentionWithMask(Sentences):
    """Correct."""

    def hidden(self, model: Any, hidden: Tensor, mask: Tensor) -> Tensor:
        mixed: Tensor = model["mix"](
            hidden, hidden, hidden, key_padding_mask=~mask, need_weights=False
        )[0]
        return mixed


class LastStateOfPadding(Sentences):
    def summed(self, logits: Tensor, batch: Tensor) -> Tensor:
        return (logits**2).sum()

    def hidden(self, model: Any, hidden: Tensor, mask: Tensor) -> Tensor:
        last: Tensor = model["lstm"](hidden)[0][:, -1]
        return last


# --- lockstep.Dropout


class Sorted(Classify):
    """Computes its samples in the order of their first feature."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), Dropout(0.5), nn.Linear(8, CLASSES))

    def loss(self, model: nn.Module, batch: Any) -> Any:
        order = batch[0][:, 0].argsort()
        return F.cross_entropy(model(batch[0][order]), batch[1][order], reduction="sum")


class SharedDropout(Classify):
    """A block is skipped if no sample needs it, so the next use has another number."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
            self.drop = Dropout(0.5)
            self.head = nn.Linear(4, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            needed = x[:, :1] > 0
            if needed.any():
                x = torch.where(needed, self.drop(self.one(x)), x)
            out: Tensor = self.head(self.drop(self.two(x)))
            return out

    def model(self) -> nn.Module:
        return self.Net()


class DropoutInAnExpert(SharedDropout):
    class Net(SharedDropout.Net):
        def forward(self, x: Tensor) -> Tensor:
            chosen = x[:, 0] > 0
            x = x.index_put((chosen,), self.drop(self.one(x[chosen])))
            out: Tensor = self.head(x)
            return out

    def model(self) -> nn.Module:
        return self.Net()


# --- rules over the samples, and over the calls


def losses(model: nn.Module, batch: Any) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1], reduction="none")


class Wide(Classify):
    def dataset(self, split: str) -> Dataset[Any]:
        generator = torch.Generator().manual_seed(2)
        x = torch.randn(ITEMS, 4, generator=generator)
        return torch.utils.data.TensorDataset(x, torch.arange(ITEMS) * 7 % CLASSES)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return self.rule(losses(model, batch), model(batch[0]), batch)

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return each.sum()


class Late(Wide):
    """Doubles its loss after some calls."""

    def __init__(self, first: int):
        self.calls, self.first = 0, first

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        self.calls += 1
        return each.sum() * (2 if self.calls > self.first else 1)


class Top(Wide):
    def __init__(self, count: int):
        self.count = count

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return each.topk(min(self.count, len(each))).values.sum()


class BestThreeQuarters(Wide):
    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return each.sort().values[: -(-3 * len(each) // 4)].sum()


class OutliersCut(Wide):
    """Begins at 20 samples."""

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return each[each < each.quantile(0.9)].sum() if len(each) >= 20 else each.sum()


class Maximum(Wide):
    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return (out / out.abs().max()).square().sum()


class DetachedMaximum(Wide):
    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return (out / out.abs().max().detach()).square().sum()


class Standardised(Wide):
    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return ((out - out.mean(0)) / (out.std(0, correction=0) + 1)).square().sum()


class Numbered(Standardised):
    """Its samples have their number, so no two are alike."""

    def dataset(self, split: str) -> Dataset[Any]:
        return torch.utils.data.TensorDataset(*super().dataset(split)[:], torch.arange(ITEMS))


class Mixup(Wide):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        mixed = 0.7 * batch[0] + 0.3 * batch[0].flip(0)
        return losses(model, (mixed, batch[1])).sum()


class NoiseByRow(Wide):
    """The same noise in each call, by the position in the micro-batch."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        generator = torch.Generator().manual_seed(0)
        noise = torch.randn(batch[0].shape, generator=generator).to(batch[0])
        return losses(model, (batch[0] + noise, batch[1])).sum()


class VarianceOfBatch(Wide):
    """The variance term of VICReg."""

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return each.sum() + (1 - out.var(0, correction=0)).relu().sum()


class Experts(Wide):
    """Two experts, each of which takes a third of the samples."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(4, 2)
            self.experts = nn.ModuleList(nn.Linear(4, CLASSES) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            shares = self.gate(x).softmax(1)
            chosen = shares.argmax(1)
            capacity = max(2, len(x) // 3)
            out = x.new_zeros(len(x), CLASSES)
            for number, expert in enumerate(self.experts):
                taken = ((chosen == number).cumsum(0) <= capacity) & (chosen == number)
                out = out + expert(x) * (shares[:, number] * taken)[:, None]
            return out

    def model(self) -> nn.Module:
        return self.Net()


class BalanceLoss(Experts):
    """Adds the balance of Switch Transformers, times the samples."""

    class Net(Experts.Net):
        def forward(self, x: Tensor) -> Tensor:
            self.shares = self.gate(x).softmax(1)
            experts = torch.stack([expert(x) for expert in self.experts], 1)
            out: Tensor = (self.shares[..., None] * experts).sum(1)
            return out

    def loss(self, model: Any, batch: Any) -> Any:
        total = losses(model, batch).sum()
        used = F.one_hot(model.shares.argmax(1), 2).to(total.dtype).mean(0)
        return total + len(batch[0]) * (used * model.shares.mean(0)).sum()


class BehindAGate(Wide):
    """Standardises behind a gate that is zero at first."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, CLASSES)
            self.gate = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            inner = self.inner(x)
            out: Tensor = self.head(x + self.gate * (inner - inner.mean(0)))
            return out

    def model(self) -> nn.Module:
        return self.Net()


class SmallPenalty(Wide):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return losses(model, batch).sum() + 1e-6 * sum(p.square().sum() for p in model.parameters())


def refusal_on(
    ranks: Ranks,
    task: Callable[[], Task],
    micro_size: int,
    folder: Path,
    scan_seconds: Sequence[float] = (),
) -> tuple[str, list[str]]:
    """Return the refusal of a short run, and its warnings."""
    options = {"batch": {"size": 16, "micro_size": micro_size}, "steps": 2}
    plan, spec = planned(options | {"optimizer": {"name": "sgd"}}, ranks.world_size)
    seconds = scan_seconds[ranks.rank] if scan_seconds else chosen_samples.SCAN_SECONDS_MAX
    with mock.patch.object(chosen_samples, "SCAN_SECONDS_MAX", seconds):
        try:
            Trainer(spec, plan, task(), ranks, folder).run()
        except EngineError as error:
            return str(error), []
    return "", [event["message"] for event in events(folder, "warning")]


class RaisesOnOneRank(Wide):
    """Fails in each call on rank 1 alone."""

    def __init__(self, rank: int):
        self.rank = rank

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        if self.rank == 1:
            raise RuntimeError("the labels are damaged")
        return each.sum()


def note_of_one_rank(ranks: Ranks) -> str:
    """Return the note of the check on a rank, for a loss that raises on rank 1."""
    task = RaisesOnOneRank(ranks.rank)
    _, spec = planned({"batch": {"size": 8, "micro_size": 2}, "steps": 1}, ranks.world_size)
    model = task.model().train()
    return check(task, model, task.dataset("train"), size=ITEMS, train=spec, ranks=ranks).note
