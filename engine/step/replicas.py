"""Comparison of the model between ranks (contract C22, C23).

Runs at the start, at intervals, and before each checkpoint.

Ranks with the same gradient stay equal bit by bit, unless a device, a link or the task itself
interferes; then each silently trains another model. DDP compares shapes once, in order. It
broadcasts rank 0's values, and does not detect an order of parameters that differs between ranks.

The fingerprint of a parameter is the sum of its bits, read as integers, along its rows with a
different odd factor for each row, mod 2^64. A single changed number, even by one bit, always
changes it: an odd factor times a nonzero number is not zero mod 2^64. The cost is one read of the
parameters. All fingerprints together are one number per rank, and only that is exchanged as long as
the ranks agree.

The interval is derived from the cost of a comparison, to stay below 1/200 of the time. Rank 0's
clock decides, and its decision is sent with the fingerprints, so ranks always agree on the next
comparison.

Not here: buffers, which may differ between evaluations (``engine.model.normalization``);
verification of checkpoints (``engine.checkpoints.checkpoint``).
"""

from __future__ import annotations

import hashlib
import math
import statistics
import time
from collections import Counter, deque
from collections.abc import Callable, Container, Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.training.layout import RankLayout
from lockstep.engine.runtime.device import is_accelerator, module_of
from lockstep.engine.runtime.errors import BadSpecError, EngineError
from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.task.dropout import COLUMN

