"""Values computed in a narrow format are added up in float32, and no batch is lost to a scale."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from lockstep.engine.model.objective import Objective
from lockstep.engine.model.precision import Precision, Scaler, require_wide_parameters, use_tf32
from lockstep.engine.runtime.control import Flags, StepDecision
from lockstep.engine.runtime.errors import EngineError
from tests.engine import cases, numerics
from tests.engine.model import precision_cases
from tests.engine.numerics import Odd
from tests.engine.reference import batches_of, distance, reference
from tests.engine.spool import events, records
from tests.engine.toy import Toy, ToyTask, initial, item
from tests.harness.ranks import Pool

STEPS, BATCH = 6, 12
SINGLE = Toy(double=False)


def spec(micro: int, precision: str, **more: Any) -> dict[str, Any]:
    return {
        "batch": {"size": BATCH, "micro_size": micro},
        "optimizer": cases.ADAMW,
        "clip_grad_norm": 0.5,
        "steps": STEPS,
        "precision": precision,
        **more,
    }


# --- narrow formats


def one_step(micro_batches: int) -> dict[str, Any]:
    batch = {"size": micro_batches, "micro_size": 1}
    return spec(1, "bf16", batch=batch, steps=1, clip_grad_norm=None)


@pytest.mark.contract(12)
def test_256_micro_batches_in_bf16_add_up_as_in_float64(pool: Pool, tmp_path: Path) -> None:
    toy = Toy(double=False, items=300, weigh="tokens")
    ((seen, expected),) = pool.run(
        precision_cases.micro_gradients, toy, one_step(256), tmp_path, world_size=1
    )
    assert len(seen.micro_batches) == 256
    assert distance(seen.gradients[0], expected) <= 1e-5


@pytest.mark.contract(12)
def test_gradients_of_bf16_parameters_fail_this_check(pool: Pool, tmp_path: Path) -> None:
    toy = Toy(double=False, items=300)
    ((seen, expected),) = pool.run(
        precision_cases.narrow_gradients, toy, one_step(256), tmp_path, world_size=1
    )
    assert distance(seen.gradients[0], expected) > 1e-3


@pytest.mark.contract(12)
def test_trainable_parameters_in_bf16_are_refused_by_name() -> None:
    model = initial(SINGLE)
    model.out.to(torch.bfloat16)
    with pytest.raises(
        EngineError, match=r"torch\.bfloat16 \(out\.weight and 1 more\).*precision: bf16"
    ) as caught:
        require_wide_parameters(model, accumulates_in_float32=False)
    assert caught.value.reason == "bad_spec"
    require_wide_parameters(model, accumulates_in_float32=True)
    model.out.requires_grad_(False)
    require_wide_parameters(model, accumulates_in_float32=False)


@pytest.mark.contract(12)
@pytest.mark.parametrize("name", ["bf16", "fp16"])
def test_a_summed_cross_entropy_runs_in_float32_on_narrow_logits(name: Any) -> None:
    layer = nn.Linear(8, 10)
    with Precision(name).autocast():
        logits = layer(torch.randn(4, 8))
        loss = functional.cross_entropy(logits, torch.zeros(4, dtype=torch.int64), reduction="sum")
    assert logits.dtype in {torch.bfloat16, torch.float16}
    assert loss.dtype == torch.float32
    loss.backward()  # type: ignore[no-untyped-call]
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


class SumsInBf16(ToyTask):
    def loss(self, model: nn.Module, batch: Any) -> Tensor:
        loss: Tensor = (model(batch[1]) ** 2).to(torch.bfloat16).sum()
        return loss


def batch_of(toy: Toy, *ids: int) -> tuple[Tensor, ...]:
    rows = [item(toy, index) for index in ids]
    return tuple(torch.stack([row[part] for row in rows]) for part in range(4))


def test_training_and_evaluation_compute_in_the_same_format_in_any_thread() -> None:
    task, formats = ToyTask(SINGLE), []
    objective = Objective(task, task.model(), Precision("bf16"))
    task.built.out.register_forward_hook(lambda layer, inputs, found: formats.append(found.dtype))

    def both() -> None:
        objective(batch_of(SINGLE, 1, 2), {"loss": 1.0}, penalize=True)
        objective.evaluate(batch_of(SINGLE, 1, 2))

    thread = threading.Thread(target=both)  # As in nn.DataParallel.
    thread.start()
    thread.join()
    both()
    assert formats == [torch.bfloat16] * 4


def test_a_sum_in_a_narrow_format_is_refused_with_advice() -> None:
    task = SumsInBf16(SINGLE)
    with pytest.raises(
        EngineError, match=r"torch\.bfloat16.*\.float\(\) before \.sum\(\)"
    ) as caught:
        Objective(task, task.model(), Precision("bf16"))(
            batch_of(SINGLE, 1, 2), None, penalize=False
        )
    assert caught.value.reason == "bad_spec"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_narrow_run_stays_close_to_the_float32_run(
    pool: Pool, tmp_path: Path, precision: str
) -> None:
    losses = {}
    for name in ("fp32", precision):
        pool.run(cases.train, SINGLE, spec(3, name), tmp_path / name, world_size=2)
        losses[name] = [line["train/loss"] for line in records(tmp_path / name).values()]
    assert losses[precision] != losses["fp32"]
    assert losses[precision] == pytest.approx(losses["fp32"], rel=2e-2)


# --- loss scale. In float64, which autocast leaves alone, scaling by powers of two changes no
# digit: runs are compared exactly.


@pytest.mark.contract(15)
def test_scaling_changes_neither_weights_nor_logged_norms(pool: Pool, tmp_path: Path) -> None:
    seen = pool.run(cases.train, Toy(), spec(3, "fp16"), tmp_path, world_size=2)
    expected = reference(
        Toy(), spec(3, "fp16"), batches_of([one.micro_batches for one in seen], [BATCH] * STEPS, 3)
    )
    for one in seen:
        assert distance(one.weights, expected.weights) <= 1e-12
    lines = records(tmp_path).values()
    assert [line["train/grad_norm"] for line in lines] == pytest.approx(expected.norms, rel=1e-12)
    assert {line["train/loss_scale"] for line in lines} == {Scaler.START}


@pytest.mark.contract(15)
@pytest.mark.parametrize("world_size", [1, 2])
def test_the_gradient_is_unscaled_once_per_step(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    counts = pool.run(
        precision_cases.scales_of, Toy(), spec(2, "fp16"), tmp_path, STEPS, world_size=world_size
    )
    assert counts == [STEPS] * world_size


@pytest.mark.contract(15)
@pytest.mark.parametrize(("world_size", "victim"), [(1, 0), (2, 1), (3, 0)])
def test_an_infinity_on_one_rank_repeats_the_batch_on_all(
    pool: Pool, tmp_path: Path, world_size: int, victim: int
) -> None:
    plain = pool.run(
        cases.train, Toy(buffer=True), spec(2, "fp32"), tmp_path / "plain", world_size=world_size
    )
    # Counted in unscalings: step 2 overflows three times, and step 4 once.
    seen = pool.run(
        precision_cases.train_with_infinities, Toy(buffer=True), spec(2, "fp16"), tmp_path / (
            "scaled"), victim, {1: 3, 6: 1},
        world_size=world_size,
    )  # fmt: skip
    micro_batches = len(plain[0].micro_batches) // STEPS
    for one, other in zip(seen, plain, strict=True):
        assert one.steps_done == STEPS
        steps = [
            other.micro_batches[at : at + micro_batches]
            for at in range(0, len(other.micro_batches), micro_batches)
        ]
        runs = [0, 1, 1, 1, 1, 2, 3, 3, 4, 5]
        assert one.micro_batches == [micro_batch for step in runs for micro_batch in steps[step]]
        assert distance(one.weights, other.weights) <= 1e-12
    scales = [line["train/loss_scale"] for line in records(tmp_path / "scaled").values()]
    assert scales == [Scaler.START / factor for factor in (1, 8, 8, 16, 16, 16)]


@pytest.mark.contract(15)
@pytest.mark.parametrize("name", ["manual", "zero1", "fsdp"])
def test_every_strategy_repeats_an_overflowed_batch(pool: Pool, tmp_path: Path, name: str) -> None:
    options = spec(3, "fp16", strategy={"name": name})
    plain = pool.run(cases.train, Toy(), spec(3, "fp32"), tmp_path / "plain", world_size=2)
    seen = pool.run(
        precision_cases.train_with_infinities,
        Toy(),
        options,
        tmp_path / "scaled",
        1,
        {1: 2},
        world_size=2,
    )
    for one, other in zip(seen, plain, strict=True):
        assert (
            one.micro_batches
            == other.micro_batches[:2] + other.micro_batches[2:4] * 2 + other.micro_batches[2:]
        )
        assert distance(one.weights, other.weights) <= 1e-12


@pytest.mark.contract(15)
def test_a_real_overflow_in_fp16_finds_the_scale_that_fits(pool: Pool, tmp_path: Path) -> None:
    odd = Odd(far=(7, 8, 9, 10))
    options = spec(3, "fp16", log_every_steps=1)
    ends = pool.run(numerics.train, SINGLE, options, tmp_path, odd, world_size=2)
    for one in ends:
        assert (one.error, one.steps_done) == ("", STEPS)
        assert all(value.isfinite().all() for value in one.weights.values())
        assert len(one.micro_batches) > len(
            {tuple(micro_batch) for micro_batch in one.micro_batches}
        ), "some batch was run again"
    scales = [line["train/loss_scale"] for line in records(tmp_path).values()]
    assert scales[-1] < Scaler.START
    assert [
        warning for warning in events(tmp_path, "warning") if "skipped" in warning["message"]
    ] == []


@pytest.mark.contract(15)
@pytest.mark.parametrize(("kind", "runs"), [("steep", 1 + Scaler.REPEATS_MAX), ("nan", 1)])
def test_an_overflow_at_every_scale_is_repeated_20_times(
    pool: Pool, tmp_path: Path, kind: str, runs: int
) -> None:
    (plain,) = pool.run(cases.train, Toy(), spec(BATCH, "fp32"), tmp_path / "plain", world_size=1)
    others = {
        number
        for micro_batch in (*plain.micro_batches[:1], *plain.micro_batches[2:])
        for number in micro_batch
    }
    chosen = next(
        number for number in plain.micro_batches[1] if number not in others and number % 6
    )
    odd = Odd(**{kind: (chosen,)})
    for policy in ("stop", "skip"):
        folder = tmp_path / policy
        (end,) = pool.run(
            numerics.train, Toy(), spec(BATCH, "fp16", non_finite=policy), folder, odd, world_size=1
        )
        assert end.micro_batches.count(plain.micro_batches[1]) == runs
        assert end.error.startswith("non_finite: ") == (policy == "stop")
    # A scale that did not help is not kept.
    assert {line["train/loss_scale"] for line in records(tmp_path / "skip").values()} == {
        Scaler.START
    }
    assert len(end.micro_batches) == STEPS - 1 + runs


def decision(*, overflow: bool, total: float = 1.0) -> StepDecision:
    sums = torch.tensor([total], dtype=torch.float64)
    return StepDecision(
        flags=Flags(overflow=overflow), sums=sums, next_divisors=(1.0,), peak_bytes=0.0
    )


@pytest.mark.contract(15)
def test_the_scale_grows_after_2000_good_steps_in_a_row() -> None:
    scaler = Scaler()
    assert [scaler.repeats(decision(overflow=False)) for _ in range(1999)] == [False] * 1999
    assert scaler.repeats(decision(overflow=True))
    assert scaler.scale == 2.0**15
    for _ in range(1999):
        scaler.repeats(decision(overflow=False))
    assert scaler.scale == 2.0**15, "an overflow resets the count"
    scaler.repeats(decision(overflow=False))
    assert scaler.scale == 2.0**16


@pytest.mark.contract(15)
def test_the_scale_is_restored_after_20_halvings() -> None:
    scaler = Scaler()
    assert [scaler.repeats(decision(overflow=True)) for _ in range(21)] == [True] * 20 + [False]
    assert scaler.scale == Scaler.START
    assert not scaler.repeats(decision(overflow=True, total=float("nan")))


@pytest.mark.contract(15)
def test_an_unreduced_gradient_is_not_retried() -> None:
    scaler = Scaler()
    lost = StepDecision(Flags(overflow=True, unreduced=True), torch.ones(1), (1.0,), (0.0,))
    assert not scaler.repeats(lost)
    assert scaler.scale == Scaler.START


@pytest.mark.contract(15)
@pytest.mark.parametrize("restored", [True, False])
def test_scale_and_count_are_restored_from_the_checkpoint(
    pool: Pool, tmp_path: Path, *, restored: bool
) -> None:
    options = spec(4, "fp16", steps=9, checkpoint={"every_steps": 4})
    run = precision_cases.train_scaled
    pool.run(run, SINGLE, options, tmp_path / "whole", Odd(), 3, 8.0, world_size=2)
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000004", tmp_path / "again/resume")
    mutate = None if restored else precision_cases.scale_not_restored
    pool.run(run, SINGLE, options, tmp_path / "again", Odd(), 3, 8.0, mutate, world_size=2)
    whole, again = records(tmp_path / "whole"), records(tmp_path / "again")
    assert [whole[step]["train/loss_scale"] for step in range(1, 10)] == [
        8,
        8,
        16,
        16,
        16,
        32,
        32,
        32,
        64,
    ]
    series = [
        [lines[step]["train/loss_scale"] for step in range(5, 10)] for lines in (whole, again)
    ]
    assert (series[0] == series[1]) == restored
    if restored:
        assert [whole[step]["train/loss"] for step in again] == [
            line["train/loss"] for line in again.values()
        ]


# --- TF32


@pytest.mark.gpu
def test_tf32_is_off_unless_requested() -> None:
    device = torch.device("cuda")
    one = torch.randn(512, 512, device=device)
    exact = one.double() @ one.double()
    errors = {}
    for on in (True, False):
        use_tf32(device, on=on)
        errors[on] = float((one @ one - exact).norm() / exact.norm())
    assert errors[False] < 1e-6 < errors[True]


def test_tf32_is_unchanged_without_cuda() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    use_tf32(torch.device("cpu"), on=True)
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


def test_tf32_settings_agree_with_those_that_compilation_reads() -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    try:
        for on in (True, False):
            use_tf32(torch.device("cuda"), on=on)  # Settings only: no device is needed.
            assert torch.backends.cuda.matmul.allow_tf32 is on
            assert torch.backends.cudnn.allow_tf32 is on
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
