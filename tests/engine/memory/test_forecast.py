"""Memory forecast: compared with the counts of the profiler, and harmless for any task."""

from __future__ import annotations

import random
import resource
import threading
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lockstep.domain.training.memory import MemoryForecast
from lockstep.engine.memory.forecast import forecast
from lockstep.engine.memory.measured import count_of
from lockstep.engine.memory.sharing import NoForecastError
from lockstep.engine.task.causal_lm import CausalLM
from lockstep.engine.task.interface import Task
from tests.engine.memory.memory_cases import (
    CPU,
    TASKS,
    Wide,
    counted_on_rank,
    measured_on_rank,
    predicted,
    really,
    train_of,
)
from tests.harness.ranks import Pool

TOLERANCE = 0.05


ADAMW: dict[str, Any] = {"name": "adamw"}
SGD: dict[str, Any] = {"name": "sgd", "momentum": 0.9}


@pytest.mark.parametrize(
    ("name", "optimizer", "micro_batches"),
    [
        ("gpt", ADAMW, 1),
        ("gpt", SGD, 3),
        ("conv", ADAMW, 3),
        ("conv", SGD, 1),
        ("wide", ADAMW, 3),
        ("wide", SGD, 1),
        ("gpt", {"name": "torch.optim.NAdam"}, 1),
        ("wide", {"name": "torch.optim.RMSprop"}, 3),
    ],
)
def test_the_forecast_is_within_5_percent_of_the_measured_peak(
    name: str, optimizer: Any, micro_batches: int
) -> None:
    task, train = TASKS[name](), train_of(32 * micro_batches, optimizer=optimizer)
    measured = really(task, train, 32)
    assert abs(predicted(task, train, 32).peak - measured) <= TOLERANCE * measured


@pytest.mark.parametrize(
    ("name", "micro_batches", "views"),
    [
        # Every pair of these three occurs.
        ("gpt", 1, None),
        ("gpt", 2, False),
        ("conv", 1, False),
        ("conv", 2, None),
        ("wide", 1, None),
        ("wide", 2, False),
    ],
)
def test_the_forecast_includes_the_buckets_of_ddp(
    pool: Pool, name: str, micro_batches: int, views: bool | None
) -> None:
    size, buckets = 64 * micro_batches, 0 if views is None else 1
    task, train = TASKS[name](), train_of(size, strategy={"gradient_as_bucket_view": views})
    measured = max(pool.run(measured_on_rank, name, train, 32, world_size=2))
    found = predicted(task, train, 32, world_size=2)
    assert found.buckets == found.weights * buckets
    assert abs(found.peak - measured) <= TOLERANCE * measured


@pytest.mark.parametrize(
    ("size", "settings"),
    [(32, {}), (64, {"optimizer": SGD}), (64, {"activation_checkpointing": True})],
    ids=str,
)
def test_the_forecast_of_a_cut_model_is_that_of_a_rank(
    pool: Pool, size: int, settings: dict[str, Any]
) -> None:
    task, train = TASKS["gpt"](), train_of(size, parallel={"tensor": 2}, **settings)
    # Not the profiler: it misses releases of Gloo's threads, and measures until it has missed none.
    measured = max(pool.run(counted_on_rank, "gpt", train, 32, world_size=2))
    assert abs(predicted(task, train, 32, 2).peak - measured) <= TOLERANCE * measured


def test_the_buckets_of_copies_have_the_size_of_the_slices() -> None:
    settings = {"strategy": {"gradient_as_bucket_view": False}, "parallel": {"tensor": 2}}
    found = predicted(TASKS["gpt"](), train_of(128, **settings), 32, world_size=4)
    assert found.buckets == found.weights


@pytest.mark.parametrize("strategy", [{}, {"name": "fsdp"}, {"name": "fsdp", "shard": 2}], ids=str)
def test_a_rank_of_a_cut_model_holds_its_slices(strategy: dict[str, Any]) -> None:
    task = CausalLM(context=16, layers=2, heads=4, width=512, max_bytes=4096)
    whole, half, quarter = (
        predicted(task, train_of(8, strategy=strategy, parallel={"tensor": size}), 1, 4 * size)
        for size in (1, 2, 4)
    )
    assert half.weights == pytest.approx(whole.weights / 2, rel=0.02)
    assert half.optimizer == pytest.approx(whole.optimizer / 2, rel=0.02)
    assert quarter.weights == pytest.approx(whole.weights / 4, rel=0.04)


def test_the_parts_of_the_forecast_match_the_model() -> None:
    task = Wide(1024)
    parameters = 1024 * 1024 + 1024 + 10 * 1024 + 10
    found = predicted(task, train_of(16), 8)
    assert found.weights == 4 * parameters
    assert found.optimizer == pytest.approx(
        2 * 4 * parameters, abs=100
    )  # and a step counter per parameter
    assert (
        found.gradients == 4 * parameters
    )  # The peak is in the second micro-batch: a whole gradient exists.
    assert found.peak == sum(getattr(found, name) for name in MemoryForecast.parts())


