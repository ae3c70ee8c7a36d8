"""Report of a verification: rows of a table, sentences, and a document.

Not here: the printing (``cli.jobs.verify``, ``engine.verify.__main__``).
"""

from __future__ import annotations

from typing import Any, Final

from lockstep.domain.verify.compare import QUANTITIES, WEIGHTS, Excess
from lockstep.domain.verify.session import ComparedRun, Verification

COLUMNS: Final = ("run", *QUANTITIES, "verdict")
_MARK: Final = "—"
_CAUSES: Final = {
    "layout": "the result depends on the ranks or on the micro-batch",
    "killed": "a resume in the same layout loses state",
    "moved": "a resume in another layout loses state, or the result depends on the layout",
}


def agrees(done: Verification) -> bool:
    """Return whether all runs were made, none was refused and none is beyond the tolerance."""
    return done.complete and not done.refused and not done.above


def table(done: Verification) -> list[tuple[str, ...]]:
    """One row for each run, and the tolerance."""
    rows = [
        (
            row.run.name,
            *_numbers(row.difference.largest() if row.difference else {}),
            _word(done, row),
        )
        for row in done.rows
    ]
    limits = done.tolerance if not done.announced else None
    return [*rows, ("tolerance", *_numbers({**limits}), "")] if limits else rows


def sentences(done: Verification) -> list[str]:
    """The verdict; of a difference also its first step and the warnings that may explain it."""
    lines = [f"{row.run.name}: refused: {row.result.refusal}" for row in done.refused]
    lines += [_beyond(row, first) for row, first in done.above]
    if done.announced and done.reference:
        lines.append(
            f"not judged: with {done.announced} other layouts give other numbers, as announced"
        )
    elif agrees(done):
        lines.append(f"all runs agree over {done.steps} steps, within the tolerance")
    elif done.above:
        lines += [f"warning of the run: {warning}" for warning in done.warnings]
    return lines


def document(done: Verification) -> dict[str, Any]:
    """The same as JSON."""
    reference = done.reference
    return {
        "agrees": agrees(done),
        "complete": done.complete,
        "judged": not done.announced,
        "steps": done.steps,
        "reference": str(reference.run.layout) if reference else None,
        "tolerance": done.tolerance,
        "runs": [_run(done, row) for row in done.rows],
        "warnings": done.warnings,
        "sentences": sentences(done),
    }


def _run(done: Verification, row: ComparedRun) -> dict[str, Any]:
    first = done.excess(row)
    return {
        "name": row.run.name,
        "kind": row.run.kind,
        "layout": str(row.run.layout),
        "verdict": _word(done, row),
        "difference": row.difference.largest() if row.difference else None,
        "beyond": first._asdict() if first else None,
        "refusal": row.result.refusal or None,
    }


def _beyond(row: ComparedRun, first: Excess) -> str:
    where = "in the final weights" if first.step is None else f"from step {first.step} on"
    what = "" if first.quantity == WEIGHTS else f"{first.quantity} "
    return (
        f"{row.run.name}: differs {where}: {what}{first.difference:.1e}, tolerance "
        f"{first.tolerance:.1e}: {_CAUSES[row.run.kind]}"
    )


def _word(done: Verification, row: ComparedRun) -> str:
    first = done.excess(row)
    beyond = first and (f"differs at step {first.step}" if first.step else "weights differ")
    words = (
        "refused" if row.result.refusal else "",
        "reference" if row is done.reference else "",
        "sets the tolerance" if row.run.kind == "twin" else "",
        beyond or "",
        "not judged" if done.announced or done.twin is None else "",
    )
    return next(filter(None, words), "within")


def _numbers(largest: dict[str, float | None]) -> list[str]:
    found = [largest.get(quantity) for quantity in QUANTITIES]
    return [_MARK if far is None else "0" if far == 0 else f"{far:.1e}" for far in found]
