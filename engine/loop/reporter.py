"""Schedule of the checks and reports of steps.

On the CPU a step's values are available at once: it is checked before its update and reported at
its end. On CUDA they are read after the launch of the next step, so a report waits for one step;
the rest of the loop must not wait for it.

The metrics of a step are written before its checkpoint. A run that dies right after the checkpoint
resumes behind this step and would otherwise never report it. Only its times wait for the
checkpoint.

Not here: the values (``engine.loop.report``), the files (``engine.runtime.telemetry``).
"""

from __future__ import annotations

from lockstep.engine.loop.non_finite import NonFinite
from lockstep.engine.loop.report import StepReport
from lockstep.engine.runtime.telemetry import Telemetry


class StepReporter:
    """Checks and reports the steps of one rank's run.

    Parameters
    ----------
    telemetry : Telemetry
    non_finite : NonFinite
        Reaction to a step that is not finite.
    late : bool
        True if values are read one step later.
    """

    def __init__(self, telemetry: Telemetry, non_finite: NonFinite, *, late: bool):
        self._telemetry, self._non_finite = telemetry, non_finite
        self._late = late
        self.loss: float | None = None
        """Of the last reported step."""
        self._steps = 0
        self._pending: StepReport | None = None
        self._pending_due = False
        self._updated: StepReport | None = None

    def begin(self, steps: int) -> None:
        """Set the number of steps of the run."""
        self._steps = steps

    def before_update(self, report: StepReport) -> None:
        """End the run over a step that is not finite, where its values are there already.

        Equal on all ranks.
        """
        if not self._late:
            self._non_finite.judge(report)

    def updated(self, report: StepReport, *, due: bool) -> None:
        """The step has moved the weights; until its line is written, ``write_unwritten`` would."""
        self._updated = report if due else None

    def write_pending(self) -> None:
        """Check the step whose values have arrived on the host, and report it if it is due."""
        report, self._pending = self._pending, None
        if report is None:
            return
        self._non_finite.judge(report)
        if self._pending_due:
            self._telemetry.record(report.step, report.results() | report.times())
            self._updated = None if self._updated is report else self._updated
            self._log_line(report)

    def before_checkpoint(self, report: StepReport, *, due: bool) -> dict[str, float]:
        """Judge the step, write its results if it is due, and return them."""
        self._non_finite.judge(report)
        results = report.results()
        if due:
            self._telemetry.record(report.step, results)
        self._updated = None
        return results

    def finish(self, report: StepReport, *, due: bool, saved: bool) -> None:
        """The step is over, its times included.

        ``saved`` where ``before_checkpoint`` has written its results.
        """
        if not saved:
            self._pending, self._pending_due = report, due
        elif due:
            self._telemetry.record(report.step, report.times())
            self._log_line(report)
        if not self._late:
            self.write_pending()

    def write_unwritten(self) -> None:
        """Write the results of steps that were done and not reported.

        Called where the loop is stuck, or has failed.
        """
        pending = self._pending if self._pending_due else None
        unwritten = {
            report.step: report for report in (pending, self._updated) if report is not None
        }
        for step, report in unwritten.items():
            self._telemetry.record(step, report.results())

    def _log_line(self, report: StepReport) -> None:
        self.loss = report.loss()
        ends = report.step in {1, self._steps}
        if not self._telemetry.line_is_due(always=ends or bool(report.evaluated)):
            return
        loss = "none (no weight)" if self.loss is None else f"{self.loss:.4f}"
        speed = report.times().get("throughput/samples_per_second", 0.0)
        text = (
            f"step {report.step}/{self._steps}  loss {loss}  lr {report.lr:.3g}  {speed:,.1f} "
            f"samples/s"
        )
        self._telemetry.log_line(
            text + "".join(f"  eval/{name} {value:.4f}" for name, value in report.evaluated.items())
        )
