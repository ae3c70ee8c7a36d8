"""Tasks for ``tests.engine.model.test_modes``, in a module that the pool's ranks can import."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.runtime.ranks import Ranks
from tests.engine.start_cases import Line, train


def layers() -> nn.Sequential:
    """Return a backbone with statistics and dropout, and a head."""
    torch.manual_seed(5)
    backbone = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    backbone[1].running_mean.fill_(0.25)
    return nn.Sequential(backbone, nn.Linear(4, 1)).double()


class Frozen(Line):
    """Frozen backbone, which ``model()`` leaves in evaluation mode."""

    def model(self) -> nn.Module:
        self.built = layers()
        self.built[0].eval().requires_grad_(False)
        return self.built

    def loss(self, model: nn.Module, batch: Any) -> Any:
        if torch.is_grad_enabled():
            self.modes = [module.training for module in model.modules()]
        return super().loss(model, [part.double() for part in batch])


class Trainable(Frozen):
    """The same backbone, trainable and left in evaluation mode by mistake."""

    def model(self) -> nn.Module:
        super().model()
        return self.built.requires_grad_(True)


class Loaded(Frozen):
    """Whole model in evaluation mode, as ``from_pretrained`` returns it."""

    batch_dependent = True

    def model(self) -> nn.Module:
        self.built = layers()
        return self.built.eval()


class Kept(nn.Sequential):
    """Keeps its first part in evaluation mode itself."""

    def train(self, mode: bool = True) -> Kept:
        super().train(mode)
        self[0].eval()
        return self


class ByItself(Frozen):
    def model(self) -> nn.Module:
        self.built = Kept(*layers())
        self.built[0].requires_grad_(False)
        return self.built


def run(
    ranks: Ranks, kind: type[Frozen], folder: Path, more: dict[str, Any]
) -> tuple[list[bool], dict[str, Tensor]]:
    """Return the modes in the last loss, and the final weights."""
    task = kind()
    train(task, folder, ranks, eval={"every_steps": 1}, **more)
    (last,) = checkpoint.complete(folder / "checkpoints")
    return task.modes, checkpoint.load(last)["model"]
