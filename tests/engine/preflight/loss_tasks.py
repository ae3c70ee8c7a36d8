"""Tasks whose loss is a sum over samples, and tasks whose loss is not, each with one error."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import Dataset, TensorDataset

from lockstep.domain.spec.train import Train
from lockstep.engine.task.dropout import Dropout
from lockstep.engine.task.interface import Task

CLASSES = 3


def settings(seed: int, batch: int, micro_size: int | None = None) -> Train:
    """Return the settings of a run of ``train.py:Mine``."""
    spec = {"batch": {"size": batch, "micro_size": micro_size or "auto"}, "steps": 1, "seed": seed}
    train = Train.model_validate({"task": "causal_lm", "task_args": {}} | spec)
    return train.model_copy(update={"task": "train.py:Mine"})


class Classify(Task):
    """Correct: the sum of cross-entropies. Subclasses change one thing each."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, CLASSES))

    def dataset(self, split: str) -> Dataset[Any]:
        generator = torch.Generator().manual_seed(0)
        return TensorDataset(
            torch.randn(30, 4, generator=generator), torch.arange(30) * 7 % CLASSES
        )

    def loss(self, model: nn.Module, batch: Any) -> Any:
        x, y = batch
        return F.cross_entropy(model(x), y, reduction="sum")


# --- accepted


class Tokens(Classify):
    """Five predictions per sample, of which zero to five count."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Embedding(9, 6), nn.Linear(6, CLASSES))

    def dataset(self, split: str) -> Dataset[Any]:
        tokens = torch.arange(150).view(30, 5) * 5 % 9
        targets = torch.where(
            torch.arange(5) < torch.arange(30)[:, None] % 6, tokens % CLASSES, -100
        )
        return TensorDataset(tokens, targets)

    def weight(self, batch: Any) -> Any:
        return float((batch[1] != -100).sum())

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten(), reduction="sum")


class Terms(Classify):
    def weight(self, batch: Any) -> Any:
        return {"fit": float(len(batch[0])), "small": 2.0 * len(batch[0])}

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return {"fit": super().loss(model, batch), "small": model(batch[0]).square().sum()}


class Penalized(Classify):
    def penalty(self, model: nn.Module) -> Tensor:
        return sum((p.square().sum() for p in model.parameters()), torch.zeros(()))


class WeightedSum(Classify):
    rates = torch.tensor([1.0, 5.0, 0.5])

    def __init__(self) -> None:
        self.criterion = nn.CrossEntropyLoss(weight=self.rates.clone(), reduction="sum")

    def weight(self, batch: Any) -> Any:
        return float(self.rates[batch[1]].sum())

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return self.criterion(model(batch[0]), batch[1])


class Dropping(Classify):
    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(4, 8),
            nn.Dropout(0.5),
            Dropout(0.5),
            nn.AlphaDropout(0.1),
            nn.Linear(8, CLASSES),
        )


class DroppingByHand(Classify):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return F.dropout(self.linear(x), 0.5, training=self.training)

    def model(self) -> nn.Module:
        return self.Net()


class Images(Classify):
    """GroupNorm uses one sample at a time."""

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 2), nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(4, CLASSES)
        )

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(model(batch[0].view(-1, 1, 2, 2)), batch[1], reduction="sum")


class Recomputing(Classify):
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 5), nn.Linear(5, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            hidden: Tensor = checkpoint(self.one, x.requires_grad_(), use_reentrant=True)
            out: Tensor = self.two(hidden)
            return out

    def model(self) -> nn.Module:
        return self.Net()


class Named(Classify):
    Pair = namedtuple("Pair", "x y")

    def collate(self, samples: list[Any]) -> Any:
        return self.Pair(torch.stack([s[0] for s in samples]), torch.stack([s[1] for s in samples]))


CORRECT = [
    Classify,
    Tokens,
    Terms,
    Penalized,
    WeightedSum,
    Dropping,
    DroppingByHand,
    Images,
    Recomputing,
    Named,
]


# --- refused


class Mean(Classify):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(model(batch[0]), batch[1])


class MeanOfTokens(Tokens):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(model(batch[0]).flatten(0, 1), batch[1].flatten())


class MeanOfTokensBySamples(MeanOfTokens):
    """Some samples have no token that counts: their mean is 0 / 0."""

    def weight(self, batch: Any) -> Any:
        return float(len(batch[0]))


class MeanTerm(Terms):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return {"fit": Classify.loss(self, model, batch), "small": model(batch[0]).square().mean()}


class ClassWeightedMean(Classify):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(
            model(batch[0]), batch[1], weight=WeightedSum.rates.to(batch[0].dtype)
        )


class ClassWeightedMeanByWeight(WeightedSum):
    """Its weight() counts its divisor: only the division is too much."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) / self.weight(batch)


