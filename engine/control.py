"""The one small operation after the last backward of a step: what all ranks must know before they go on.

It carries this step's flags and loss, and the next step's weight, which the loader already knows because it is one
batch ahead. So a step has its divisor before its first forward, and every decision (stop here, divide by this) is
taken by all ranks at the same step. On CUDA the loss stays on the device and is summed there; flags and weights go
over the host group, so that the host never waits for the device.

Not here: the gradient's reduction (``engine.strategies``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from engine.ranks import Ranks


class Flags(NamedTuple):
    """What one rank wants all to know; in a verdict, whether any rank said so."""

    stop: bool = False
    """Leave after this step."""
    out_of_memory: bool = False
    """The step did not fit; its gradient is void."""
    unreduced: bool = False
    """Some parameter's gradient did not reach the other ranks."""
    overflow: bool = False
    """The scaled gradient is not finite; its step may be repeated at a smaller scale."""


@dataclass(frozen=True)
class Verdict:
    """What all ranks agree on. Equal on every rank."""

    flags: Flags
    sums: Tensor
    """Shape (terms,), float64, on the device: each loss term's sum over the whole batch."""
    next_divisors: tuple[float, ...]
    """Units of each loss term in the whole next batch; zeros after the last."""
    peak_bytes: tuple[float, ...]
    """Peak memory of each rank."""


class Control:
    """The control operation of one run.

    Parameters
    ----------
    ranks : Ranks
    terms : int
        Loss terms of the task.
    """

    def __init__(self, ranks: Ranks, terms: int):
        self._ranks, self._terms = ranks, terms

    def exchange(self, flags: Flags, *, sums: Tensor, next_weights: tuple[float, ...], peak_bytes: float) -> Verdict:
        """Tell the other ranks and hear from them. All ranks must call this, once before step 0 and once per step.

        Parameters
        ----------
        flags : Flags
            Of this rank.
        sums : Tensor of shape (terms,)
            Sum of each loss term over this rank's slots, float64, on the device.
        next_weights : tuple of float
            Units of each loss term in this rank's share of the next batch.
        peak_bytes : float
            This rank's peak memory.
        """
        ranks, terms = self._ranks, self._terms
        if ranks.world_size == 1:
            return Verdict(flags, sums, next_weights, (peak_bytes,))
        on_host = sums.device.type == "cpu"
        peaks = [0.0] * ranks.world_size
        peaks[ranks.rank] = peak_bytes  # A sum of vectors that each have one entry is a gather.
        vector = torch.tensor([*map(float, flags), *next_weights, *peaks], dtype=torch.float64)
        if on_host:
            vector = torch.cat([vector, sums])
        else:
            ranks.sum_on_device(sums)
        ranks.sum_on_host(vector)
        values: list[float] = vector.tolist()
        flagged, rest = values[: len(flags)], values[len(flags) :]
        return Verdict(
            flags=Flags(*(value > 0 for value in flagged)),
            sums=vector[-terms:] if on_host else sums,
            next_divisors=tuple(rest[:terms]),
            peak_bytes=tuple(rest[terms : terms + ranks.world_size]),
        )
