"""A coupling of the samples of a micro-batch is refused before the first step, by its cause."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from lockstep.domain.spec.train import Eval
from lockstep.engine.model.modes import set_to_train
from lockstep.engine.preflight import check_size
from lockstep.engine.preflight.additivity_check import Checked, check
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.task.dropout import name_layers
from lockstep.engine.task.interface import Task
from tests.engine.preflight import coupled_tasks as tasks
from tests.engine.preflight.loss_tasks import settings
from tests.harness.ranks import Pool

TOKENS = r"a mean over the units of the whole micro-batch, such as its tokens, times its samples"
PADDING = r"padding reaches the samples, so mask it"
OTHERS = r"on the others in its micro-batch"
FROM = rf"{OTHERS}, from {{}} samples on \(a top-k, a quantile, a capacity\)"
COUPLED: list[tuple[Callable[[], Task], str]] = [
    (partial(tasks.MeanOfTokensTimesSamples, "unequal"), TOKENS),
    (partial(tasks.MeanOfTokensTimesSamples, "rare"), TOKENS),
    (partial(tasks.MeanOverPadding, "unequal"), PADDING),
    (partial(tasks.MeanOverPadding, "rare"), PADDING),
    (partial(tasks.AttentionWithoutMask, "unequal"), PADDING),
    (partial(tasks.AttentionWithoutMask, "rare"), PADDING),
    (partial(tasks.LastStateOfPadding, "unequal"), PADDING),
    (tasks.Sorted, r"lockstep\.Dropout \(1\) with its samples in another order"),
    (tasks.SharedDropout, r"uses one lockstep\.Dropout \(drop\) for several blocks"),
    (tasks.DropoutInAnExpert, r"the first dimension of its input must be the"),
    (partial(tasks.Top, 6), FROM.format(7)),
    (partial(tasks.Top, 12), FROM.format(13)),
    (tasks.BestThreeQuarters, OTHERS),
    (tasks.Maximum, OTHERS),
    (tasks.DetachedMaximum, OTHERS),
    (tasks.Standardised, OTHERS),
    (tasks.Numbered, OTHERS),
    (tasks.Mixup, OTHERS),
    (tasks.NoiseByRow, OTHERS),
    (tasks.VarianceOfBatch, OTHERS),
    (tasks.Experts, OTHERS),
    (tasks.BalanceLoss, OTHERS),
    (tasks.BehindAGate, OTHERS),
    # The last one is too small for float32.
    (tasks.SmallPenalty, r"an L2 penalty on the parameters"),
]


def by_turns(rows: Sequence[tuple[Any, str]]) -> list[tuple[Any, str, float]]:
    """Return rows with the free memory of their check: for one in place, and for one on a copy."""
    return [(*row, 0.25 * (place % 2)) for place, row in enumerate(rows)]


def checked(
    task: Task,
    *,
    seed: int = 3,
    batch: int = 64,
    micro_size: int | None = None,
    evaluates: bool = False,
) -> Checked:
    torch.manual_seed(seed)
    model, dataset = task.model(), task.dataset("train")
    set_to_train(model)
    name_layers(model)
    train = settings(seed, batch, micro_size)
    if evaluates:
        train = train.model_copy(update={"eval": Eval(every_steps=1)})
    return check(task, model, dataset, size=len(dataset), train=train)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("task", "cause"), COUPLED, ids=lambda each: getattr(each, "__name__", None)
)
def test_a_coupling_is_refused_by_its_cause(task: Callable[[], Task], cause: str) -> None:
    for seed in (0, 1):
        with pytest.raises(EngineError) as caught:
            checked(task(), seed=seed)
        assert re.search(cause, str(caught.value)), str(caught.value)


@pytest.mark.parametrize(("task", "cause"), COUPLED[:-1])
def test_a_coupling_is_refused_in_place_and_in_float32(
    task: Callable[[], Task], cause: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_size, "_FREE", 0.0)
    with pytest.raises(EngineError, match=cause):
        checked(task())


@pytest.mark.parametrize("micro_size", [None, 8, 1])
def test_the_result_does_not_depend_on_the_micro_batch(micro_size: int | None) -> None:
    with pytest.raises(EngineError, match="from 7 samples on"):
        checked(tasks.Top(6), micro_size=micro_size)


def test_a_rule_above_20_samples_is_found_with_larger_micro_batches() -> None:
    assert checked(tasks.OutliersCut()).difference is not None
    with pytest.raises(EngineError, match="from 20 samples on"):
        checked(tasks.OutliersCut(), micro_size=32)


@pytest.mark.parametrize("batch", [2, 3, 4, 5, 8])
def test_small_batches_are_divided_too(batch: int) -> None:
    with pytest.raises(EngineError, match="a mean over the units"):
        checked(tasks.MeanOfTokensTimesSamples("unequal"), batch=batch)
    found = checked(tasks.AttentionWithMask("unequal"), batch=batch)
    assert (found.samples, found.note) == (batch, "")


def test_a_batch_of_one_sample_has_nothing_to_divide() -> None:
    assert checked(tasks.Maximum(), batch=1) == Checked()


LAYOUTS = [(1, 8), (1, 3), (2, 1)], [(1, 8), (2, 4), (3, 2)]
KINDS: list[tuple[Callable[[], Task], str]] = [
    (partial(tasks.MeanOfTokensTimesSamples, "unequal"), TOKENS),
    (partial(tasks.MeanOfTokensTimesSamples, "rare"), TOKENS),
    (partial(tasks.MeanOverPadding, "rare"), PADDING),
    (partial(tasks.AttentionWithoutMask, "rare"), PADDING),
    (tasks.Sorted, r"lockstep\.Dropout \(1\) with its samples in another order"),
    (tasks.Maximum, OTHERS),
    (partial(tasks.Top, 6), FROM.format(7)),
    (partial(tasks.Late, 30), r"task\.calls, read after 100 calls"),
]


@pytest.mark.parametrize(
    ("task", "cause", "layouts"), [(*each, LAYOUTS[at % 2]) for at, each in enumerate(KINDS)]
)
def test_every_layout_has_the_same_result(
    pool: Pool,
    tmp_path: Path,
    task: Callable[[], Task],
    cause: str,
    layouts: list[tuple[int, int]],
) -> None:
    found = []
    for world_size, micro_size in layouts:
        folder = tmp_path / f"{world_size}x{micro_size}"
        found.append(pool.run(tasks.refusal_on, task, micro_size, folder, world_size=world_size)[0])
    refusal, warnings = found[0]
    assert all(each == found[0] for each in found)
    assert re.search(cause, refusal or warnings[0]), found[0]


@pytest.mark.parametrize("scan_seconds", [(60.0, 0.0), (0.0, 60.0)])
def test_ranks_with_different_fetch_times_compare_the_same_samples(
    pool: Pool, tmp_path: Path, scan_seconds: tuple[float, float]
) -> None:
    one, two = pool.run(tasks.refusal_on, tasks.Maximum, 8, tmp_path, scan_seconds, world_size=2)
    assert one == two
    assert re.search(OTHERS, one[0])


def test_a_loss_that_raises_on_one_rank_blocks_no_other(pool: Pool) -> None:
    zero, one = pool.run(tasks.note_of_one_rank, world_size=2)
    assert one == "the loss was not checked: it raised RuntimeError: the labels are damaged"
    assert "not checked" not in zero
