"""Runs of one engine. Each case is trained once and shared by all checks.

Not here: the checks (``benchmarks.conformance.checks``).
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
    """The engine does not support a case. The message has the reason."""


class BrokenRunError(Exception):
    """A run raised unexpectedly, or has no update to check."""


@dataclass(frozen=True)
class Training:
    """Work of one rank: train a case with an engine. Sent by pickle."""

    engine: Engine
    case: Case

    def __call__(self, place: RankIdentity) -> RankObservation | Failed:
        observer = Observer(self.case)
        try:
            with observer.watching():
                self.engine.train(self.case, place, observer)
        except Exception as error:  # noqa: BLE001 - a refusal or failure of the engine is a result
            observer.seen.error = f"{type(error).__name__}: {error}"
            return Failed(observer.seen)
        return observer.seen


class ObservedRun:
    """Observations of all ranks of one run."""

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
        """Expected result of these updates."""
        return reference(self.case, self.batches)

    def gradient_error(self, step: int | None = None) -> float:
        """Return the largest relative gradient error over all ranks, of one update or of all."""
        steps = range(len(self.batches)) if step is None else [range(len(self.batches))[step]]
        return largest(
            distance(one.updates[index].gradient, self.expected.gradients[index])
            for one in self.ranks
            for index in steps
        )

    def weights_error(self) -> float:
        """Return the largest relative error of the final weights, over all ranks."""
        return largest(distance(one.weights, self.expected.weights) for one in self.ranks)

    @property
    def error(self) -> str:
        """Exception of the lowest rank that raised one, or an empty string."""
        return next((one.error for one in self.ranks if one.error), "")


class Runs:
    """Trains cases with one engine and keeps their runs.

    Parameters
    ----------
    engine : Engine
    gang : RankPool
    world_sizes : tuple of int
        Allowed numbers of ranks.
    """

    def __init__(self, engine: Engine, gang: RankPool, world_sizes: tuple[int, ...]):
        self.engine, self.world_sizes = engine, world_sizes
        self._gang = gang
        self._done: dict[Case, ObservedRun] = {}
        self._folders: dict[Case, Path] = {}
        self._scratch = tempfile.TemporaryDirectory(prefix="conformance-")

    def of(self, case: Case) -> ObservedRun:
        """Return the run of a case, failed or not.

        Raises
        ------
        UnsupportedCaseError, HangError, DeadRankError
        """
        refusal = self.engine.refusal(case)
        if refusal is not None:
            raise UnsupportedCaseError(refusal)
        if case not in self._done:
            # A resumed run needs the files of the run that wrote the checkpoint.
            folder = self._folders.setdefault(
                replace(case, resumed=False), Path(self._scratch.name) / str(len(self._folders))
            )
            ranks: list[Any] = self._gang.run(Training(self.engine, case), case.world_size, folder)
            self._done[case] = ObservedRun(case, ranks)
        return self._done[case]

    def watched(self, case: Case) -> ObservedRun:
        """Return the run of a case, failed or not, of an engine whose updates can be observed.

        A run may correctly have no update if its batch has no weight, its loss is NaN or a gradient
        was not reduced. In that case the same rows are trained without that condition and must have
        an update. Otherwise nothing was measured.

        Raises
        ------
        BrokenRunError
            No update was observed, or the run without that condition failed.
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
        """Return the run of a case that must succeed.

        It must have at least one update if its rows have any weight.

        Raises
        ------
        BrokenRunError
            It raised, its ranks made different numbers of updates, or no update was observed.
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
    """Return the largest of some errors. NaN counts as larger than any number."""
    found = list(values)
    return math.nan if any(math.isnan(value) for value in found) else max(found, default=0.0)
