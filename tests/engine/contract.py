"""The engine's contract: its items, the tests that prove each, and the measured distances.

A test names its items in a marker: ``@pytest.mark.contract(36)``. While the tests run, each
comparison of a measured distance with its tolerance is recorded, and ``make contract`` keeps the
largest distance of each. ``docs/generate.py`` draws ``docs/contract.md`` from both.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

HERE: Final = Path(__file__).resolve().parent
MEASURED: Final = HERE.parents[1] / "docs/contract.json"
RECORD: Final = "LOCKSTEP_RECORD_CONTRACT"
"""Environment variable: the folder to which each test process writes its measurements."""
MARKER: Final = "pytest.mark.contract"

ITEMS: Final = {
    1: "The gradient is the whole batch's, for any split into ranks, micro-batches and sizes",
    2: "Fifty optimizer steps end at the reference's weights, with clipping and schedule",
    3: "The mean is weighted by the count of the task: unmasked tokens, samples, a divisor per term",
    4: "The smaller last batch of an epochs run is the mean over its own items",
    5: "Micro-batches, ranks and whole batches of weight zero: no NaN, no hang, nothing is updated",
    6: "Shards differ by at most one sample; an empty last micro-batch leaves no trace",
    7: "Every item exactly once per epoch; the permutation needs no memory",
    8: "The items of a step are the same for every number of ranks and micro-batch",
    9: "Gradients are reduced once per step, plus one control operation, for any accumulation",
    10: "Forward and backward of a micro-batch are in the same sync mode",
    11: "A gradient that did not reach the other ranks is named before the optimizer moves",
    12: "Reduced precision is autocast over float32 parameters; gradients add up in float32",
    13: "The from-scratch wrapper equals torch's DDP",
    14: "nn.DataParallel gives the same gradient; refused where it cannot run",
    15: (
        "fp16: one unscale per step; an overflow anywhere repeats the same batch at a smaller "
        "scale, on all ranks"
    ),
    16: "The logged gradient norm is the reference's, equal on all ranks",
    17: "A non-finite loss never reaches the parameters; the log shows the real value",
    18: "The learning rate counts optimizer steps",
    19: "The logged loss is the weighted mean over the whole batch and all ranks",
    20: (
        "Compression within its stated tolerance, its error feedback in the checkpoint; local "
        "steps as declared"
    ),
    21: "Illegal use raises: a step inside a window, gradients zeroed before the step, re-entry",
    22: (
        "At the start all ranks agree on names, shapes, types and values of the parameters, in "
        "order"
    ),
    23: (
        "A parameter that differs on one rank by one bit is found, named, and laid to a rank "
        "where most agree"
    ),
    24: (
        "Batch statistics need batch_dependent, are equal on all ranks, and evaluation runs the "
        "unwrapped model"
    ),
    25: (
        "Randomness belongs to the sample: independent of ranks and micro-batch, repeated on resume"
    ),
    26: "A stopped run that goes on in the same layout is bitwise the uninterrupted one",
    27: "On another number of ranks it has the same items, and weights to rounding",
    28: (
        "A checkpoint is whole or absent after any kill of its writer; damage is found and skipped"
    ),
    29: "A checkpoint written in the background holds the state of its step",
    30: "Resuming far into a run fetches nothing twice",
    31: "A rank that ends in any way at any time takes the gang with it, and the outcome names it",
    32: "A restart after each of these succeeds",
    33: "A rank that never moves is named, with every rank's stack",
    34: "Of ranks that disagree, both sides are named",
    35: (
        "A stop at any moment leaves a loadable checkpoint of the last completed step, within the "
        "grace"
    ),
    36: "A step that does not fit is run again by all ranks in micro-batches of half the size",
    37: "Two identical runs are bitwise equal",
    38: "So are their metrics, times aside",
    39: "Every number shown can be recomputed from the raw log",
    40: "A loss that is not additive is refused, with its cause by name",
    41: "Evaluation, logging and checkpoints do not change the weights",
    42: "A run may start from other weights; a mismatch is named key by key",
    43: "A checkpoint knows its model and its data; another's is refused",
    44: "Compiling recompiles nothing between synchronising and local micro-batches",
    45: "State beside the weights is saved, or a resumed run names it and reports that it is not exact",
}


class Distance(float):
    """‖a − b‖ / ‖b‖. A comparison with a tolerance records both for the running test."""

    def __le__(self, tolerance: float) -> bool:
        record(float(self), float(tolerance))
        return float(self) <= tolerance


LIMITS = [
    "## Saved state, checked state, and state that cannot be found",
    "",
    "A checkpoint holds the model, the optimizer, and the state that a walk through model, task and "
    "the job's code finds",
    "([checks.md](checks.md#state-of-a-training)). Before step 1, up to 16 samples of the run are "
    "computed as one piece and as",
    "unlike pieces, state is advanced by up to a million calls, and items are fetched again "
    "([checks.md](checks.md)).",
    "",
    "Not found: state that no attribute of Python holds (positions of files, extension modules, "
    "environment variables, other",
    "processes); samples that are rarer than one in 64; rules that begin above 32 samples; a loss "
    "that changes after more calls",
    "than that. `lockstep verify` trains the job in several layouts, with a kill and a resume, and "
    "proves the rest as far as its",
    "steps reach.",
    "",
]


class Running:
    """Name of the running test of the contract, as ``file::name``. Other tests are not recorded."""

    name: str | None = None


@contextlib.contextmanager
def recorded(item: pytest.Item) -> Iterator[None]:
    """Record the distances of a test that has the marker, in its fixtures too."""
    if item.get_closest_marker("contract") is not None:
        Running.name = item.nodeid.partition("[")[0]
    try:
        yield
    finally:
        Running.name = None


def record(value: float, tolerance: float) -> None:
    """Write a value that the running test compared with a tolerance."""
    folder = os.environ.get(RECORD)
    if folder is None or Running.name is None or value > tolerance:
        return  # A check that is meant to fail is no measurement.
    path = Path(folder) / f"{os.getpid()}.jsonl"
    entry = {"test": Running.name, "tolerance": tolerance, "value": value}
    with path.open("a") as file:
        file.write(json.dumps(entry) + "\n")


def gather(folder: Path) -> None:
    """Write the largest distances of all test processes to ``docs/contract.json``."""
    worst: dict[str, dict[str, float]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            of_test = worst.setdefault(entry["test"], {})
            key = f"{entry['tolerance']:g}"
            of_test[key] = max(of_test.get(key, 0.0), float(f"{entry['value']:.1e}"))
    MEASURED.write_text(json.dumps(worst, indent=1, sort_keys=True) + "\n")


def tests() -> Iterator[tuple[int, str, str]]:
    """Yield (item, file, test) of every marker below this folder, without importing a test."""
    for path in sorted(HERE.rglob("test_*.py")):
        file = path.relative_to(HERE.parents[1]).as_posix()
        module = ast.parse(path.read_text(encoding="utf-8"))
        of_all = [
            node.value
            for node in module.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
        ]
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for number in numbers([*of_all, *node.decorator_list]):
                    yield number, file, node.name


def numbers(marks: list[ast.expr]) -> list[int]:
    """Return the items in the markers of a test. They must be written as numbers."""
    return [
        ast.literal_eval(argument)
        for mark in marks
        if isinstance(mark, ast.Call) and ast.unparse(mark.func) == MARKER
        for argument in mark.args
    ]


def page() -> str:
    """Return the contract as Markdown: item, tests, tolerance, measured."""
    measured = json.loads(MEASURED.read_text()) if MEASURED.is_file() else {}
    by_item: dict[int, list[tuple[str, str]]] = {number: [] for number in ITEMS}
    for number, file, test in tests():
        by_item[number].append((file, test))
    lines = [
        "# The engine's contract",
        "",
        "Each item, the tests that prove it, and the largest difference seen against its "
        "tolerance: ‖a − b‖ / ‖b‖ over all",
        "parameters, against an independent single-process loop that shares no code with the "
        "engine. All of it runs on CPU",
        "with Gloo and 1–4 processes. *exact* means that the test compares bit by bit, or "
        "behaviour rather than numbers.",
        "`make contract` measures again.",
        "",
    ]
    for number, text in ITEMS.items():
        lines += [
            f"## C{number}. {text}",
            "",
            "| test | tolerance | measured |",
            "| --- | --- | --- |",
        ]
        for file, test in by_item[number]:
            words = test.removeprefix("test_").replace("_", " ")
            name = f"[{words}](../{file})"
            found = measured.get(f"{file}::{test}", {})
            lines += [f"| {name} | {tolerance} | {value:g} |" for tolerance, value in found.items()]
            if not found:
                lines.append(f"| {name} | exact | held |")
        lines.append("")
    return "\n".join(lines + LIMITS)
