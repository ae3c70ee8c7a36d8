"""Memory figures of a plan."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.domain.training.memory import MemoryForecast, PlannedMemory, compared

GIB = 2**30
FORECAST = MemoryForecast.model_validate(
    dict.fromkeys(MemoryForecast.parts(), 0) | {"weights": GIB}
)
KNOWN: dict[str, Any] = {
    "state": "known",
    "source": "task",
    "forecast": FORECAST,
    "micro_batch_size": 8,
    "micro_batch_size_max": 32,
    "device_type": "cpu",
    "capacity_bytes": 4 * GIB,
}


def test_a_forecast_of_stages_names_the_largest() -> None:
    stages = ({"blocks": 3, "peak": GIB // 2}, {"blocks": 2, "peak": GIB})
    found = MemoryForecast.model_validate({**FORECAST.model_dump(), "stages": stages})
    assert found.sentence() == "about 1.0 GiB on stage 1 (weights 1.0); by stage 0.5, 1.0"
    assert (found.on_stage(0), FORECAST.on_stage(0)) == (GIB // 2, GIB)


@pytest.mark.parametrize(
    ("changes", "says", "of_device"),
    [
        ({}, "computed from the task", "4.0 GiB on each cpu: micro-batches of up to 32 fit"),
        (
            {"source": "code"},
            "computed from your code",
            "4.0 GiB on each cpu: micro-batches of up to 32 fit",
        ),
        (
            {"micro_batch_size_max": 4},
            "micro-batches of 8",
            "4.0 GiB on each cpu: only micro-batches of up to 4 fit",
        ),
        (
            {"micro_batch_size_max": 0},
            "micro-batches of 8",
            "4.0 GiB on each cpu: no micro-batch fits, not even one sample",
        ),
        ({"micro_batch_size_max": None}, "micro-batches of 8", "4.0 GiB on each cpu"),
        ({"capacity_bytes": None}, "about 1.0 GiB per rank (weights 1.0)", None),
        (
            {"source": "history", "job": "abc", "measured_bytes": GIB},
            "as forecast for job abc, which took 1.0 GiB",
            None,
        ),
    ],
)
def test_a_forecast_names_its_source_and_the_limit_of_the_device(
    changes: dict[str, Any], says: str, of_device: str | None
) -> None:
    memory = PlannedMemory.model_validate(KNOWN | changes)
    assert says in memory.sentence()
    if of_device is not None or memory.capacity_bytes is None:
        assert memory.device_sentence() == of_device


@pytest.mark.parametrize(
    ("memory", "says"),
    [
        (
            PlannedMemory(state="computing"),
            "the forecast is being computed; plan again in a few seconds",
        ),
        (
            PlannedMemory(state="unknown", why="the loss reads a value"),
            "no forecast: the loss reads a value",
        ),
    ],
)
def test_a_missing_forecast_has_a_reason(memory: PlannedMemory, says: str) -> None:
    assert memory.sentence() == says


def test_unmeasured_memory_has_no_number() -> None:
    assert (
        compared(None, "it was resumed", GIB) == "not measured (it was resumed); 1.0 GiB predicted"
    )
    assert compared(2 * GIB, "tensors", None) == "2.0 GiB at most on rank 0 (tensors); no forecast"
