"""The same run twice is the same, observation changes nothing, and reported numbers add up."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.domain.training import series
from lockstep.domain.training.plan import BatchPlan
from lockstep.engine.memory.account import MemoryReport
from lockstep.engine.runtime.flops import FlopCount
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.telemetry import Telemetry
from tests.engine import cases
from tests.engine.cases import Seen
from tests.engine.spool import events, records
from tests.engine.toy import Toy
from tests.harness.ranks import Pool

OPTIONS: dict[str, Any] = {
    "batch": {"size": 14, "micro_size": 3},
    "optimizer": {"name": "adamw", "lr": 1e-2},
    "schedule": {"name": "cosine", "warmup_steps": 2},
    "epochs": 3,
    "eval": {"every_steps": 3},
    "checkpoint": {"every_steps": 4},
}
TOY = Toy(items=33, double=False, noise=True, dropout=0.2)
"""In float32, with items and a model that draw random numbers: a run depends on nothing else."""


def train(pool: Pool, folder: Path, world_size: int = 2, toy: Toy = TOY, **more: Any) -> list[Seen]:
    seen: list[Seen] = pool.run(cases.train, toy, OPTIONS | more, folder, world_size=world_size)
    return seen


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "spool/metrics.jsonl").read_text().splitlines()]


def without_times(folder: Path) -> list[dict[str, Any]]:
    """Return the metrics file without the fields that depend on the machine."""
    return [
        {
            "step": line["step"],
            "values": {
                name: value
                for name, value in line["values"].items()
                if not series.of_the_machine(name)
            },
        }
        for line in lines(folder)
    ]


@pytest.mark.contract(37, 38)
@pytest.mark.parametrize(("world_size", "workers"), [(1, 2), (3, 0)])
def test_two_identical_runs_are_equal_bit_by_bit(
    pool: Pool, tmp_path: Path, world_size: int, workers: int
) -> None:
    loader = {"workers": workers}
    runs = [train(pool, tmp_path / str(index), world_size, loader=loader) for index in range(2)]
    for one, two in zip(*runs, strict=True):
        for name, value in one.weights.items():
            assert torch.equal(value, two.weights[name]), name
        for before, after in zip(one.gradients, two.gradients, strict=True):
            assert all(torch.equal(value, after[name]) for name, value in before.items())
        assert one.micro_batches == two.micro_batches
        assert one.rates == two.rates
    written = [without_times(tmp_path / str(index)) for index in range(2)]
    assert written[0] == written[1]
    assert {line["step"] for line in written[0]} == set(range(1, 9))


@pytest.mark.contract(37)
def test_worker_processes_change_nothing(pool: Pool, tmp_path: Path) -> None:
    # Without a model that draws on the host: with workers it alone uses the generators.
    toy = Toy(items=33, double=False, noise=True, own_dropout=0.2)
    one, other = (
        train(pool, tmp_path / str(n), toy=toy, loader={"workers": n})[0].weights for n in (0, 2)
    )
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    assert without_times(tmp_path / "0") == without_times(tmp_path / "2")


@pytest.mark.contract(38)
def test_another_seed_shows_in_the_metrics(pool: Pool, tmp_path: Path) -> None:
    train(pool, tmp_path / "one", 1)
    train(pool, tmp_path / "two", 1, seed=8)
    assert without_times(tmp_path / "one") != without_times(tmp_path / "two")


@pytest.mark.contract(38)
def test_only_declared_metrics_may_differ() -> None:
    timed = {metric.name for metric in series.METRICS if series.of_the_machine(metric.name)}
    kept = {metric.name for metric in series.METRICS} - timed
    assert kept == {
        "train/loss",
        "train/lr",
        "train/grad_norm",
        "train/loss_scale",
        "train/weight",
        "eval/loss",
    }
    assert not series.of_the_machine("eval/time")


CADENCES: list[dict[str, Any]] = [
    {"eval": {}, "checkpoint": {}, "log_every_steps": 100},
    {"eval": {"every_steps": 1}, "checkpoint": {}, "log_every_steps": 100},
    {"eval": {}, "checkpoint": {"every_steps": 1}, "log_every_steps": 100},
    {"eval": {}, "checkpoint": {}, "log_every_steps": 1},
    {"eval": {"every_steps": 2}, "checkpoint": {"every_steps": 3}, "log_every_steps": 5},
]


@pytest.mark.contract(41)
@pytest.mark.parametrize(
    ("toy", "world_size", "workers"),
    [(TOY, 2, 0), (Toy(items=33, double=False, noise=True), 1, 2)],
    ids=["model draws", "items draw in workers"],
)
def test_evaluation_logging_and_checkpoints_change_no_weight(
    pool: Pool, tmp_path: Path, toy: Toy, world_size: int, workers: int
) -> None:
    loader = {"workers": workers}
    found = [
        train(pool, tmp_path / str(index), world_size, toy, loader=loader, **cadence)[0].weights
        for index, cadence in enumerate(CADENCES)
    ]
    for one, other in itertools.pairwise(found):
        assert all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.contract(39)
@pytest.mark.parametrize("weigh", ["tokens", "samples", "terms"])
def test_every_number_is_derived_from_the_raw_log(pool: Pool, tmp_path: Path, weigh: str) -> None:
    toy = Toy(items=33, weigh=weigh)
    train(pool, tmp_path, toy=toy)
    (plan,) = events(tmp_path, "plan")
    found = records(tmp_path)
    samples = [14] * 7 + [1]  # Three epochs of 33 in batches of 14.
    assert sum(samples) == 3 * plan["samples"]
    assert len(samples) == plan["steps"]
    for step, values in found.items():
        parts = {
            name: value
            for name, value in values.items()
            if re.fullmatch(r"time/(?!step_).*_seconds", name)
        }
        whole = math.fsum(parts.values())
        assert values["time/step_seconds"] == pytest.approx(whole, rel=1e-12)
        training = (
            whole - parts.get("time/eval_seconds", 0.0) - parts.get("time/checkpoint_seconds", 0.0)
        )
        assert values["throughput/samples_per_second"] == pytest.approx(
            samples[step - 1] / training, rel=1e-9
        )
        if weigh == "terms":
            terms = [name for name in values if name.startswith("train/loss/")]
            assert values["train/loss"] == pytest.approx(
                math.fsum(values[name] for name in terms), rel=1e-12
            )
            assert len(terms) == 2
        if "eval/fit" in values:
            assert values["eval/loss"] == pytest.approx(
                values["eval/fit"] + values["eval/mean"], rel=1e-12
            )
        if weigh != "tokens":
            assert (
                values["train/weight" if weigh == "samples" else "train/weight/mean"]
                == samples[step - 1]
            )


@pytest.mark.contract(39)
def test_reported_numbers_are_the_written_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases.train(Ranks(), TOY, OPTIONS | {"eval": {"every_steps": 8}}, tmp_path)
    reported = re.findall(
        r"step (\d+)/8  loss ([\d.]+)  lr ([\d.e+-]+)  ([\d,.]+) samples/s(?:  eval/loss ([\d.]+))?",
        capsys.readouterr().out,
    )
    found = records(tmp_path)
    assert {int(line[0]) for line in reported} >= {1, 8}
    for step, loss, lr, speed, evaluated in reported:
        values = found[int(step)]
        assert loss == f"{values['train/loss']:.4f}"
        assert lr == f"{values['train/lr']:.3g}"
        assert speed == f"{values['throughput/samples_per_second']:,.1f}"
        assert evaluated == (f"{values['eval/loss']:.4f}" if "eval/loss" in values else "")


def finished(account: MemoryReport, plan: BatchPlan) -> dict[str, float]:
    """Return the rates of 100 samples per second, in a run that is over."""
    account.flop_count = FlopCount(flops_per_sample=3e9, peak=2e12)
    account.finish(plan)
    return account.flop_count.rates(samples_per_second=100.0)


@pytest.mark.contract(39)
def test_rates_of_computation_are_derived_from_reported_numbers(tmp_path: Path) -> None:
    plan, spec = cases.planned(OPTIONS, 1)
    with contextlib.closing(Telemetry(tmp_path, writes=True)) as telemetry:
        account = MemoryReport(spec, Ranks(), telemetry, None)
        rates = finished(account, plan)
    (reported,) = events(tmp_path, "memory")
    assert rates["throughput/tflops_per_second"] == pytest.approx(
        reported["flops_per_sample"] * 100.0 / 1e12
    )
    assert rates["throughput/mfu"] == pytest.approx(
        reported["flops_per_sample"] * 100.0 / reported["peak_flops"]
    )
