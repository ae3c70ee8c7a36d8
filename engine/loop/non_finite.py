"""Reaction to a step whose loss or gradient is not finite (contract C17).

Such a step changes nothing.

The update itself checks: on the CPU before it starts, on CUDA on the device, where the kernel
leaves parameters, moments and counters unchanged without the host waiting
(``engine.step.optimizer``). This module checks the numbers when they have arrived on the host, on
CUDA one step later. They are equal on all ranks, so all ranks take the same decision.

Both numbers are checked in every step, because a loss may be finite and its gradient not (a square
root at 0).

Not here: an infinity that a smaller loss scale removes (``engine.model.precision``).
"""

from __future__ import annotations

import math
from typing import Final, Literal

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.loop.report import StepReport
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.telemetry import Telemetry

Policy = Literal["stop", "skip"]

SKIPPED_IN_A_ROW_MAX: Final = 100
"""Limit of consecutive skipped steps. No batch can repair the weights of such a run."""
_BEFORE_ANY_UPDATE: Final = (
    ", before any update: check the samples of the first batch for NaN and infinity, and loss() "
    "for a logarithm of 0 or a division by 0"
)


class NonFinite:
    """The policy of one run.

    Parameters
    ----------
    policy : str
        As the spec has it.
    telemetry : Telemetry
    """

    def __init__(self, policy: Policy, telemetry: Telemetry):
        self._policy, self._telemetry = policy, telemetry
        self._judged = 0
        self._skipped = 0
        self._in_a_row = 0

    def judge(self, report: StepReport) -> None:
        """Stop the run at a step that is not finite, or log that it was skipped.

        Equal on all ranks.

        On CUDA this waits for the step's values. Further calls for the same step do nothing.
        """
        if report.step <= self._judged:
            return
        self._judged = report.step
        what = _what(report)
        if what is None:
            self._in_a_row = 0
            return
        self._skipped += 1
        self._in_a_row += 1
        if self._policy == "skip" and self._in_a_row < SKIPPED_IN_A_ROW_MAX:
            # At the 1st, 2nd, 4th, 8th …, to keep the log of a run that skips every other step
            # readable.
            if self._skipped & (self._skipped - 1) == 0:
                self._telemetry.warn(
                    f"{what}: the step is skipped, the {_ordinal(self._skipped)} so far"
                )
            return
        self._telemetry.record(report.step, report.results())
        if self._policy == "skip":
            what += f", as in the previous {SKIPPED_IN_A_ROW_MAX - 1} steps: skipping does not help"
        raise EngineError(Reason.NON_FINITE, what)


def _what(report: StepReport) -> str | None:
    """Return the names of a step's values that are not finite; None if all are."""
    loss, norm = report.loss(), report.grad_norm()
    if loss is not None and not math.isfinite(loss):
        return f"the loss of step {report.step} is {loss}" + (
            _BEFORE_ANY_UPDATE if report.step == 1 else ""
        )
    if norm is not None and not math.isfinite(norm):
        return (
            f"the norm of the gradient of step {report.step} is {norm}, though its loss is "
            f"{loss:.6g}"
        )
    return None


def _ordinal(number: int) -> str:
    suffix = (
        {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
        if number % 100 not in {11, 12, 13}
        else "th"
    )
    return f"{number}{suffix}"
