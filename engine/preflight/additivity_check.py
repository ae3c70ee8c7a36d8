"""Additivity check of a task's loss, the condition of the promise about the batch (contract C40).

Before the first step, up to 16 samples of the run are computed as one piece and as five unlike
pieces. If gradients or losses differ, the gradient of a batch depends on its split, and the task is
refused with the likely cause, unless it declares ``batch_dependent``. The verdict depends neither
on the number of ranks nor on the time.

State is no cause: it is put back between the calls, and a loss that still returns another value for
the same batch is not judged (``engine.preflight.repeatability`` warns of it).

All ranks compute the same, on samples that rank 0 chose.

Not here: the samples (``engine.preflight.chosen_samples``), the gradients
(``engine.preflight.comparison``), the cause (``engine.preflight.causes``).
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import Dataset

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.train import Train
from lockstep.engine.data.fetching import seeded_sample
from lockstep.engine.data.loader import weights_of
from lockstep.engine.preflight import chosen_samples
from lockstep.engine.preflight.causes import SUM, cause_of
from lockstep.engine.preflight.check_size import CheckSize, size_of_check
from lockstep.engine.preflight.comparison import Compared, Worst, compared, tolerance
from lockstep.engine.preflight.effects import CallEffects, effects_of
from lockstep.engine.preflight.trial_task import TrialTask, divided
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.errors import (
    BadSpecError,
    EngineError,
    describe,
    listed,
    reason_of,
    release,
)
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.state.between_ranks import RankDifference
from lockstep.engine.state.values import equal
from lockstep.engine.task.interface import Task

ROUNDING: Final = 10
"""Factor by which a difference below float64 must exceed that of a change of the weights by one
unit in the last place."""
_ALONE: Final = Ranks()
_OTHER_BATCH: Final = (
    "collate() gives another batch for the same samples: it draws from a generator of its own, or "
    "depends on previous calls, so the run depends on micro_size and on the ranks: draw in the "
    "dataset, from random, numpy.random or torch"
)
_NO_WEIGHT: Final = (
    "weight() is 0 for the first {} samples, so they do not contribute to training and the loss "
    "was not checked: weight() must count the units that loss() sums over; check which mask "
    "removes all of them"
)


@dataclass(frozen=True)
class Checked:
    """Result for a loss that was not refused."""

    difference: float | None = None
    """Largest relative difference between the divisions; None if they were not compared."""
    note: str = ""
    """Reason why they were not compared, or a limit of the comparison."""
    samples: int = 0
    """Number of samples that were compared."""
    complete: bool = False
    """True if the samples used every trainable parameter."""
    warnings: tuple[str, ...] = ()
    effects: CallEffects = field(default_factory=CallEffects)

    def warnings_beside(self, known: Sequence[str]) -> list[str]:
        """Return the warnings, about state only if no known warning names it."""
        return [*self.warnings, *self.effects.warnings(known)]


class _NotCheckedError(Exception):
    """Reason why the loss cannot be checked."""


def check(
    task: Task,
    model: nn.Module,
    dataset: Dataset[Any],
    *,
    size: int,
    train: Train,
    ranks: Ranks = _ALONE,
    resumes: bool = False,
    differences: Sequence[RankDifference] = (),
) -> Checked:
    """Refuse a task whose loss is not a sum over samples. All ranks must call this.

    The effects of its calls are observed on the same samples.

    Parameters
    ----------
    task : Task
    model : nn.Module
        In train mode, on the rank's device, before it is wrapped.
    dataset : Dataset
        The train split.
    size : int
        Its length.
    train : Train
        Its seed, its name of the task, and its batch. A micro-batch above 16 samples raises the
        number of samples to compare.
    ranks : Ranks
    resumes : bool
        True for a run that was accepted before: the sums are not compared.
    differences : sequence of RankDifference
        Between the ranks.

    Raises
    ------
    EngineError
        ``bad_spec``: the loss or the weight is not additive; the message has the cause and a
        correction.
    """
    seed, name, batch = train.seed, train.task, train.batch
    with randomness.unchanged_generators(next(model.parameters()).device):
        # A resumed run compares no sums, so any few samples do.
        most = chosen_samples.CHOSEN // 2 if resumes else chosen_samples.SCANNED_MAX
        scanned = chosen_samples.scan(task, dataset, size=size, seed=seed, most=most)
        # The scan has a limit in time, so ranks may scan other numbers of samples: one decides.
        if not ranks.from_first(any(each.has_weight for each in scanned)):
            return Checked(note=_NO_WEIGHT.format(most))
        if batch.size < 2:
            return Checked()
        known = {each.index: each.sample for each in scanned}

        def choose(count: int) -> list[tuple[int, Any]]:
            chosen = chosen_samples.chosen(scanned, count)
            return [
                (i, known[i] if i in known else seeded_sample(dataset, i, seed=seed))
                for i in ranks.from_first([each.index for each in chosen])
            ]

        wanted = chosen_samples.number_of_samples(batch.size, batch.micro_size)
        # The free memory of ranks differs.
        bounds = CheckSize(
            *ranks.from_first(size_of_check(task, model, scanned[0].sample, wanted, seed=seed))
        )
        found = Checked()
        if not (task.batch_dependent or resumes):
            found, bounds = _within(
                bounds, partial(_outcome, task, model, choose, name=name, seed=seed), ranks
            )
        if found.difference is not None and bounds.samples < wanted:
            less = (
                f"the loss was checked with {bounds.samples} samples: {wanted} would take too long"
            )
            found = replace(found, note="; ".join(filter(None, (found.note, less))))
        dtype = torch.float64 if bounds.copies else None
        samples = [sample for _, sample in choose(bounds.samples)]
        effects = effects_of(
            task,
            model,
            dtype,
            samples,
            seed=seed,
            evaluates=train.eval.every_steps is not None,
            differences=differences,
        )
        of_ranks = any(ranks.gather(effects.of_ranks))
        return replace(found, effects=replace(effects, of_ranks=of_ranks))


def _within(
    bounds: CheckSize, outcome_of: Callable[[CheckSize], Checked | Exception], ranks: Ranks
) -> tuple[Checked, CheckSize]:
    """Return the result of a check in the largest size that runs, and this size."""
    while True:
        outcome = outcome_of(bounds)
        error = outcome if isinstance(outcome, Exception) else None
        short = error is not None and reason_of(error) is Reason.OUT_OF_MEMORY
        # The loss may raise on one rank only; all ranks must choose samples together.
        failed, shortages = zip(*ranks.gather((error is not None, short)), strict=True)
        smaller = bounds.smaller()
        if smaller.samples < 2 or not (any(shortages) or (any(failed) and bounds.copies)):
            break
        bounds = smaller
    if isinstance(outcome, Checked):
        return outcome, bounds
    reason = describe(outcome).partition("\n")[0]
    return Checked(note=f"the loss was not checked: it raised {reason}"), bounds


def _outcome(
    task: Task,
    model: nn.Module,
    choose: Callable[[int], list[tuple[int, Any]]],
    bounds: CheckSize,
    *,
    name: str,
    seed: int,
) -> Checked | Exception:
    """Return the result of a check of this size, or the error that ended it."""
    samples = choose(bounds.samples)  # Ranks communicate, so before anything that may fail on one.
    try:
        trial = TrialTask(task, model, torch.float64 if bounds.copies else None, seed=seed)
        try:
            found = _Check(trial, samples, name).result()
        finally:
            changed = trial.close()
    except EngineError:
        raise
    except _NotCheckedError as reason:
        return Checked(note=f"the loss was not checked: {reason}")
    except Exception as error:  # noqa: BLE001 - training may not fail; the warm-up comes next
        release(error)
        return error
    if not changed:
        return found
    return replace(
        found,
        warnings=(
            f"loss() changes {listed(changed)}, and the check of the loss does not put back "
            "tensors of this size: training starts from the changed values",
        ),
    )


class _Check:
    """Check of some samples on one trial.

    Parameters
    ----------
    trial : TrialTask
    samples : list of (int, Any)
        With their indices in the dataset; sorted, so that neighbours are alike.
    name : str
        ``train.task`` of the spec.
    """

    def __init__(self, trial: TrialTask, samples: list[tuple[int, Any]], name: str):
        self._trial, self._name = trial, name
        self._indices = [index for index, _ in samples]
        self._samples = [sample for _, sample in samples]
        self._left_out: list[int] = []
        self._notes: list[str] = []
        self._divide()
        trial.begin(divided(trial.task, self._samples[:2], [2])[0])

    def result(self) -> Checked:
        """Return the result of the comparison."""
        found, drawn = self._watched()
        if drawn:
            self._trial.settle()
            found, drawn = self._watched()
        self._require_additive_weights()
        if drawn:
            raise _NotCheckedError("it draws random numbers, even in eval mode")
        if not found.finite:
            found = self._without_non_finite()
        if found.empty:
            raise _NotCheckedError("the gradient of the first samples is zero or not finite")
        return self._judged(found)

    def _divide(self) -> None:
        """Collate both divisions."""
        with randomness.DrawDetector(self._trial.device) as watch:
            task, count = self._trial.task, len(self._samples)
            self._whole = divided(task, self._samples, [count])
            self._parts = divided(task, self._samples, chosen_samples.sizes(count))
        if watch.drawn:
            raise _NotCheckedError("collate() draws random numbers, which depend on micro_size")

    def _watched(self) -> tuple[Compared, bool]:
        """Return the comparison, and whether it drew random numbers."""
        with randomness.DrawDetector(self._trial.device) as watch:
            found = compared(self._trial, self._whole, self._parts)
        return found, watch.drawn

    def _without_non_finite(self) -> Compared:
        """Leave out the samples whose own loss or gradient is not finite, and compare the rest."""
        alone = [
            compared(self._trial, [piece], [piece]).finite
            for piece in divided(self._trial.task, self._samples, [1] * len(self._samples))
        ]
        self._left_out = [i for i, finite in zip(self._indices, alone, strict=True) if not finite]
        self._samples = [s for s, finite in zip(self._samples, alone, strict=True) if finite]
        if self._left_out and len(self._samples) > 1:
            self._divide()
            found = compared(self._trial, self._whole, self._parts)
            if found.finite:
                return found
        raise _NotCheckedError("the gradient of the first samples is zero or not finite")

    def _judged(self, found: Compared) -> Checked:
        trial, whole = self._trial, self._whole[0]
        coarsest = trial.dtype
        worst, limit = self._worst(found, coarsest)
        if worst.difference > limit:
            coarsest = trial.coarsest(whole)
            worst, limit = self._worst(found, coarsest)
        if worst.difference > limit:
            again = divided(trial.task, self._samples, [len(self._samples)])[0]
            if not equal(again.batch, whole.batch):
                raise _NotCheckedError(_OTHER_BATCH)
            # The cause is state outside of the engine, which has a warning of its own, and not a
            # coupling of the samples.
            if not trial.repeats(whole):
                raise _NotCheckedError("the same batch gives a different value each time")
            if trial.draws_by_itself:
                raise _NotCheckedError("it draws from a random generator of its own")
            if coarsest == torch.float64 or worst.difference > ROUNDING * self._rounding(coarsest):
                raise self._refused("loss", f"{self._cause(coarsest)} ({worst})")
            self._notes.append(f"the loss was checked to {worst.difference:.0e}, its rounding")
        return Checked(
            worst.difference, self._note(coarsest), len(self._samples), complete=found.complete
        )

    def _worst(self, found: Compared, dtype: torch.dtype) -> tuple[Worst, float]:
        limit, floor = tolerance(dtype, self._trial.device)
        return found.worst(floor), limit

    def _rounding(self, dtype: torch.dtype) -> float:
        """Return the difference that a change of the weights in their last place makes."""
        change = partial(self._trial.scale, 1.0 + torch.finfo(dtype).eps)
        found = compared(self._trial, self._whole, self._whole, between=change)
        return self._worst(found, dtype)[0].difference

    def _note(self, coarsest: torch.dtype) -> str:
        notes = self._notes
        if coarsest != torch.float64:
            name = str(coarsest).removeprefix("torch.")
            notes.append(f"the loss was checked to the precision of {name}")
        if self._left_out:
            notes.append(
                f"the loss was checked without {len(self._left_out)} samples of the dataset whose "
                f"loss or gradient is not finite: {listed(list(map(str, self._left_out)))}"
            )
        return "; ".join(notes)

    def _cause(self, coarsest: torch.dtype) -> str:
        try:
            allowed = tolerance(coarsest, self._trial.device)
            return cause_of(self._trial, self._samples, allowed)
        except Exception as error:  # noqa: BLE001 - the loss is refused without a cause, too
            return (
                f"is not the sum over its samples: {SUM} (the search for the cause raised "
                f"{describe(error)})"
            )

    def _require_additive_weights(self) -> None:
        task, terms = self._trial.task, self._trial.names
        weight = task.weight(self._whole[0].batch)
        whole = weights_of(weight, terms)
        parts = [weights_of(task.weight(piece.batch), terms) for piece in self._parts]
        for index, term in enumerate(terms):
            total = math.fsum(weights[index] for weights in parts)
            if math.isclose(total, whole[index], rel_tol=1e-6, abs_tol=1e-9):
                continue
            of = f" of the term {term!r}" if isinstance(weight, dict) else ""
            counts = (
                f"{whole[index]:g}{of} for {len(self._samples)} samples together, but {total:g} "
                f"for the same samples in {len(parts)} parts"
            )
            if type(task).weight is Task.weight:
                raise BadSpecError(
                    f"{self._name}: without a weight() of the task, the first dimension of the "
                    f"batch's first tensor counts the samples, and it is {counts}: write "
                    "weight(self, batch) in the task, which returns the number of units that "
                    "loss() sums over, or put the samples first in collate()",
                )
            raise self._refused(
                "weight",
                f"counts {counts}: count only the units that the loss sums over, such as samples, "
                "or tokens without padding",
            )

    def _refused(self, method: str, why: str) -> EngineError:
        """Return the error, with the location of the method in the user's code."""
        function = inspect.unwrap(getattr(type(self._trial.task), method))
        place = ""
        with suppress(OSError, TypeError):
            line = inspect.getsourcelines(function)[1]
            place = f" ({Path(inspect.getsourcefile(function) or '').name}, line {line})"
        return BadSpecError(f"{self._name}: {method}(){place} {why}")