def test_activations_grow_with_the_micro_batch() -> None:
    task = TASKS["gpt"]()
    small, large = (predicted(task, train_of(64), micro) for micro in (8, 32))
    assert small.weights == large.weights
    assert 3.5 * small.activations < large.activations < 4.5 * small.activations


def test_nothing_is_allocated_for_a_model_of_four_gigabytes() -> None:
    task = Wide()
    sample = task.dataset("train")[0]
    forecast(task, train_of(8), micro_batch_size=8, world_size=1, sample=sample)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    task.width = 32_768
    sample = task.dataset("train")[0]
    found = forecast(task, train_of(8), micro_batch_size=8, world_size=1, sample=sample)
    grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert found.peak > 16 * 2**30
    assert grown_kib < 100 * 2**10


def test_no_random_number_is_drawn() -> None:
    def state() -> tuple[bytes, object, str]:
        return (
            torch.get_rng_state().numpy().tobytes(),
            random.getstate(),
            repr(np.random.get_state(legacy=True)),
        )

    task = TASKS["gpt"]()
    sample = task.dataset("train")[0]
    before = state()
    forecast(task, train_of(8), micro_batch_size=2, world_size=1, sample=sample)
    assert state() == before


class Reads(Wide):
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        loss = super().loss(model, batch)
        return loss if loss.item() > 0 else -loss


class Selects(Wide):
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        return super().loss(model, (batch[0][batch[1] == 0], batch[1][batch[1] == 0]))


class Raises(Wide):
    def model(self) -> nn.Module:
        raise OSError("no weights at /somewhere")


@pytest.mark.parametrize(
    ("task", "why"),
    [
        (Reads(), r"reads a value of a tensor \(aten._local_scalar_dense"),
        (Selects(), r"shape of a result depends on values \(aten.nonzero"),
        (Raises(), "OSError: no weights at /somewhere"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Task) else "",
)
def test_a_model_that_needs_values_has_a_reason_and_no_forecast(task: Task, why: str) -> None:
    with pytest.raises(NoForecastError, match=why):
        predicted(task, train_of(8), 4)


def test_a_strategy_without_a_rule_has_no_forecast() -> None:
    with pytest.raises(NoForecastError, match="diloco distributes memory over the ranks"):
        predicted(
            Wide(), train_of(8, strategy={"name": "diloco", "sync_every_steps": 2}), 4, world_size=2
        )


def test_fsdp_shards_weights_gradients_and_optimizer_state() -> None:
    whole, half = (
        predicted(Wide(1024), train_of(8, strategy={"name": name}), 4, 2)
        for name in ("ddp", "fsdp")
    )
    assert half.weights == pytest.approx(whole.weights / 2, rel=0.01)
    assert half.optimizer == pytest.approx(whole.optimizer / 2, rel=0.01)
    hybrid = predicted(
        Wide(1024), train_of(8, strategy={"name": "fsdp", "shard": 2}), 4, world_size=4
    )
    assert (hybrid.weights, hybrid.optimizer) == (half.weights, half.optimizer)
    assert not torch.distributed.is_initialized()


def test_tensors_that_the_task_holds_may_be_real() -> None:
    class Weighted(Wide):
        weights = torch.ones(10)

        def loss(self, model: nn.Module, batch: Any) -> Tensor:
            return F.cross_entropy(model(batch[0]), batch[1], weight=self.weights, reduction="sum")

    assert predicted(Weighted(), train_of(8), 4).peak > 0


def test_a_model_may_convert_itself() -> None:
    class Converts(Wide):
        def model(self) -> nn.Module:
            return super().model().float().to("cpu").double().float()

    found, plain = (predicted(task, train_of(8), 4) for task in (Converts(), Wide()))
    assert found == plain


def test_the_measured_peak_is_what_was_held_at_one_moment() -> None:
    def run() -> None:
        first = torch.ones(1 << 20)
        second = torch.ones(1 << 18)
        del first
        third = torch.ones(1 << 19)
        del second, third

    assert count_of(run, CPU) == (4 * ((1 << 20) + (1 << 18)), 0)


def test_a_missed_release_remains_at_the_end() -> None:
    def release() -> None:
        held.clear()

    held: list[Tensor] = []

    def run() -> None:
        held.append(torch.ones(1 << 20))
        other = threading.Thread(target=release)
        other.start()
        other.join()

    assert count_of(run, CPU).left == 4 << 20


def test_the_sentence_names_the_largest_part_first() -> None:
    gib = 2**30
    found = MemoryForecast(
        weights=gib // 2,
        buffers=100,
        gradients=gib // 2,
        optimizer=gib,
        activations=gib // 5,
        temporary=0,
        buckets=0,
    )
    assert found.sentence() == (
        "about 2.2 GiB per rank (optimizer 1.0, weights 0.5, gradients 0.5, activations 0.2)"
    )
