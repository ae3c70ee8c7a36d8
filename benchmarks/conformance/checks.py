"""Items of the contract that can be checked on any engine.

Each function is one item and one row of the table. A check requests runs, compares the observations
with the reference, and returns a number and a verdict. The items have the numbers of
``docs/contract.md``.

Not here: starting ranks (``benchmarks.conformance.gang``), the table
(``benchmarks.conformance.table``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import torch

from benchmarks.conformance.case import Case, initial
from benchmarks.conformance.observer import RankObservation
from benchmarks.conformance.reference import distance, share
from benchmarks.conformance.runs import ObservedRun, Runs, UnsupportedCaseError, largest

EXACT: Final = 1e-12
"""Relative error that the order of additions may cause in float64."""


@dataclass(frozen=True)
class CheckResult:
    """Result of one check on one engine."""

    verdict: Literal["pass", "fail", "n/a", "hang"]
    measured: str
    """A number or a word."""
    note: str = ""
    """Explanation, if the number alone is not clear."""
    value: float | None = None


@dataclass(frozen=True)
class Item:
    """One row of the table."""

    number: str
    title: str
    check: Callable[[Runs], CheckResult]


ITEMS: Final[list[Item]] = []


def item(
    number: str, title: str
) -> Callable[[Callable[[Runs], CheckResult]], Callable[[Runs], CheckResult]]:
    """Return a decorator that adds a check to the table."""

    def add(check: Callable[[Runs], CheckResult]) -> Callable[[Runs], CheckResult]:
        ITEMS.append(Item(number, title, check))
        return check

    return add


def within(error: float, limit: float = EXACT, note: str = "") -> CheckResult:
    """Return a pass if an error is at most ``limit``."""
    holds = error <= limit  # False for NaN.
    return CheckResult(
        "pass" if holds else "fail", "NaN" if math.isnan(error) else f"{error:.1e}", note, error
    )


def asked(runs: Runs, cases: Iterable[Case]) -> Iterator[ObservedRun]:
    """Yield runs of the cases that this engine supports, on the allowed numbers of ranks.

    Raises
    ------
    UnsupportedCaseError
        If the engine supports none of the cases.
    """
    any_of_them, why = False, f"needs other numbers of ranks than {runs.world_sizes}"
    for case in cases:
        if case.world_size not in runs.world_sizes:
            continue
        if (refusal := runs.engine.refusal(case)) is not None:
            why = refusal
            continue
        any_of_them = True
        yield runs.whole(case)
    if not any_of_them:
        raise UnsupportedCaseError(why)


def on_each(runs: Runs, case: Case) -> Iterator[ObservedRun]:
    """Yield runs of a case on each allowed number of ranks, with the same rows per rank."""
    per_rank = case.items // case.world_size
    return asked(
        runs, (replace(case, world_size=size, items=per_rank * size) for size in runs.world_sizes)
    )


# --- A. Gradient

SPLITS: Final = (
    Case(1, 8, 1, items=24),
    Case(1, 2, 4, items=24),
    Case(2, 2, 2, items=24),
    Case(2, 1, 4, items=24),
    Case(1, 4, 4, items=26, batch=13),
    Case(2, 2, 2, items=14, batch=7),
    Case(2, 1, 3, items=10, batch=5),
)
"""Layouts of a batch. The first four share a batch of 8. In the last three the batch is not W·m·K:
micro-batches of different sizes, shards of different sizes, and an empty micro-batch."""


@item("C1", "gradient of the whole batch, any split")
def full_batch(runs: Runs) -> CheckResult:
    found = list(asked(runs, SPLITS))
    wanted = sum(case.world_size in runs.world_sizes for case in SPLITS)
    note = "" if len(found) == wanted else f"of {wanted} splits, {len(found)} can be asked for"
    return within(largest(run.gradient_error() for run in found), note=note)


def trajectories() -> list[Case]:
    """Return cases of twelve updates with clipping and a schedule."""
    return [
        Case(size, 2, 4 // size, items=96, optimizer=optimizer, clip=0.5, warmup=4)
        for optimizer in ("momentum", "adamw")
        for size in (1, 2, 4)
    ]


@item("C2", "weights after 12 updates, clipped, scheduled")
def trajectory(runs: Runs) -> CheckResult:
    errors = {run.case: run.weights_error() for run in asked(runs, trajectories())}
    bad = [
        f"{case.optimizer} on {case.world_size}: {error:.0e}"
        for case, error in errors.items()
        if not error <= EXACT
    ]
    return within(largest(errors.values()), note="; ".join(bad))


@item("C3", "loss weighted by tokens, unequal everywhere")
def tokens(runs: Runs) -> CheckResult:
    return within(
        largest(
            run.gradient_error()
            for run in on_each(runs, Case(1, 2, 3, 18, weigh="tokens", masked="some"))
        )
    )


@item("C4", "ragged last window: its gradient ÷ the right one")
def ragged_window(runs: Runs) -> CheckResult:
    """Compare the last window of three micro-batches per rank with K = 2, which has one."""
    found = list(on_each(runs, Case(1, 2, 2, items=6)))
    shares = [
        share(one.updates[-1].gradient, run.expected.gradients[-1])
        for run in found
        for one in run.ranks
    ]
    worst = max(shares, key=lambda value: abs(value - 1))
    error = largest(run.gradient_error(-1) for run in found)
    note = (
        ""
        if error <= EXACT
        else f"3 micro-batches, K=2: {', '.join(f'{value:.3f}' for value in shares)}"
    )
    return CheckResult("pass" if error <= EXACT else "fail", f"{worst:.3f}", note, worst)


@item("C4", "last micro-batch smaller: error of its update")
def ragged_micro_batch(runs: Runs) -> CheckResult:
    return within(largest(run.gradient_error(-1) for run in asked(runs, [Case(1, 2, 2, items=7)])))


@item("C5", "a micro-batch without weight: error of the gradient")
def empty_micro_batch(runs: Runs) -> CheckResult:
    """Compare gradients of micro-batches of one row, every other one of which is masked."""
    return within(
        largest(
            run.gradient_error()
            for run in on_each(runs, Case(1, 1, 8, items=16, weigh="tokens", masked="odd"))
        )
    )


@item("C5", "a whole batch without weight: change of the weights")
def empty_batch(runs: Runs) -> CheckResult:
    case = Case(1, 2, 2, items=8, weigh="tokens", masked="all", optimizer="adamw")
    before = initial(case).state_dict()
    return within(
        largest(distance(one.weights, before) for run in on_each(runs, case) for one in run.ranks),
        0.0,
    )


# --- the order of data


@item("C7", "every row exactly once per epoch (7 rows)")
def exactly_once(runs: Runs) -> CheckResult:
    """Count rows over two epochs of seven rows.

    Seven is not a multiple of the batch, which has 4 rows per rank.
    """
    repeated = missed = 0
    for run in asked(runs, (Case(size, 2, 2, items=7, epochs=2) for size in runs.world_sizes)):
        seen = Counter(index for one in run.ranks for index in one.rows())
        repeated += sum(max(0, seen[index] - 2) for index in range(7))
        missed += sum(max(0, 2 - seen[index]) for index in range(7))
        missed += sum(len(micro_batch) for one in run.ranks for micro_batch in one.left_over)
    wrong = repeated + missed
    note = f"{repeated} seen too often, {missed} not trained on" if wrong else ""
    return CheckResult("fail" if wrong else "pass", f"{wrong} wrong", note, wrong)


@item("C8", "updates with the same rows for every (W, m)")
def same_rows(runs: Runs) -> CheckResult:
    first, *others = [[sorted(batch) for batch in run.batches] for run in asked(runs, SPLITS[:4])]
    same = sum(all(other[step] == batch for other in others) for step, batch in enumerate(first))
    note = (
        ""
        if same == len(first)
        else "the order depends on the number of ranks or on the micro-batch"
    )
    return CheckResult(
        "pass" if same == len(first) else "fail", f"{same} of {len(first)}", note, same / len(first)
    )


# --- communication


@item("C9", "collectives per update, K = 1 and K = 4")
def collectives(runs: Runs) -> CheckResult:
    found = []
    for run in asked(
        runs,
        (
            Case(2, 2, micro_batches, items=24 * micro_batches, counted=True)
            for micro_batches in (1, 4)
        ),
    ):
        # Not after the first update: DDP then rebuilds its buckets, with additional collectives.
        counts = sorted(set(run.ranks[0].collectives[1:]))
        found.append(" to ".join(map(str, counts)))
    holds = found[0] == found[1] and found[0].isdigit()
    return CheckResult(
        "pass" if holds else "fail", ", ".join(found), value=float(found[1]) if holds else None
    )


@item("C11", "updates with gradients that were not reduced")
def unreduced(runs: Runs) -> CheckResult:
    """Compare gradients of a model with a part that only row 0 uses.

    In most windows, the last micro-batch gives that part no gradient.
    """
    case = Case(2, 1, 4, items=24, sparse=True)
    if case.world_size not in runs.world_sizes:
        raise UnsupportedCaseError("needs two ranks")
    run = runs.watched(case)
    errors = [run.gradient_error(step) for step in range(len(run.batches))]
    silent = sum(not error <= EXACT for error in errors)
    note = f"{silent} silently, then: {run.error}" if silent and run.error else run.error
    return CheckResult("fail" if silent else "pass", str(silent), first_sentence(note), silent)


# --- B. Control


@item("C16", "reported gradient norm: error, and equal on all ranks")
def norms(runs: Runs) -> CheckResult:
    errors = []
    for run in asked(runs, trajectories()):
        # An engine with incorrect rates or sums diverges from the reference, but its first norm is
        # still comparable.
        steps = 1 if not run.weights_error() <= EXACT else len(run.batches)
        reported = [one.norms[:steps] for one in run.ranks if one.norms]
        if not reported:
            raise UnsupportedCaseError("it reports no norm")
        errors += [
            abs(a / b - 1)
            for one in reported
            for a, b in zip(one, run.expected.norms[:steps], strict=True)
        ]
        errors += [float(one != reported[0]) for one in reported]
    return within(largest(errors))


@item("C17", "loss not finite: values in the weights not finite")
def non_finite(runs: Runs) -> CheckResult:
    """Count weights that are not finite after a row whose loss is NaN, with clipping."""
    bad, whole, error = 0, 0, ""
    for size in runs.world_sizes:
        run = runs.watched(Case(size, 2, 2, items=16 * size, poisoned=5, clip=1.0))
        bad += sum(
            int((~torch.isfinite(value)).sum())
            for one in run.ranks
            for value in one.weights.values()
        )
        whole += sum(value.numel() for one in run.ranks for value in one.weights.values())
        error = error or run.error
    return CheckResult(
        "fail" if bad else "pass", f"{bad} of {whole}", first_sentence(error), bad / max(1, whole)
    )


@item("C18", "rates count updates: largest error ÷ peak")
def rates(runs: Runs) -> CheckResult:
    errors, note = [], ""
    for run in asked(runs, trajectories()):
        peak = max(run.expected.rates)
        for one in run.ranks:
            wrong = [
                (step, update.rate, right)
                for step, (update, right) in enumerate(
                    zip(one.updates, run.expected.rates, strict=True)
                )
                if not abs(update.rate - right) <= EXACT * peak
            ]
            errors += [abs(rate - right) / peak for _, rate, right in wrong] or [0.0]
            if wrong and not note:
                step, rate, right = wrong[0]
                note = (
                    f"on {run.case.world_size} ranks, update {step + 1} has rate {rate:.4g}, not "
                    f"{right:.4g}"
                )
    return within(largest(errors), note=note)


@item("C19", "reported loss is the whole batch's: error")
def losses(runs: Runs) -> CheckResult:
    if not runs.engine.reports_loss:
        raise UnsupportedCaseError("it reports what its user computes")
    errors = []
    for run in on_each(runs, Case(1, 2, 3, items=18, weigh="tokens", masked="some")):
        # After an incorrect update the losses are those of another model, but the first loss is
        # comparable for every engine.
        steps = 1 if not run.weights_error() <= EXACT else len(run.batches)
        reported = run.ranks[0].losses[:steps]
        errors += [
            abs(a / b - 1) for a, b in zip(reported, run.expected.losses[:steps], strict=True)
        ]
    return within(largest(errors))


# --- D. Resume


@item("C26", "resumed run: weights that differ in a bit")
def resume(runs: Runs) -> CheckResult:
    """Compare a run with one that stops in the middle of an epoch and resumes in new processes."""
    different = 0
    for size in runs.world_sizes:
        case = Case(
            size,
            2,
            2,
            items=20 * size,
            epochs=2,
            optimizer="adamw",
            clip=0.5,
            warmup=2,
            checkpoint_at=3,
        )
        straight, resumed = runs.whole(case), runs.whole(replace(case, resumed=True))
        different += sum(unequal(a, b) for a, b in zip(straight.ranks, resumed.ranks, strict=True))
    return CheckResult("fail" if different else "pass", str(different), value=different)


def unequal(one: RankObservation, other: RankObservation) -> int:
    """Return the number of values in the weights that differ."""
    return sum(int((one.weights[name] != other.weights[name]).sum()) for name in one.weights)


def first_sentence(text: str) -> str:
    """Return the beginning of a long message, at most 120 characters."""
    line = " ".join(text.split())
    return line if len(line) <= 120 else f"{line[:119]}…"
