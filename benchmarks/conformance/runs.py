"""The runs of one engine: each case is trained once, however many checks look at it.

Not here: what the checks look for (``benchmarks.conformance.checks``).
"""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from benchmarks.conformance.case import Case
from benchmarks.conformance.engines.base import Engine
from benchmarks.conformance.gang import Failed, RankIdentity, RankPool
from benchmarks.conformance.observer import Observer, RankObservation
from benchmarks.conformance.reference import Expected, distance, reference


class UnsupportedCaseError(Exception):
    """The engine cannot be asked for a case. The message says why."""


class BrokenRunError(Exception):
    """A run ended with an exception where it had no reason to, or showed nothing to judge."""


@dataclass(frozen=True)
class Training:
    """What a rank does."""

    engine: Engine
    case: Case

    def __call__(self, place: RankIdentity) -> RankObservation | Failed:
        observer = Observer(self.case)
        try:
            with observer.watching():
                self.engine.train(self.case, place, observer)
        except Exception as error:  # noqa: BLE001 - an engine that refuses or fails is an observation too
            observer.seen.error = f"{type(error).__name__}: {error}"
            return Failed(observer.seen)
        return observer.seen


class ObservedRun:
    """One run, as its ranks were seen."""

    def __init__(self, case: Case, ranks: list[RankObservation]):
        self.case, self.ranks = case, ranks

    @cached_property
    def batches(self) -> list[list[int]]:
        """Rows of each update, over all ranks."""
        updates = min(len(one.updates) for one in self.ranks)
        return [
            [
                index
                for one in self.ranks
                for micro_batch in one.updates[step].rows
                for index in micro_batch
            ]
            for step in range(updates)
        ]

    @cached_property
    def expected(self) -> Expected:
        """What these updates must have been."""
        return reference(self.case, self.batches)

    def gradient_error(self, step: int | None = None) -> float:
        """Largest relative error of a gradient, of one update or of all, over all ranks."""
        steps = range(len(self.batches)) if step is None else [range(len(self.batches))[step]]
        return largest(
            distance(one.updates[index].gradient, self.expected.gradients[index])
            for one in self.ranks
            for index in steps
        )

    def weights_error(self) -> float:
        """Largest relative error of the final weights, over all ranks."""
        return largest(distance(one.weights, self.expected.weights) for one in self.ranks)

    @property
    def error(self) -> str:
        """The first rank's exception, if a rank had one."""
        return next((one.error for one in self.ranks if one.error), "")


class Runs:
    """Trains cases with one engine.

    Parameters
    ----------
    engine : Engine
    gang : Gang
    world_sizes : tuple of int
        Numbers of ranks that may be used.
    """

    def __init__(self, engine: Engine, gang: RankPool, world_sizes: tuple[int, ...]):
        self.engine, self.world_sizes = engine, world_sizes
        self._gang = gang
        self._done: dict[Case, ObservedRun] = {}
        self._folders: dict[Case, Path] = {}
        self._scratch = tempfile.TemporaryDirectory(prefix="conformance-")

    def of(self, case: Case) -> ObservedRun:
        """The run of a case, whether it went through or not.

        Raises
        ------
        UnsupportedCaseError, HangError, DeadRankError
        """
        refusal = self.engine.refusal(case)
        if refusal is not None:
            raise UnsupportedCaseError(refusal)
        if case not in self._done:
            # A resumed run finds the files of the run that it resumes.
            folder = self._folders.setdefault(
                replace(case, resumed=False), Path(self._scratch.name) / str(len(self._folders))
            )
            ranks: list[Any] = self._gang.run(Training(self.engine, case), case.world_size, folder)
            self._done[case] = ObservedRun(case, ranks)
        return self._done[case]

    def watched(self, case: Case) -> ObservedRun:
        """The run of a case, whether it went through or not, of an engine whose updates are seen.

        A batch without weight, a loss that is no number and a gradient that was not reduced may
        rightly end in no update. Then the same rows without that must show one: where none is ever
        seen, nothing was measured.

        Raises
        ------
        BrokenRunError
            No update was seen, or the run without that did not go through.
        """
        run = self.of(case)
        if not run.batches:
            masked = "none" if case.masked == "all" else case.masked
            plain = replace(case, masked=masked, poisoned=None, sparse=False)
            if plain == case:
                raise BrokenRunError(
                    "no update was seen: no torch.optim.Optimizer stepped after a backward of the "
                    "observer's loss"
                )
            self.whole(plain)
        return run

    def whole(self, case: Case) -> ObservedRun:
        """The run of a case that must go through, with at least one update if its rows have any weight.

        Raises
        ------
        BrokenRunError
            It ended with an exception, its ranks made different numbers of updates, or none was
            seen.
        """
        run = self.of(case)
        if run.error:
            raise BrokenRunError(run.error)
        counts = {len(one.updates) for one in run.ranks}
        if len(counts) > 1:
            raise BrokenRunError(f"ranks made different numbers of updates: {sorted(counts)}")
        return self.watched(case)

    def close(self) -> None:
        self._scratch.cleanup()


def largest(values: Any) -> float:
    """The largest of some errors; one that is not a number counts as the largest of all."""
    found = list(values)
    return math.nan if any(math.isnan(value) for value in found) else max(found, default=0.0)
