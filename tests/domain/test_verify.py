"""Verification of a job: its layouts, its runs, and the rule for the tolerance.

Not here: real runs (``tests.engine.verify.test_verify``, ``tests.e2e.test_verify``).
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from lockstep.domain.job_environment import VERIFY
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.short_run import short_document
from lockstep.domain.verify import report
from lockstep.domain.verify.compare import Result, difference, excess, tolerance
from lockstep.domain.verify.layouts import CopyCut, Layout, fitting, read_layouts
from lockstep.domain.verify.orders import read_order
from lockstep.domain.verify.runs import Run
from lockstep.domain.verify.session import BATCH_DEPENDENT, Verification
from lockstep.domain.verify.weights import distance
from tests.client import examples

LAYOUTS = [Layout(1, 8), Layout(2, 4)]


def exported(path: Path, numbers: list[float], code: str = "f", dtype: str = "F32") -> Path:
    body = struct.pack(f"<{len(numbers)}{code}", *numbers)
    about = {"dtype": dtype, "shape": [len(numbers)], "data_offsets": [0, len(body)]}
    header = json.dumps({"__metadata__": {"job": path.name}, "w": about}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + body)
    return path


def result(loss: float = 1.0, weights: Path | None = None, **more: Any) -> Result:
    """Return a run whose loss is ``loss`` from the third step on."""
    losses = {step: loss if step > 2 else 1.0 for step in range(1, 5)}
    series = {"train/loss": losses, "train/grad_norm": dict.fromkeys(losses, 1.0)}
    return Result(series, weights, **more)


def made(**results: Result) -> Verification:
    """Return all runs, with these results by kind; the others equal the reference."""
    done = Verification(examples.SPEC, LAYOUTS, steps=4)

    def execute(run: Run) -> Result:
        kind = run.kind if run.layout == LAYOUTS[0] or run.kind != "layout" else "other"
        return results.get(kind, result())

    done.perform(execute)
    return done


def test_layouts_are_read_and_fit_the_devices() -> None:
    found = read_layouts("1x8, 2x4,3x2")
    assert [each[:2] for each in found] == [(1, 8), (2, 4), (3, 2)]
    assert [str(each) for each in fitting(found, 2)] == ["1x8", "2x4", "2x2"]


@pytest.mark.parametrize(
    ("parallel", "default", "on_five"),
    [
        (None, "1x8,2x4,3x2", "1x8, 2x4, 3x2"),
        ({"tensor": 1}, "1x8,2x4,3x2", "1x8, 2x4, 3x2"),
        ({"tensor": 2}, "2x8,4x4,1x8", "2x8 tensor 2, 4x4 tensor 2, 1x8"),
        ({"tensor": 4}, "4x8,8x4,1x8", "4x8 tensor 4, 4x4 tensor 4, 1x8"),
        (
            {"tensor": 2, "pipeline": 3},
            "6x8,12x4,1x8",
            "6x8 tensor 2, pipeline 3; 6x4 tensor 2, pipeline 3; 1x8",
        ),
    ],
)
def test_a_cut_is_verified_on_whole_copies_and_against_one_rank(
    parallel: Any, default: str, on_five: str
) -> None:
    cut = CopyCut.of({"train": {"parallel": parallel}})
    assert cut.default == default
    chosen = cut.applied(fitting(read_layouts(default), 5, cut.unit))
    assert [str(each) for each in chosen] == on_five.split("; " if ";" in on_five else ", ")


@pytest.mark.parametrize("text", ["1x8", "1x8,1x8", "1x8,2", "0x8,1x8", "1x8,", ""])
def test_other_layouts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected at least two different layouts"):
        read_layouts(text)


@pytest.mark.parametrize(("gpus", "shard"), [(1, None), (2, 2), (3, None), (4, 2)])
def test_a_short_run_keeps_the_copies_that_its_ranks_complete(gpus: int, shard: int | None) -> None:
    train = {**examples.SPEC["train"], "strategy": {"name": "fsdp", "shard": 2}}
    document = short_document(
        {**examples.SPEC, "train": train}, purpose="p", suffix="s", gpus=gpus, steps=2
    )
    spec = read_spec(document)
    assert spec.train is not None
    assert (spec.train.strategy.name, spec.train.strategy.shard) == ("fsdp", shard)


@pytest.mark.parametrize(("gpus", "kept"), [(1, False), (2, True), (3, False), (4, True)])
def test_a_short_run_cuts_the_model_where_its_ranks_complete_a_copy(gpus: int, kept: bool) -> None:
    document: dict[str, Any] = {**examples.SPEC}
    document["train"] = {**examples.SPEC["train"], "parallel": {"tensor": 2, "pipeline": None}}
    short = short_document(document, purpose="p", suffix="s", gpus=gpus, steps=2)
    assert ("parallel" in short["train"]) == kept


@pytest.mark.parametrize(("gpus", "shard"), [(1, None), (2, None), (4, 2), (6, None), (8, 2)])
def test_a_short_run_shards_the_copies_of_a_cut_model(gpus: int, shard: int | None) -> None:
    strategy, parallel = {"name": "fsdp", "shard": 2}, {"tensor": 2, "pipeline": None}
    document: dict[str, Any] = {**examples.SPEC}
    document["train"] = {**examples.SPEC["train"], "strategy": strategy, "parallel": parallel}
    short = short_document(document, purpose="p", suffix="s", gpus=gpus, steps=2)
    assert short["train"]["strategy"].get("shard") == shard


def test_every_run_is_a_spec_of_the_same_batch_with_its_order() -> None:
    done = Verification({**examples.SPEC, "env": {"A": "b"}}, LAYOUTS, steps=20)
    runs: list[Run] = []

    def execute(run: Run) -> Result:
        runs.append(run)
        return result()

    done.perform(execute)
    specs = [read_spec(run.document) for run in runs]
    assert [str(run.layout) for run in runs] == ["1x8", "1x8", "2x4", "1x8", "2x4"]
    assert [spec.env.get(VERIFY) for spec in specs] == [None, "ulp", None, "kill:11", "resume"]
    assert {spec.env["A"] for spec in specs} == {"b"}
    trains = [spec.train for spec in specs]
    assert {train.batch.size for train in trains if train} == {
        examples.SPEC["train"]["batch"]["size"]
    }
    assert {train.steps for train in trains if train} == {20}
    assert [train.checkpoint.every_steps for train in trains if train][3] == 10
    assert read_order("kill:11").kill_after == 11
    with pytest.raises(ValueError, match="LOCKSTEP_VERIFY: expected ulp, resume or kill:STEP"):
        read_order("kill:0")


@pytest.mark.parametrize(
    ("code", "dtype", "floor"), [("f", "F32", 1e-6), ("d", "F64", 1e-12), ("e", "F16", 1e-6)]
)
def test_the_tolerance_is_ten_times_the_twin_and_has_a_floor(
    tmp_path: Path, code: str, dtype: str, floor: float
) -> None:
    one = exported(tmp_path / "one", [1.0, 2.0], code, dtype)
    other = exported(tmp_path / "other", [1.0, 2.5], code, dtype)
    far = 0.5 / math.hypot(1.0, 2.5)
    assert distance(one, other) == (pytest.approx(far), dtype == "F64")
    twin = difference(result(1.5, one), result(1.0, other))
    assert tolerance(twin) == {
        "loss": pytest.approx(10 * 0.5 / 1.5),
        "gradient": floor,
        "weights": pytest.approx(10 * far),
    }
    assert excess(twin, {"loss": 0.3, "gradient": 0.0, "weights": 0.0}) == (
        3,
        "loss",
        pytest.approx(0.5 / 1.5),
        0.3,
    )
    found = excess(twin, {"loss": 1.0, "gradient": 0.0, "weights": 0.0})
    assert found is not None
    assert found[:2] == (None, "weights")


def test_models_without_a_common_number_are_one_apart(tmp_path: Path) -> None:
    one = exported(tmp_path / "one", [1.0, 2.0])
    for number, other in enumerate(([1.0], [1.0, math.nan])):
        assert distance(one, exported(tmp_path / str(number), other)).relative == 1.0
    counts = [exported(tmp_path / f"n{n}", [n], "q", "I64") for n in (1, 2)]
    assert distance(*counts).relative == 1.0
    assert distance(counts[0], counts[0]).relative == 0.0
    half = exported(tmp_path / "half", [0x3F80, 0x4000], "H", "BF16")
    near = exported(tmp_path / "near", [0x3F80, 0x4001], "H", "BF16")
    assert distance(near, half).relative == pytest.approx(2**-6 / math.hypot(1, 2))
    (tmp_path / "text").write_text("no model")
    with pytest.raises(ValueError, match="text is not a safetensors file"):
        distance(tmp_path / "text", one)


def test_a_resumed_run_is_compared_from_its_first_step_on() -> None:
    late = {"train/loss": {3: 1.0}, "train/grad_norm": {3: 1.0, 4: 1.0}}
    found = difference(Result(late), result())
    assert found.steps == {"loss": {3: 0.0, 4: 1.0}, "gradient": {3: 0.0, 4: 0.0}}


def test_equal_runs_agree() -> None:
    done = made(twin=result(1.0 + 1e-7))
    assert report.agrees(done)
    assert report.sentences(done) == ["all runs agree over 4 steps, within the tolerance"]
    verdicts = [row[-1] for row in report.table(done)]
    assert verdicts == ["reference", "sets the tolerance", "within", "within", "within", ""]


@pytest.mark.parametrize(
    ("kind", "name", "cause"),
    [
        ("other", "2x4", "the result depends on the ranks or on the micro-batch"),
        ("killed", "1x8, killed after step 3 and resumed", "a resume in the same layout loses"),
        ("moved", "1x8, killed and resumed as 2x4", "a resume in another layout loses state"),
    ],
)
def test_a_run_beyond_the_tolerance_is_named_with_its_first_step(
    kind: str, name: str, cause: str
) -> None:
    done = made(layout=result(warnings=("task.calls counts",)), **{kind: result(1.1)})
    assert not report.agrees(done)
    first, *more = report.sentences(done)
    assert first.startswith(f"{name}: differs from step 3 on: loss 9.1e-02, tolerance 1.0e-06: ")
    assert cause in first
    assert more == ["warning of the run: task.calls counts"]
    found = json.loads(json.dumps(report.document(done)))
    beyond = [run["name"] for run in found["runs"] if run["beyond"]]
    assert (found["agrees"], found["reference"], beyond) == (False, "1x8", [name])


def test_rows_before_a_failure_are_judged_and_are_no_agreement() -> None:
    done = Verification(examples.SPEC, LAYOUTS, steps=4)

    def execute(run: Run) -> Result:
        if run.kind == "killed":
            raise OSError("the node is gone")
        return result()

    with pytest.raises(OSError, match="the node is gone"):
        done.perform(execute)
    assert [row[-1] for row in report.table(done)] == [
        "reference",
        "sets the tolerance",
        "within",
        "",
    ]
    assert report.sentences(done) == []
    assert not report.agrees(done)


def test_a_layout_that_is_refused_alone_is_no_agreement_and_no_reference() -> None:
    done = made(layout=Result(refusal="one sample is too few"))
    assert not report.agrees(done)
    assert report.sentences(done) == ["1x8: refused: one sample is too few"]
    assert done.reference is not None
    assert str(done.reference.run.layout) == "2x4"


def test_a_job_that_is_refused_in_every_layout_has_no_reference() -> None:
    refused = Result(refusal="the loss is a mean")
    done = made(layout=refused, other=refused)
    assert [row.run.kind for row in done.rows] == ["layout", "layout"]
    assert not report.agrees(done)


def test_runs_that_announce_other_numbers_are_not_judged() -> None:
    done = made(layout=result(warnings=(BATCH_DEPENDENT,)), other=result(2.0))
    assert report.agrees(done)
    assert report.sentences(done) == [
        "not judged: with batch_dependent other layouts give other numbers, as announced"
    ]


@pytest.mark.parametrize(
    ("strategy", "announced"),
    [
        ({"name": "local_sgd", "sync_every_steps": 4}, "strategy local_sgd"),
        ({"name": "diloco", "sync_every_steps": 4}, "strategy diloco"),
        ({"compression": "powersgd"}, "compression powersgd"),
        ({"compression": "bf16"}, ""),
        ({"name": "fsdp"}, ""),
    ],
)
def test_a_strategy_announces_other_numbers(strategy: dict[str, Any], announced: str) -> None:
    spec = {**examples.SPEC, "train": {**examples.SPEC["train"], "strategy": strategy}}
    assert Verification(spec, LAYOUTS, 4).announced == announced
