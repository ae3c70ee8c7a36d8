"""Models of which a batch uses only a part, and weights in unusual memory layouts, on any number of
ranks.

The rule: a step does not change a parameter that no sample of its batch uses, as in a plain loop on
one device.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from lockstep.domain.life.attempt import CODE
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.plan import plan_of
from lockstep.engine.data import order
from lockstep.engine.model import layout
from lockstep.engine.runtime.errors import EngineError
from lockstep.worker.launch.fork_client import ForkServer
from tests.engine.model import conditional_cases
from tests.engine.reference import distance
from tests.harness.attempts import Attempt
from tests.harness.ranks import Pool

STRATEGIES = ["ddp", "manual", "zero1", "fsdp"]
BATCH, STEPS = 5, 6
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"name": "adamw", "lr": 0.03, "weight_decay": 0.2, "betas": [0.9, 0.95]},
    "sgd": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.2},
}


def settings(strategy: str, optimizer: str = "adamw", **more: Any) -> dict[str, Any]:
    return {
        "batch": {"size": BATCH, "micro_size": 1},
        "steps": STEPS,
        "optimizer": OPTIMIZERS[optimizer],
        "strategy": {"name": strategy},
        "seed": 3,
        "clip_grad_norm": None,
        **more,
    }


def batches() -> list[list[int]]:
    positions = order.samples(0, BATCH * STEPS, size=conditional_cases.ITEMS, seed=3)
    indices = [index for _, index in positions]
    return [indices[start : start + BATCH] for start in range(0, len(indices), BATCH)]


def check_equal(
    pool: Pool, folder: Path, kind: str, options: dict[str, Any], world_size: int, *more: Any
) -> None:
    """Train on these ranks, and compare the weights with those of a plain loop."""
    expected = conditional_cases.reference(kind, options, batches())
    for found in pool.run(
        conditional_cases.train, kind, options, folder, *more, world_size=world_size
    ):
        assert distance(found, expected) <= 1e-12


def test_the_data_has_batches_without_a_rare_key() -> None:
    held = [{conditional_cases.key(index) for index in batch} for batch in batches()]
    for key in (2, 3):
        assert any(key in keys for keys in held)
        assert any(key not in keys for keys in held)


KINDS = ["Experts", "LayerDrop", "Skipped", "Heads", "OwnParameters", "ChannelsLast", "Transposed"]
EVERY_PAIR = [
    *(
        (kind, strategy, 2 + (row + column) % 2)
        for row, kind in enumerate(KINDS)
        for column, strategy in enumerate(STRATEGIES)
    ),
    *((kind, STRATEGIES[row % len(STRATEGIES)], 1) for row, kind in enumerate(KINDS)),
]
"""Each kind with each strategy on several ranks, and each of both with each number of ranks."""


@pytest.mark.parametrize(("kind", "strategy", "world_size"), EVERY_PAIR)
def test_weights_equal_those_of_a_plain_loop(
    pool: Pool, tmp_path: Path, kind: str, strategy: str, world_size: int
) -> None:
    options = settings(strategy)
    expected = conditional_cases.reference(kind, options, batches())
    if strategy == "fsdp" and kind in {"ChannelsLast", "Transposed"}:
        with pytest.raises(EngineError, match="strategy fsdp needs contiguous parameters"):
            pool.run(conditional_cases.train, kind, options, tmp_path, world_size=world_size)
        return
    for found in pool.run(conditional_cases.train, kind, options, tmp_path, world_size=world_size):
        assert distance(found, expected) <= 1e-12


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        ("Experts", "ddp"),
        ("Experts", "zero1"),
        ("OwnParameters", "fsdp"),
        ("OwnParameters", "manual"),
        ("ChannelsLast", "zero1"),
        ("Strided", "ddp"),
    ],
)
def test_momentum_and_clipping_leave_unused_parameters_alone_too(
    pool: Pool, tmp_path: Path, kind: str, strategy: str
) -> None:
    options = settings(strategy, "sgd", clip_grad_norm=0.5)
    check_equal(pool, tmp_path, kind, options, 2)


@pytest.mark.parametrize("world_size", [1, 2])
def test_weights_with_gaps_in_memory_are_updated_like_others(
    pool: Pool, tmp_path: Path, world_size: int
) -> None:
    check_equal(pool, tmp_path, "Strided", settings("ddp"), world_size)


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("strategy", [*STRATEGIES, "local_sgd"])
def test_a_parameter_that_no_sample_uses_is_refused_by_name(
    pool: Pool, tmp_path: Path, strategy: str, world_size: int
) -> None:
    options = settings(strategy)
    if strategy == "local_sgd":
        options["strategy"]["sync_every_steps"] = 2
    with pytest.raises(EngineError) as caught:
        pool.run(conditional_cases.train, "Unused", options, tmp_path, world_size=world_size)
    assert caught.value.reason == "bad_spec"
    assert str(caught.value) == (
        "the loss does not depend on spare in the first 40 samples: use these parameters in the "
        "loss, freeze them with "
        "requires_grad_(False), or declare conditional = True in the task if only other samples "
        "use them"
    )


@pytest.mark.parametrize(
    ("kind", "strategy", "world_size"),
    [
        *(("Unused", strategy, 1 + index % 2) for index, strategy in enumerate(STRATEGIES)),
        *(("Late", strategy, 2 - index % 2) for index, strategy in enumerate(STRATEGIES)),
    ],
)
def test_a_task_that_declares_itself_conditional_trains(
    pool: Pool, tmp_path: Path, kind: str, strategy: str, world_size: int
) -> None:
    check_equal(pool, tmp_path, kind, settings(strategy), world_size, True)


@pytest.mark.parametrize("strategy", ["ddp", "manual", "zero1"])
def test_a_part_may_be_unused_late_in_the_run(pool: Pool, tmp_path: Path, strategy: str) -> None:
    check_equal(pool, tmp_path, "Late", settings(strategy), 3)
    log = (tmp_path / "spool" / "events.jsonl").read_text()
    assert "warning" not in log


@pytest.mark.parametrize("option", [{"static_graph": True}, {"gradient_as_bucket_view": False}])
def test_options_of_ddp_change_no_weight(
    pool: Pool, tmp_path: Path, option: dict[str, Any]
) -> None:
    options = settings("ddp")
    options["strategy"] |= option
    check_equal(pool, tmp_path, "Late", options, 2)


@pytest.mark.parametrize("name", ["bf16", "powersgd"])
def test_compression_is_disabled_for_a_conditional_model(
    pool: Pool, tmp_path: Path, name: str
) -> None:
    options = settings("ddp")
    options["strategy"]["compression"] = name
    check_equal(pool, tmp_path, "Experts", options, 2)


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [
        *(("Experts", strategy) for strategy in STRATEGIES),
        ("Late", "ddp"),
        ("OwnParameters", "fsdp"),
    ],
)
def test_a_conditional_run_resumes_bitwise_and_on_other_ranks(
    pool: Pool, tmp_path: Path, kind: str, strategy: str
) -> None:
    options = settings(strategy, checkpoint={"every_steps": 2, "keep_last": 9})
    whole = pool.run(conditional_cases.train, kind, options, tmp_path / "whole", world_size=3)
    for step, world_size in ((2, 3), (4, 2), (4, 1)):
        folder = tmp_path / f"{step}-{world_size}"
        shutil.copytree(tmp_path / f"whole/checkpoints/step-{step:08d}", folder / "resume")
        again = pool.run(conditional_cases.train, kind, options, folder, world_size=world_size)
        for name, value in whole[0].items():
            if world_size == 3:
                assert torch.equal(again[0][name], value)
        assert distance(again[0], whole[0]) <= 1e-12


@pytest.mark.parametrize(
    ("first", "then", "strategy", "world_size"),
    [
        ("Packed", "ChannelsLast", "ddp", 1),
        ("Packed", "ChannelsLast", "ddp", 2),
        ("Packed", "ChannelsLast", "zero1", 2),
        ("ChannelsLast", "Packed", "ddp", 1),
        ("ChannelsLast", "Packed", "zero1", 2),
        ("ChannelsLast", "Packed", "manual", 2),
    ],
)
def test_a_run_resumes_with_weights_in_another_memory_layout(
    pool: Pool, tmp_path: Path, first: str, then: str, strategy: str, world_size: int
) -> None:
    options = settings(strategy, checkpoint={"every_steps": 3, "keep_last": 9})
    whole = pool.run(
        conditional_cases.train, first, options, tmp_path / "whole", world_size=world_size
    )
    shutil.copytree(tmp_path / "whole/checkpoints/step-00000003", tmp_path / "again/resume")
    again = pool.run(
        conditional_cases.train, then, options, tmp_path / "again", world_size=world_size
    )
    assert distance(again[0], whole[0]) <= 1e-12


def test_a_moment_in_another_layout_than_its_parameter_is_refused() -> None:
    parameter = nn.Parameter(torch.randn(4, 2, 3, 3).to(memory_format=torch.channels_last))
    optimizer = torch.optim.AdamW([parameter], fused=True)
    parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    layout.require_agreement([("conv.weight", parameter)], [optimizer])
    state = optimizer.state[parameter]
    state["exp_avg"] = state["exp_avg"].contiguous()
    with pytest.raises(
        EngineError, match=r"the exp_avg of conv\.weight has strides \(18, 9, 3, 1\)"
    ):
        layout.require_agreement([("conv.weight", parameter)], [optimizer])
    layout.align_state(optimizer)
    layout.require_agreement([("conv.weight", parameter)], [optimizer])
    parameter.grad = torch.zeros(4, 2, 3, 3)
    with pytest.raises(EngineError, match=r"the gradient of conv\.weight"):
        layout.require_agreement([("conv.weight", parameter)])


@pytest.mark.parametrize("world_size", [1, 2])
def test_fsdp_refuses_a_block_that_one_rank_skips(
    warm: ForkServer, tmp_path: Path, world_size: int
) -> None:
    # No single sample reveals it at the start: only processes that wait for each other show the
    # deadlock.
    (tmp_path / CODE).mkdir()
    (tmp_path / CODE / "task.py").write_text(LATE)
    spec = read_spec(LATE_JOB | {"resources": {"gpus": world_size}})
    attempt = Attempt(tmp_path, warm)
    attempt.assign(spec.model_dump(), ranks=world_size, plan=plan_of(spec)).start()
    try:
        exception = attempt.outcome(240).exception or ""
    finally:
        attempt.end()
    assert (
        "under strategy fsdp every micro-batch must use the same blocks in the same order"
        in exception
    )
    assert "Declare conditional = True in the task" in exception


LATE = """
import torch
from torch import nn
from lockstep import Task


class Late(Task):
    def model(self):
        return nn.ModuleDict({"blocks": nn.ModuleList(nn.Linear(4, 4) for _ in range(3)), "out": nn.Linear(4, 1)})

    def dataset(self, split):
        return torch.utils.data.TensorDataset(torch.arange(64.0).unsqueeze(-1).expand(-1, 4))

    def loss(self, model, batch):
        (x,) = batch
        hidden = x / 64
        for index, block in enumerate(model["blocks"]):
            if not (index == 1 and (x[:, 0] == RARE).any()):
                hidden = torch.tanh(block(hidden))
        return model["out"](hidden).pow(2).sum()
"""
LATE_JOB = {
    "name": "late",
    "kind": "train",
    "code": {"upload": "0" * 64},
    "train": {
        "task": "task.py:Late",
        "batch": {"size": 8, "micro_size": 1},
        "steps": 8,
        "seed": 3,
        "strategy": {"name": "fsdp"},
    },
}
LATE = LATE.replace("RARE", str(order.samples(0, 64, size=64, seed=3)[27][1]))
"""The 28th sample of the run is the first that leaves a block out."""