class L2InTheLoss(Classify):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) + 1e-3 * sum(p.square().sum() for p in model.parameters())


class L2OfSomeLayers(Classify):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) + 1e-4 * next(model.parameters()).square().sum()


class L1InTheLoss(Classify):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) + 1e-3 * sum(p.abs().sum() for p in model.parameters())


class ConstantInTheLoss(Classify):
    """Changes no gradient, but the reported loss."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) + sum(
            p.detach().square().sum() for p in model.parameters()
        )


class InBatchNegatives(Classify):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        rows = F.normalize(model(batch[0]), dim=1)
        return F.cross_entropy(rows @ rows.T, torch.arange(len(rows)), reduction="sum")


class CentredByTheBatch(Classify):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return F.cross_entropy(model(batch[0] - batch[0].mean(0)), batch[1], reduction="sum")


class BatchNormed(Images):
    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, CLASSES)
        )


class BatchNormOfVectors(Classify):
    """One sample has no variance: torch raises in train mode."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, CLASSES))


class BatchNormedMean(BatchNormed):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        return super().loss(model, batch) / len(batch[0])


class CountsNothing(Classify):
    def weight(self, batch: Any) -> Any:
        return 1.0


class CountsPadding(Classify):
    def weight(self, batch: Any) -> Any:
        return float(len(batch[0]) * (2 if len(batch[0]) > 1 else 1))


WRONG: list[tuple[type[Task], str]] = [
    (
        Mean,
        r"loss\(\) .*is a mean over the micro-batch: return the sum \(reduction='sum'\), and return the divisor",
    ),
    (MeanOfTokens, r"is a mean over the micro-batch"),
    (MeanOfTokensBySamples, r"divides by a count that can be zero: return the sum|is a mean"),
    (MeanTerm, r"loss\(\)"),
    (
        ClassWeightedMean,
        r"is a mean with weights.*class-weighted cross-entropy.*return the sum of the weights from weight\(\)",
    ),
    (ClassWeightedMeanByWeight, r"is a mean over the micro-batch"),
    (
        L2InTheLoss,
        r"does not depend on the samples, an L2 penalty on the parameters.*move it to penalty\(self, model\)",
    ),
    (L2OfSomeLayers, r"an L2 penalty on the parameters"),
    (
        L1InTheLoss,
        r"does not depend on the samples, a penalty on the parameters.*move it to penalty",
    ),
    (ConstantInTheLoss, r"does not depend on the samples"),
    (
        InBatchNegatives,
        r"on the others in its micro-batch \(in-batch negatives.*batch_dependent = True",
    ),
    (CentredByTheBatch, r"on the others in its micro-batch"),
    (BatchNormed, r"through BatchNorm \(1\): use GroupNorm, or declare batch_dependent = True"),
    (BatchNormOfVectors, r"through BatchNorm \(1\): use GroupNorm"),
    (BatchNormedMean, r"through BatchNorm \(1\).*besides, it is a mean over the micro-batch"),
    (
        CountsNothing,
        r"weight\(\) .*counts 1 for 16 samples together, but 5 for the same samples in 5 parts",
    ),
    (
        CountsPadding,
        r"weight\(\) .*counts 32 for 16 samples together, but 29 for the same.*tokens without padding",
    ),
]
