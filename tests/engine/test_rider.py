"""What ranks say to each other while it travels with their gradient: exact, and last.

Not here: how many operations a step has (``test_c09_c10_communication``), ranks that fail on the way
(``test_c11_unreduced``, ``test_c36_out_of_memory``).
"""

from __future__ import annotations

import gc
import math
import struct
import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.engine.strategies.rider import NUMBERS_MAX, Rider
from tests.engine import rider_cases
from tests.engine.pool import Pool
from tests.engine.spool import events
from tests.engine.toy import Toy, toy_task

HARD = [math.nan, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 2.0**53 + 2, 1 / 3, -1e-300, 65535.0]
OPTIONS: dict[str, Any] = {"batch": {"size": 12, "micro_size": 2}, "optimizer": {"name": "sgd"}, "steps": 4}


def bits(numbers: list[float]) -> list[bytes]:
    return [struct.pack("<d", number) for number in numbers]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("world_size", [2, 3, 7, 256])
def test_every_rank_hears_every_number_bit_by_bit(world_size: int, dtype: torch.dtype) -> None:
    riders = [Rider(rank, world_size, dtype) for rank in range(world_size)]
    said = [[*HARD, float(rank), rank / 7][-NUMBERS_MAX:] for rank in range(world_size)]
    for told in (said, [numbers[::-1] for numbers in said], [numbers[:3] for numbers in said]):
        received = torch.zeros_like(riders[0].parameter)
        for rider, numbers in zip(riders, told, strict=True):
            rider.log_line = partial(list, numbers)
            rider.root().backward()  # type: ignore[no-untyped-call]
            assert rider.parameter.grad is not None
            received += rider.parameter.grad * torch.tensor(1.0 / world_size, dtype=dtype)  # As DDP divides.
            rider.parameter.grad.fill_(9.0)  # As DDP writes what it received.
            rider.parameter.grad = None
        for heard, numbers in zip(riders[0].numbers(received.detach()), told, strict=True):
            assert bits(heard) == bits(numbers)


def test_the_next_batch_is_fetched_while_the_gradient_travels(pool: Pool, tmp_path: Path) -> None:
    for seen in pool.run(rider_cases.fetches_ahead, Toy(), OPTIONS, tmp_path, world_size=2):
        # The first two before anything travels, and then each one when all has been sent and nothing heard.
        assert seen == [(False, False), (False, False), (True, False), (True, False)]


def test_a_rider_is_gone_when_its_strategy_is() -> None:
    rider = Rider(0, 2, torch.float32)
    rider.log_line = lambda: [1.0]
    root = rider.root()
    for _ in range(2):
        root.backward()  # type: ignore[no-untyped-call]
    gone = weakref.ref(rider)
    del rider, root
    gc.collect()
    assert gone() is None


def test_it_is_no_parameter_of_the_model(pool: Pool, tmp_path: Path) -> None:
    names = tuple(toy_task(Toy(), tmp_path).model().state_dict())
    assert pool.run(rider_cases.trained, Toy(), OPTIONS, tmp_path / "run", world_size=2) == [names] * 2


def test_an_item_that_does_not_fit_is_not_taken_for_a_micro_batch(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="no room for an item"):
        pool.run(rider_cases.fails_to_fetch, Toy(), OPTIONS, tmp_path, world_size=2)
    assert len(events(tmp_path, "plan")) == 1


def test_a_rank_that_fails_when_everything_was_sent_does_not_repeat_the_step(pool: Pool, tmp_path: Path) -> None:
    with pytest.raises(torch.OutOfMemoryError, match="too late"):
        pool.run(rider_cases.fails_when_all_is_sent, Toy(), OPTIONS, tmp_path, world_size=2)
    assert len(events(tmp_path, "plan")) == 1
