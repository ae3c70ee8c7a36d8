"""``image_classification``: a small convolutional net on scikit-learn's bundled handwritten digits.

It uses GroupNorm instead of BatchNorm because the loss of a sample must not depend on the other
samples of its micro-batch.

Not here: the arguments and their limits (``domain.spec.tasks.ImageClassificationArgs``).
"""

from __future__ import annotations

from importlib.metadata import distribution
from typing import Any

import numpy
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import Dataset, Subset, TensorDataset

from lockstep.domain.spec.tasks import ImageClassificationArgs
from lockstep.engine.task.interface import Task

CLASSES = 10
SIDE = 8
"""Pixels of an image's height and width."""
_SPLIT_SEED = 0
"""Of the permutation that deals images to the splits. Fixed: the job's seed must not move images
between them."""

Labelled = tuple[Tensor, Tensor]
"""Images (B, 1, 8, 8) in 0..1, and labels (B,)."""


class ConvNet(nn.Module):
    """Two convolutions and a linear layer."""

    def __init__(self, width: int):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            _group_norm(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            _group_norm(2 * width),
            nn.ReLU(),
            nn.AvgPool2d(
                2
            ),  # Not the adaptive one: on CUDA its backward has no deterministic form.
        )
        self.classify = nn.Linear(8 * width, CLASSES)

    def forward(self, images_B1HW: Tensor) -> Tensor:
        """Logits of shape (B, 10)."""
        logits_BC: Tensor = self.classify(self.features(images_B1HW).flatten(1))
        return logits_BC


def _group_norm(channels: int) -> nn.GroupNorm:
    """As many groups, up to 4, as divide the channels."""
    return nn.GroupNorm(next(groups for groups in (4, 3, 2, 1) if channels % groups == 0), channels)


def _digits() -> Labelled:
    """Return all images and labels from the file that scikit-learn brings along.

    Its own reader would cost each rank the import of scikit-learn, more than a second.
    """
    file = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
    rows = torch.from_numpy(numpy.loadtxt(str(file), delimiter=",", dtype="int64"))
    images = rows[:, :-1].to(torch.float32).reshape(-1, 1, SIDE, SIDE) / 16
    return images, rows[:, -1].clone()


class ImageClassification(Task):
    """Ten classes; the loss is in nats per image."""

    def __init__(self, **arguments: object):
        self.args = ImageClassificationArgs.model_validate(arguments)

    def model(self) -> nn.Module:
        return ConvNet(self.args.width)

    def blank_sample(self) -> Labelled:
        """A sample of the dataset's shape, without reading the images."""
        return torch.zeros(1, SIDE, SIDE), torch.zeros((), dtype=torch.int64)

    def dataset(self, split: str) -> Dataset[Any]:
        images, labels = _digits()
        order = torch.randperm(
            len(labels), generator=torch.Generator().manual_seed(_SPLIT_SEED)
        ).tolist()
        held_out = max(1, round(self.args.eval_fraction * len(order)))
        return Subset(
            TensorDataset(images, labels), order[:held_out] if split == "eval" else order[held_out:]
        )

    def loss(self, model: nn.Module, batch: Labelled) -> Tensor:
        images, labels = batch
        return F.cross_entropy(model(images), labels, reduction="sum")

    def evaluate(self, model: nn.Module, batch: Labelled) -> dict[str, tuple[Tensor, float]]:
        images, labels = batch
        logits = model(images)
        correct = (logits.argmax(1) == labels).sum()
        count = float(len(labels))
        return {
            "loss": (F.cross_entropy(logits, labels, reduction="sum"), count),
            "accuracy": (correct, count),
        }
