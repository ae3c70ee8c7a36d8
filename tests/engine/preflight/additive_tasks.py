"""Ordinary models whose loss is a sum over samples. The check must not refuse them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

from lockstep.engine.task.dropout import Dropout
from tests.engine.preflight.coupled_tasks import WIDTH, AttentionWithMask, Sentences, Wide
from tests.engine.preflight.loss_tasks import CLASSES, WeightedSum


class Packed(Sentences):
    """A bidirectional LSTM over packed sequences."""

    def model(self) -> nn.Module:
        model: Any = super().model()
        model["lstm"] = nn.LSTM(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        return model

    def hidden(self, model: Any, hidden: Tensor, mask: Tensor) -> Tensor:
        packed = pack_padded_sequence(
            hidden, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        found: Tensor = pad_packed_sequence(
            model["lstm"](packed)[0], batch_first=True, total_length=hidden.shape[1]
        )[0]
        return found


class Encoder(AttentionWithMask):
    """Attention with the engine's dropout, computed again in backward."""

    def model(self) -> nn.Module:
        model: Any = super().model()
        model["drop"] = Dropout(0.3)
        return model

    def hidden(self, model: Any, hidden: Tensor, mask: Tensor) -> Tensor:
        def block(x: Tensor) -> Tensor:
            mixed: Tensor = model["drop"](AttentionWithMask.hidden(self, model, x, mask))
            return x + mixed

        found: Tensor = checkpoint(block, hidden, use_reentrant=False)
        return found


class Deep(Wide):
    """60 layers without normalisation."""

    def model(self) -> nn.Module:
        layers = [layer for _ in range(60) for layer in (nn.Linear(4, 4), nn.Tanh())]
        return nn.Sequential(*layers, nn.Linear(4, CLASSES))


class Recurrent(Wide):
    """480 steps."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn, self.head = nn.RNN(1, 5, batch_first=True), nn.Linear(5, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(self.rnn(x.repeat(1, 120)[..., None])[0][:, -1])
            return out

    def model(self) -> nn.Module:
        return self.Net()


class TopTwo(Wide):
    """Each sample goes through the best two of four experts."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(4, 4)
            self.experts = nn.ModuleList(nn.Linear(4, CLASSES) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            shares, best = self.gate(x).softmax(1).topk(2)
            out = x.new_zeros(len(x), CLASSES)
            for number, expert in enumerate(self.experts):
                row, column = (best == number).nonzero(as_tuple=True)
                out = out.index_add(0, row, expert(x[row]) * shares[row, column, None])
            return out

    def model(self) -> nn.Module:
        return self.Net()


class LoRA(Wide):
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.base = nn.Linear(4, CLASSES).requires_grad_(False)
            self.a = nn.Parameter(torch.randn(2, 4))
            self.b = nn.Parameter(torch.zeros(CLASSES, 2))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.base(x) + x @ self.a.T @ self.b.T
            return out

    def model(self) -> nn.Module:
        return self.Adapted()


class NormInEval(Wide):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6).eval(), nn.Linear(6, CLASSES))


class Smoothed(WeightedSum):
    def __init__(self) -> None:
        self.criterion = nn.CrossEntropyLoss(
            weight=self.rates.clone(), reduction="sum", label_smoothing=0.1
        )


class CTC(Wide):
    def model(self) -> nn.Module:
        return nn.Sequential(nn.Unflatten(1, (4, 1)), nn.Linear(1, CLASSES + 1))

    def loss(self, model: nn.Module, batch: Any) -> Any:
        scores = model(batch[0]).log_softmax(2).transpose(0, 1)
        lengths = torch.full((len(batch[1]),), 4)
        targets = batch[1][:, None] + 1
        return F.ctc_loss(scores, targets, lengths, torch.ones_like(lengths), reduction="sum")


class GradientPenalty(Wide):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        x = batch[0].requires_grad_()
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return (
            F.cross_entropy(out, batch[1], reduction="sum") + (slope.norm(dim=1) - 1).square().sum()
        )


class Spectral(Wide):
    def model(self) -> nn.Module:
        return nn.Sequential(parametrizations.spectral_norm(nn.Linear(4, 5)), nn.Linear(5, CLASSES))


class WeightNormed(Wide):
    def model(self) -> nn.Module:
        return nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 5)), nn.Linear(5, CLASSES))


class Narrow(Wide):
    """Weights in bfloat16."""

    def model(self) -> nn.Module:
        return super().model().bfloat16()

    def loss(self, model: nn.Module, batch: Any) -> Any:
        out = model(batch[0].to(next(model.parameters()).dtype)).float()
        return F.cross_entropy(out, batch[1], reduction="sum")


class Autocast(Wide):
    def loss(self, model: nn.Module, batch: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            out = model(batch[0].float())
        return F.cross_entropy(out.float(), batch[1], reduction="sum")


class DroppedByRow(Wide):
    """Stochastic depth, with the engine's masks."""

    def model(self) -> nn.Module:
        return nn.Sequential(
            nn.Unflatten(1, (1, 4)), Dropout(0.2), nn.Flatten(), nn.Linear(4, CLASSES)
        )


class LoggingAndCounting(Wide):
    def __init__(self) -> None:
        self.log: list[float] = []
        self.seen = torch.zeros(())

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        self.log.append(float(each.detach().mean()))
        self.seen += len(each)
        return each.sum()


class Teacher(Wide):
    """The task holds a trainable teacher, which each call updates."""

    def __init__(self) -> None:
        self.teacher = nn.Linear(4, CLASSES)

    def loss(self, model: nn.Module, batch: Any) -> Any:
        with torch.no_grad():
            self.teacher.weight.mul_(0.9)
            target = self.teacher(batch[0])
        return super().loss(model, batch) + (model(batch[0]) - target).square().sum()


class Cancelling(Wide):
    """The gradients of its samples nearly cancel."""

    def loss(self, model: nn.Module, batch: Any) -> Any:
        out = model(batch[0])
        return (out.square() * 1e6).sum() * 1e-6 - out.square().sum() + 1e-3 * out.sum()


class NotFinite(Wide):
    """Some samples are NaN."""

    def dataset(self, split: str) -> Any:
        data: Any = super().dataset(split)
        data.tensors[0][::5] = float("nan")
        return data


class Amplifying(Wide):
    """Amplifies rounding a hundred thousand times."""

    def model(self) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 256), nn.Linear(256, CLASSES))

    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return (1e5 * out).sin().sum()


class AmplifyingMean(Amplifying):
    def rule(self, each: Tensor, out: Tensor, batch: Any) -> Any:
        return super().rule(each, out, batch) / len(out)


class OwnMode(Wide):
    """Its model keeps the mode in an attribute of its own, and draws in training mode."""

    class Net(nn.Linear):
        noisy = True

        def train(self, mode: bool = True) -> OwnMode.Net:
            self.noisy = mode
            return super().train(mode)

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x + torch.randn_like(x) if self.noisy else x)

    def model(self) -> nn.Module:
        return self.Net(4, CLASSES)