SHARE_MAX: Final = 0.005
"""Of the steps' time that comparing may take."""
FIRST_STEPS: Final = 10
"""Steps to the first comparisons, before their cost is known."""
_STEPS_NOTED: Final = 32
"""Number of steps whose median is the estimated cost of a step."""
_GATHER: Final[Callable[..., object]] = (
    getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
)
"""Torch 2.13 renamed it, and warns of the old name on every rank."""
_WHOLE_NUMBERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class ReplicaCheck:
    """Compares the parameters of all ranks. Does nothing for a single rank.

    Parameters
    ----------
    model : nn.Module
    ranks : Ranks
    clock : callable
        Seconds, from any start.
    """

    def __init__(
        self, model: nn.Module, ranks: Ranks, *, clock: Callable[[], float] = time.perf_counter
    ):
        self._ranks, self._clock, self._active = ranks, clock, ranks.world_size > 1
        self._names, self._parameters = tuple(zip(*model.named_parameters(), strict=True)) or (
            (),
            (),
        )
        self._first_rank = 0
        """First of the ranks that are compared, among all."""
        self._slices: Tensor | None = None
        """True for each parameter of which ranks hold slices; None if there is none."""
        self._slice_of: list[int] = [0] * ranks.world_size
        """Index of each rank's slices."""
        self._every = FIRST_STEPS
        self._compared_at: int | None = None
        self._cost: float | None = None
        self._last_step: float | None = None
        self._seconds: deque[float] = deque(maxlen=_STEPS_NOTED)

    def at_start(self) -> None:
        """Refuse a model that is not the same on all ranks, also in the order of its parameters.

        All ranks must call this.

        Raises
        ------
        EngineError
            ``bad_spec``: names the first parameter that differs, and the ranks.
        """
        if not self._active:
            return
        described = [
            f"{name} {tuple(parameter.shape)} {str(parameter.dtype).removeprefix('torch.')}"
            + ("" if parameter.requires_grad else " frozen")
            for name, parameter in zip(self._names, self._parameters, strict=True)
        ]
        digest = hashlib.blake2b("\n".join(described).encode(), digest_size=8).digest()
        found = fingerprints(self._parameters)
        rows = self._exchange([int.from_bytes(digest, "little", signed=True), _together(found)])
        if len({row[0] for row in rows}) > 1:
            self._refuse_structure(described)
        if len({row[1] for row in rows}) > 1:
            raise BadSpecError(
                "model() does not give the same values on all ranks: "
                f"{self._first_difference(found)}. Draw from random, numpy.random and torch's "
                "default generator only, which have the same seed on every rank, and do not use "
                "the rank",
            )

    def due(self, step: int) -> bool:
        """Return whether to compare after ``step``, counted from 1.

        Equal on all ranks; call it once after each step.
        """
        if not self._active:
            return False
        now = self._clock()
        if self._last_step is not None:
            self._seconds.append(now - self._last_step)
        self._last_step = now
        if self._compared_at is None:
            self._compared_at = step - 1
        return step - self._compared_at >= self._every

    def compare(self, step: int) -> None:
        """End the run if the ranks' parameters differ after ``step``. All ranks must call this.

        On CUDA this waits for the device. A step that was compared already is not compared again.

        Raises
        ------
        EngineError
            ``diverged``: names the parameter, and the rank where most of them agree.
        """
        if not self._active or step == self._compared_at:
            return
        if is_accelerator(self._ranks.device):
            # Or the step's own work would count as the comparison's.
            module_of(self._ranks.device).synchronize(self._ranks.device)
        began = self._clock()
        found = fingerprints(self._parameters)
        rows = self._exchange([self._proposal(), *self._summaries(found)])
        self._every, self._compared_at = rows[0][0], step
        ended = self._clock()
        self._cost, self._last_step = ended - began, ended
        # Slices are compared with those of the same index.
        of_slices = {(slice_, *row[2:]) for slice_, row in zip(self._slice_of, rows, strict=True)}
        if len({row[1] for row in rows}) > 1 or len(of_slices) > len(set(self._slice_of)):
            raise EngineError(
                Reason.DIVERGED,
                f"after step {step} the model is no longer the same on all ranks: "
                f"{self._first_difference(found)}",
            )

    def cut(self, names: Container[str], layout: RankLayout) -> None:
        """From here on ranks hold slices of these parameters, each index of the layout its own."""
        self._slices = torch.tensor([name in names for name in self._names])
        self._slice_of = [layout.place(rank).tensor for rank in range(layout.world_size)]

    def of_stage(self, model: nn.Module, mesh: Mesh, names: Container[str] = ()) -> None:
        """From here on, compare the ranks of one stage of a pipeline, which hold its parameters.

        Of those with these names they hold slices.
        """
        assert mesh.stage is not None, "of a pipeline"
        self._ranks, self._active = mesh.stage, self._active and mesh.stage.world_size > 1
        self._first_rank = mesh.world.rank - mesh.stage.rank
        self._names, self._parameters = zip(*model.named_parameters(), strict=True)
        self._slice_of = [rank % mesh.layout.tensor for rank in range(mesh.stage.world_size)]
        self._slices = torch.tensor([name in names for name in self._names])

    def stand_down(self) -> None:
        """From here on ranks hold different parts of the model: there is nothing to compare."""
        self._active = False

    def _summaries(self, found: Tensor) -> list[int]:
        """Return a number for the parameters that all ranks hold, and one for their slices."""
        if self._slices is None:
            return [_together(found)]
        slices = self._slices.to(found.device)
        return [_together(found[~slices]), _together(found[slices])]

    def _proposal(self) -> int:
        """Steps to the comparison after this one, by this rank's clock."""
        if self._cost is None or not self._seconds:
            return FIRST_STEPS
        return max(1, math.ceil(self._cost / (SHARE_MAX * statistics.median(self._seconds))))

    def _exchange(self, numbers: list[int]) -> list[list[int]]:
        """Every rank's numbers, in rank order."""
        return self._gathered(
            torch.tensor(numbers, dtype=torch.int64, device=self._ranks.device)
        ).tolist()

    def _gathered(self, vector: Tensor) -> Tensor:
        """Every rank's vector, shape (W, …)."""
        gathered = vector.new_empty(self._ranks.world_size * len(vector))
        _GATHER(gathered, vector, group=self._ranks.device_group)
        return gathered.view(self._ranks.world_size, len(vector))

    def _first_difference(self, found: Tensor) -> str:
        """The first parameter that differs, how many more do, and on which ranks.

        All ranks must call this.
        """
        columns: list[list[int]] = self._gathered(found.to(self._ranks.device)).T.tolist()
        odd = [
            (name, differing)
            for index, (name, column) in enumerate(zip(self._names, columns, strict=True))
            if (differing := self._differing(index, column))
        ]
        more = f" and {len(odd) - 1} more" if len(odd) > 1 else ""
        where = {self._first_rank + rank: value for rank, value in odd[0][1].items()}
        return f"{odd[0][0]}{more} differs, {_who(where)}"

    def _differing(self, index: int, column: list[int]) -> dict[int, int]:
        """Return the first ranks that should have one value of a parameter and do not."""
        is_cut = self._slices is not None and bool(self._slices[index])
        for slice_ in range(max(self._slice_of) + 1 if is_cut else 1):
            values = {
                rank: value
                for rank, value in enumerate(column)
                if not is_cut or self._slice_of[rank] == slice_
            }
            if len(set(values.values())) > 1:
                return values
        return {}

    def _refuse_structure(self, described: list[str]) -> None:
        everybody = self._ranks.gather(described)
        longest = max(map(len, everybody))
        padded = [theirs + ["nothing"] * (longest - len(theirs)) for theirs in everybody]
        place, there = next(
            (place, row) for place, row in enumerate(zip(*padded, strict=True)) if len(set(row)) > 1
        )
        kinds: dict[str, list[int]] = {}
        for rank, what in enumerate(there):
            kinds.setdefault(what, []).append(rank)
        kinds_in_words = "; ".join(f"{what} on {_listed(ranks)}" for what, ranks in kinds.items())
        raise BadSpecError(
            f"model() builds different models on the ranks: parameter {place + 1} is "
            f"{kinds_in_words}. "
            "Build the same layers in the same order on every rank: do not iterate over sets, "
            "and do not depend on the rank or the machine",
        )


