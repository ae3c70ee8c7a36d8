"""Order of a verification's runs, and their verdict.

The first layout that the engine accepts is the reference; its twin follows at once, so that an
interrupted verification has a tolerance for the rows that it has. Then come the other layouts, and
the reference again: killed and resumed, in the same layout and in the next one.

Not here: the execution of a run, which is a function that the caller gives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lockstep.domain.spec.reading import read_spec
from lockstep.domain.verify.compare import (
    Difference,
    Excess,
    Result,
    Tolerance,
    difference,
    excess,
    tolerance,
)
from lockstep.domain.verify.layouts import CopyCut, Layout
from lockstep.domain.verify.runs import Run, Runs

BATCH_DEPENDENT: Final = (
    "the task is batch_dependent: its gradient depends on how the batch is split"
)
"""Warning of the engine about such a task."""


@dataclass(frozen=True)
class ComparedRun:
    """One run beside the reference."""

    run: Run
    result: Result
    difference: Difference | None
    """None for a run that was refused, and for the reference."""


class Verification:
    """The runs of one job, as far as they were made.

    Parameters
    ----------
    document : dict
        The job's spec, of ``kind: train``.
    layouts : list of Layout
    steps : int
        Optimizer steps of each run.
    """

    def __init__(self, document: dict[str, Any], layouts: list[Layout], steps: int):
        self.steps = steps
        self.rows: list[ComparedRun] = []
        self.reference: ComparedRun | None = None
        self.twin: Difference | None = None
        self.complete = False
        """True once all runs were made."""
        self._layouts = CopyCut.of(document).applied(layouts)
        self._runs = Runs(document, steps)
        train = read_spec(document).train
        assert train is not None, "a script has no layouts"
        self._strategy = train.strategy

    def perform(self, execute: Callable[[Run], Result]) -> None:
        """Make all runs. An error of ``execute`` ends it; the rows so far remain."""
        for layout in self._layouts:
            row = self._add(self._runs.plain(layout), execute)
            if self.reference is None and not row.result.refusal:
                self.reference = row
                self.twin = self._add(self._runs.twin(layout), execute).difference
        if self.reference is not None:
            self._resume(self.reference.run.layout, execute)
        self.complete = True

    def layouts(self) -> list[Run]:
        """The runs of the layouts, which a service may refuse before the first is made."""
        return [self._runs.plain(layout) for layout in self._layouts]

    def _resume(self, first: Layout, execute: Callable[[Run], Result]) -> None:
        after = self._layouts.index(first) + 1
        following = self._layouts[after % len(self._layouts)]
        killed = self._add(self._runs.killed(first), execute)
        if not killed.result.refusal:
            self._add(self._runs.moved(killed.run, following), execute)

    def _add(self, run: Run, execute: Callable[[Run], Result]) -> ComparedRun:
        result, reference = execute(run), self.reference
        found = difference(result, reference.result) if reference and not result.refusal else None
        self.rows.append(ComparedRun(run, result, found))
        return self.rows[-1]

    @property
    def tolerance(self) -> Tolerance | None:
        """Ten times the twin's difference; None as long as there is no twin."""
        return None if self.twin is None else tolerance(self.twin)

    @property
    def announced(self) -> str:
        """The declaration by which other layouts give other numbers; empty without one."""
        dependent = "batch_dependent" if BATCH_DEPENDENT in self.warnings else ""
        return self._strategy.announced or dependent

    @property
    def warnings(self) -> list[str]:
        """Warnings of the reference, which may name the cause of a difference."""
        return list(self.reference.result.warnings) if self.reference else []

    def excess(self, row: ComparedRun) -> Excess | None:
        """The first difference of a row beyond the tolerance."""
        judged = self.tolerance if not self.announced and row.run.kind != "twin" else None
        return excess(row.difference, judged) if row.difference and judged else None

    @property
    def refused(self) -> list[ComparedRun]:
        """Rows that the engine refused."""
        return [row for row in self.rows if row.result.refusal]

    @property
    def above(self) -> list[tuple[ComparedRun, Excess]]:
        """Rows beyond the tolerance."""
        found = [(row, self.excess(row)) for row in self.rows]
        return [(row, first) for row, first in found if first is not None]
