"""A task for tests of stops: a linear fit whose state takes a while to collect during training."""

import time

import torch
from torch import nn

from lockstep import Task


class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 1000

    def __getitem__(self, item):
        time.sleep(0.03)
        x = torch.randn(4, generator=torch.Generator().manual_seed(item))
        return x, x.sum()


class SlowState(nn.Linear):
    save_seconds, seen = 0.0, 0

    def get_extra_state(self):
        if self.seen:
            time.sleep(self.save_seconds)
        return torch.zeros(1)

    def set_extra_state(self, state):
        pass


class Slow(Task):
    def __init__(self, save_seconds):
        self.save_seconds = save_seconds

    def model(self):
        made = SlowState(4, 1)
        made.save_seconds = self.save_seconds
        return made

    def dataset(self, split):
        return Points()

    def loss(self, model, batch):
        SlowState.seen += 1
        x, y = batch
        return ((model(x).squeeze(-1) - y) ** 2).sum()
