"""Runs of ranks for the tests of precision."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from lockstep.engine.model.precision import Precision, Scaler
from lockstep.engine.runtime.ranks import Ranks
from tests.engine import cases, numerics
from tests.engine.cases import Seen
from tests.engine.numerics import Odd
from tests.engine.toy import Toy, ToyTask, initial, item


class NarrowTask(ToyTask):
    """Its parameters are bfloat16."""

    def model(self) -> nn.Module:
        self.built = initial(self.toy).to(torch.bfloat16)
        return self.built


def micro_gradients(
    ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path, *, narrow: bool = False
) -> tuple[Seen, dict[str, Tensor]]:
    """Run one step of the engine; return it with the float64 sum of the separate gradients of its
    micro-batches."""
    task = NarrowTask(toy) if narrow else ToyTask(toy)
    with (
        mock.patch.object(cases, "toy_task", return_value=task),
        # The engine refuses the narrow model; the copy for the additivity check is not under test.
        mock.patch("lockstep.engine.loop.assembly.require_wide_parameters")
        if narrow
        else contextlib.nullcontext(),
    ):
        seen = cases.train(ranks, toy, settings, folder)
    model = initial(toy)
    if narrow:
        model = model.to(torch.bfloat16)
    weight = float(
        sum(
            item(toy, index)[3].sum() for micro_batch in seen.micro_batches for index in micro_batch
        )
    )
    total: dict[str, Tensor] = {}
    for micro_batch in seen.micro_batches:
        rows = [item(toy, index) for index in micro_batch]
        batch = tuple(torch.stack([row[part] for row in rows]) for part in range(4))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = ToyTask(toy).loss(model, batch)
        assert isinstance(loss, Tensor)
        model.zero_grad()
        (loss / weight).backward()  # type: ignore[no-untyped-call]
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            total[name] = (
                total.get(name, torch.zeros((), dtype=torch.float64)) + parameter.grad.double()
            )
    return seen, total


def narrow_gradients(
    ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path
) -> tuple[Seen, dict[str, Tensor]]:
    """Return the same for parameters in bfloat16, which the engine refuses."""
    return micro_gradients(ranks, toy, settings, folder, narrow=True)


def scales_of(ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path, calls: int) -> int:
    """Count the divisions of the gradient by the scale in a run of ``calls`` steps."""
    with mock.patch.object(Scaler, "unscale", autospec=True, side_effect=Scaler.unscale) as unscale:
        cases.train(ranks, toy, settings, folder)
    return int(unscale.call_count)


def own_part(parameter: nn.Parameter) -> Tensor:
    """Return this rank's part of a gradient."""
    assert parameter.grad is not None
    return parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad


@contextlib.contextmanager
def infinities(rank: int, at: dict[int, int]) -> Iterator[None]:
    """Put infinities into this rank's gradient; ``at`` maps the first unscaling to repetitions."""
    original, calls = Scaler.unscale, iter(range(10_000))
    chosen = {first + again for first, times in at.items() for again in range(times)}

    def unscale(self: Scaler, parameters: Any) -> bool:
        listed = list(parameters)
        if next(calls) in chosen and rank == 0:
            next(local for local in map(own_part, listed) if local.numel()).view(-1)[0] = torch.inf
        return original(self, listed)

    with mock.patch.object(Scaler, "unscale", unscale):
        yield


def train_with_infinities(
    ranks: Ranks, toy: Toy, settings: dict[str, Any], folder: Path, victim: int, at: dict[int, int]
) -> Seen:
    """Train with a gradient that overflows on one rank at the unscalings in ``at``."""
    return cases.train(
        ranks, toy, settings, folder, lambda: infinities(abs(ranks.rank - victim), at)
    )


def train_scaled(
    ranks: Ranks,
    toy: Toy,
    settings: dict[str, Any],
    folder: Path,
    odd: Odd,
    grow_after: int,
    start: float,
    mutate: Callable[[], contextlib.AbstractContextManager[None]] | None = None,
) -> numerics.End:
    """Train with another first scale, and another number of good steps before it grows."""
    with (
        mock.patch.object(Scaler, "GROW_AFTER", grow_after),
        mock.patch.object(Scaler, "START", start),
    ):
        return numerics.train(ranks, toy, settings, folder, odd, mutate)


@contextlib.contextmanager
def scale_not_restored() -> Iterator[None]:
    with mock.patch.object(Precision, "load"):
        yield
