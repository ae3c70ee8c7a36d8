"""Precision and non-finite steps on a CUDA device: masked there and read one step late, while the
host never waits.

One device is enough, and one rank in this process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from lockstep.engine.model.precision import Scaler
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.step.optimizer import Optimizer
from tests.engine import cases, numerics
from tests.engine.numerics import Odd
from tests.engine.reference import distance
from tests.engine.spool import events, records
from tests.engine.toy import Toy, ToyTask

pytestmark = [
    pytest.mark.gpu,
]
STEPS = 6


def spec(**more: Any) -> dict[str, Any]:
    return {
        "batch": {"size": 12, "micro_size": 4},
        "optimizer": cases.ADAMW,
        "clip_grad_norm": 0.5,
        "steps": STEPS,
        **more,
    }


def on_device() -> Ranks:
    return Ranks(device=torch.device("cuda", 0))


@pytest.mark.contract(17)
@pytest.mark.parametrize("kind", ["nan", "steep"])
def test_a_step_skipped_on_the_device_is_one_skipped_on_the_host(tmp_path: Path, kind: str) -> None:
    plain = cases.train(Ranks(), Toy(), spec(), tmp_path / "plain")
    others = {
        number
        for micro_batch in (*plain.micro_batches[:3], *plain.micro_batches[6:])
        for number in micro_batch
    }
    odd = Odd(
        **{
            kind: tuple(
                number
                for micro_batch in plain.micro_batches[3:6]
                for number in micro_batch
                if number not in others
            )
        }
    )
    ends = {}
    for name, ranks in (("host", Ranks()), ("device", on_device())):
        ends[name] = numerics.train(ranks, Toy(), spec(non_finite="skip"), tmp_path / name, odd)
        assert (ends[name].error, ends[name].steps_done) == ("", STEPS)
        assert (
            len([one for one in events(tmp_path / name, "warning") if "skipped" in one["message"]])
            == 1
        )
    weights = {name: value.cpu() for name, value in ends["device"].weights.items()}
    assert distance(weights, ends["host"].weights) <= 1e-10
    assert records(tmp_path / "device")[2]["train/grad_norm"] == "NaN"


@pytest.mark.contract(17)
def test_stop_comes_one_step_late_without_an_update(tmp_path: Path) -> None:
    end = numerics.train(on_device(), Toy(), spec(), tmp_path, Odd(nan=tuple(range(1, 40))))
    assert (end.error, end.steps_done) == ("non_finite: the loss of step 1 is nan", 2)
    weights = {name: value.cpu() for name, value in end.weights.items()}
    assert distance(weights, numerics.initial_weights(Toy())) <= 0


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_narrow_run_stays_near_the_float32_one_on_the_device(
    tmp_path: Path, precision: str
) -> None:
    losses = {}
    for name in ("fp32", precision):
        cases.train(on_device(), Toy(double=False), spec(precision=name), tmp_path / name)
        losses[name] = [line["train/loss"] for line in records(tmp_path / name).values()]
    assert losses[precision] != losses["fp32"]
    assert losses[precision] == pytest.approx(losses["fp32"], rel=2e-2)


@pytest.mark.contract(15)
def test_an_overflow_on_the_device_repeats_the_batch(
    tmp_path: Path,
) -> None:
    odd = Odd(far=(7, 8, 9, 10))
    end = numerics.train(on_device(), Toy(double=False), spec(precision="fp16"), tmp_path, odd)
    assert (end.error, end.steps_done) == ("", STEPS)
    assert records(tmp_path)[STEPS]["train/loss_scale"] < Scaler.START
    assert len(end.micro_batches) > len({tuple(micro_batch) for micro_batch in end.micro_batches})


class Quiet(ToyTask):
    """Records no ids, which it would have to read from the device."""

    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        loss: Tensor = ((model(batch[1]) - batch[2]) ** 2 * batch[3]).sum()
        return loss


def synchronisations(folder: Path, **more: Any) -> int:
    """Count the waits of the host for the stream in a whole run."""
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with (
        mock.patch.object(cases, "toy_task", return_value=Quiet(Toy(double=False))),
        torch.profiler.profile(activities=activities) as profile,
    ):
        cases.train(on_device(), Toy(double=False), spec(**more), folder)
    return sum(
        event.count for event in profile.key_averages() if event.key == "cudaStreamSynchronize"
    )


@pytest.mark.parametrize(("precision", "each"), [("fp32", 0), ("bf16", 0), ("fp16", 1)])
def test_the_host_waits_only_for_a_scaled_step(tmp_path: Path, precision: str, each: int) -> None:
    counts = [
        synchronisations(
            tmp_path / str(steps), precision=precision, steps=steps, log_every_steps=100
        )
        for steps in (6, 16)
    ]
    assert counts[1] - counts[0] == 10 * each


def test_the_kernel_on_the_device_masks_skipped_steps(tmp_path: Path) -> None:
    masks: list[bool] = []
    update = Optimizer.update

    def noting(self: Optimizer, *arguments: Any) -> None:
        masks.append(self._masks)
        update(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Optimizer, "update", noting)
        cases.train(on_device(), Toy(), spec(), tmp_path)
    assert masks == [True] * STEPS
