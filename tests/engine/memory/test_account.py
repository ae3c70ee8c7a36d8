"""Reports of a run about its memory and its FLOPs, and their moments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.domain.spec.train import Train
from lockstep.domain.training.memory import MemoryForecast
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.data.loader import RankBatch
from lockstep.engine.loop.report import StepReport
from lockstep.engine.memory import account
from lockstep.engine.memory.account import MemoryReport
from lockstep.engine.memory.forecast_process import StartForecast
from lockstep.engine.runtime.flops import FlopCount
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.telemetry import Telemetry
from lockstep.engine.runtime.timeline import Parts

MIB = 2**20
TRAIN = Train.model_validate(
    {"task": "causal_lm", "batch": {"size": 64, "micro_size": 8}, "steps": 2}
)
PLAN = BatchPlan(batch_size=64, micro_batch_size=8, accumulation_steps=8, world_size=1)
MEMORY = MemoryForecast.model_validate(dict.fromkeys(MemoryForecast.parts(), MIB))


class Arrives:
    """Replaces the forecast process: answers at the second poll."""

    answer = StartForecast(memory=MEMORY, flops_per_sample=1e9)

    def __init__(self, *_: Any, **asked: Any):
        self.asked, self.looks, self.closed = asked, 0, False

    def arrived(self) -> StartForecast | None:
        self.looks += 1
        return self.answer if self.looks == 2 else None

    def close(self) -> None:
        self.closed = True


class Of:
    """An account and its reports."""

    def __init__(
        self,
        folder: Path,
        ranks: Ranks | None = None,
        code: Path | None = Path(),
        train: Train = TRAIN,
    ):
        self.folder = folder
        ranks = ranks or Ranks()
        self.telemetry = Telemetry(folder, writes=ranks.first)
        self.account = MemoryReport(train, ranks, self.telemetry, code)

    def events(self, kind: str) -> list[dict[str, Any]]:
        self.telemetry.close()
        lines = (self.folder / "spool" / "events.jsonl").read_text().splitlines()
        return [event["data"] for event in map(json.loads, lines) if event["kind"] == kind]


@pytest.fixture(autouse=True)
def _beside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(account, "PredictionProcess", Arrives)


def test_the_plan_gets_its_forecast_when_it_arrives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = Of(tmp_path)
    of.account.begin(PLAN, sample=1)
    assert of.account.poll(PLAN) is PLAN
    assert of.account.flop_count is None
    assert of.account.poll(PLAN).memory == MEMORY
    assert of.account.flop_count == FlopCount(1e9, None)
    assert "memory: about 7.0 MiB per rank" in capsys.readouterr().out
    assert of.account.poll(PLAN) is PLAN
    of.telemetry.close()


def test_a_forecast_for_another_micro_batch_is_not_used(tmp_path: Path) -> None:
    of = Of(tmp_path)
    of.account.begin(PLAN, sample=1)
    halved = PLAN.settled(4)
    of.account.poll(halved)
    assert of.account.poll(halved) is halved
    assert of.account.flop_count is not None
    of.telemetry.close()


def test_without_a_forecast_the_log_has_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Arrives, "answer", StartForecast(why="the loss reads a value"))
    of = Of(tmp_path)
    of.account.begin(PLAN, sample=1)
    of.account.poll(PLAN)
    assert of.account.poll(PLAN) is PLAN
    assert "memory: no forecast: the loss reads a value" in capsys.readouterr().out
    of.telemetry.close()


@pytest.mark.parametrize(
    ("ranks", "code"), [(Ranks(rank=1, world_size=2), Path()), (Ranks(), None)]
)
def test_only_rank_0_requests_a_forecast_and_only_with_code(
    tmp_path: Path, ranks: Ranks, code: Path | None
) -> None:
    of = Of(tmp_path, ranks, code)
    of.account.begin(PLAN, sample=1)
    assert of.account._prediction is None
    of.telemetry.close()


def counted_step(of: Of, step: int, held_bytes: int) -> None:
    batch = RankBatch(step=step, size=64, micro_batches=[])
    with of.account.counting(batch):
        tensor = torch.ones(held_bytes // 4)
        with of.account.uncounted():
            following = torch.ones(64 * MIB // 4)
        del tensor, following


@pytest.mark.parametrize(
    ("plan", "forecast"), [(PLAN, None), (PLAN.model_copy(update={"memory": MEMORY}), 7 * MIB)]
)
def test_on_the_cpu_the_second_step_is_measured(
    tmp_path: Path, plan: BatchPlan, forecast: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    of = Of(tmp_path)
    of.account.begin(plan, sample=1)
    for step, held_bytes in enumerate((8 * MIB, 4 * MIB, 16 * MIB)):
        counted_step(of, step, held_bytes)
    of.account.finish(plan)
    assert ("7.0 MiB predicted" if forecast else "no forecast") in capsys.readouterr().out
    found = of.events("memory")[0]
    assert (found["measured_bytes"], found["measure"], found["forecast_bytes"]) == (
        4 * MIB,
        "tensors",
        forecast,
    )


@pytest.mark.parametrize(
    ("settings", "steps", "halves", "why"),
    [
        ({}, [0], False, "first 2 steps"),
        ({}, [1, 2], False, "first 2 steps"),
        ({}, [0, 1], True, "micro-batches of up to 8"),
        ({"compile": True}, [0, 1], False, "compiled"),
    ],
    ids=["ended before", "resumed", "halved", "compiled"],
)
def test_an_uncounted_value_has_a_reason_and_no_number(
    tmp_path: Path,
    settings: dict[str, Any],
    steps: list[int],
    halves: bool,
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    of = Of(tmp_path, train=TRAIN.model_copy(update=settings))
    of.account.begin(PLAN, sample=1)
    for step in steps:
        counted_step(of, step, MIB)
    of.account.finish(PLAN.settled(4) if halves else PLAN)
    assert "memory: not measured (" in capsys.readouterr().out
    found = of.events("memory")[0]
    assert found["measured_bytes"] is None
    assert why in found["measure"]


def test_a_pending_forecast_is_cancelled_at_the_end_of_the_run(tmp_path: Path) -> None:
    of = Of(tmp_path)
    of.account.begin(PLAN, sample=1)
    beside: Any = of.account._prediction
    of.account.close()
    assert beside.closed
    of.telemetry.close()


class Second:
    """Return a line of one second of forward, and one of evaluation."""

    def parts(self) -> Parts:
        return {"forward": 1.0, "eval": 1.0}


@pytest.mark.parametrize(("peak", "mfu"), [(None, None), (1e12, 0.064)])
def test_rates_of_a_step_are_derived_from_its_throughput(
    peak: float | None, mfu: float | None
) -> None:
    report = StepReport(
        step=1,
        samples=64,
        terms=("loss",),
        sums=torch.zeros(1),
        divisors=(64.0,),
        lr=0.1,
        peak_bytes=0.0,
        unit="samples",
        flop_count=FlopCount(1e9, peak),
        line=Second(),
    )
    times = report.times()
    assert times["throughput/tflops_per_second"] == pytest.approx(0.064)
    assert times.get("throughput/mfu") == mfu


STEPS = """
import ctypes, os, resource, torch
from lockstep.engine.runtime.telemetry import keep_freed_memory
if os.fork() == 0:
    keep_freed_memory(torch.device("cpu"))
else:
    os.wait()  # It prints first.
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes, libc.free.restype = ctypes.c_void_p, [ctypes.c_void_p], None
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        # No tensors: a small object of torch between two of them may hold the whole arena.
        gradients = [libc.malloc(4 << 20) for _ in range(8)]
        for gradient in gradients:
            ctypes.memset(gradient, 1, 4 << 20)
        for gradient in gradients:
            libc.free(gradient)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults(), flush=True)
"""


def test_memory_freed_by_a_step_is_free_for_the_next() -> None:
    printed = subprocess.run(
        [sys.executable, "-c", STEPS], capture_output=True, check=True, text=True
    ).stdout
    kept, given_back = map(int, printed.split())
    # Ten times 8 times 4 MiB are 80,000 pages of 4 KiB.
    assert kept < 2000 < given_back