def fingerprints(parameters: Sequence[Tensor]) -> Tensor:
    """One whole number for each parameter, shape (P,), on the device. Nothing is waited for."""
    if not parameters:
        return torch.zeros(0, dtype=torch.int64)
    with torch.no_grad():
        return torch.stack([_fingerprint(parameter.detach()) for parameter in parameters])


def _fingerprint(values: Tensor) -> Tensor:
    if values.is_complex():
        values = torch.view_as_real(values)
    rows = values.shape[0] if values.ndim > 1 else 1
    flat = values.contiguous().view(-1)
    size = values.element_size()
    wide = len(flat) * size % (8 * max(rows, 1)) == 0 and flat.storage_offset() * size % 8 == 0
    # Eight bytes at a time where they fit. Otherwise sums as narrow as the numbers: adding into
    # wider ones is eighty
    # times as slow on the CPU, and a change of one number survives mod 2^8 too.
    bits = flat.view(torch.int64 if wide else _WHOLE_NUMBERS[size])
    if not len(bits):
        return bits.new_zeros((), dtype=torch.int64)
    sums = bits.view(rows, -1).sum(1, dtype=bits.dtype).to(torch.int64)
    return (sums * _odd(rows, sums.device)).sum()


def _odd(count: int, device: torch.device) -> Tensor:
    """Odd numbers that have little to do with each other."""
    return torch.arange(count, device=device).mul_(COLUMN).bitwise_or_(1)


def _together(found: Tensor) -> int:
    return int((found * _odd(len(found), found.device)).sum())


def _who(values: dict[int, int]) -> str:
    """Return the ranks that differ, if most of them agree."""
    usual, count = Counter(values.values()).most_common(1)[0]
    if 2 * count > len(values):
        others = [rank for rank, value in values.items() if value != usual]
        return f"on {_listed(others)} from the {count} others"
    groups: dict[int, list[int]] = {}
    for rank, value in values.items():
        groups.setdefault(value, []).append(rank)
    return "between " + " and ".join(_listed(ranks) for ranks in groups.values())


def _listed(ranks: list[int]) -> str:
    return ("rank " if len(ranks) == 1 else "ranks ") + ", ".join(map(str, ranks))
