"""The short runs of a verification, as documents to submit.

Not here: their order (``domain.verify.session``), their execution (``client.verifying``,
``engine.verify.local``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from lockstep.domain.job_environment import VERIFY
from lockstep.domain.training.short_run import short_document
from lockstep.domain.verify import orders
from lockstep.domain.verify.layouts import Layout

STEPS_MIN: Final = 4
"""A checkpoint, a step that is lost by the kill, and steps after it."""
PURPOSE: Final = "verify"
"""Label of the runs; its value is the job's name."""


class Run(NamedTuple):
    """One short run."""

    name: str
    kind: Literal["layout", "twin", "killed", "moved"]
    """``killed`` is killed after half of its steps and resumed; ``moved`` resumes the killed run in
    another layout; ``twin`` starts one unit in the last place away."""
    layout: Layout
    document: dict[str, Any]


@dataclass(frozen=True)
class Runs:
    """The runs of one job."""

    document: dict[str, Any]
    steps: int

    @property
    def checkpoint_step(self) -> int:
        """Step of the checkpoint from which the killed run resumes."""
        return self.steps // 2

    def plain(self, layout: Layout) -> Run:
        """The job in a layout."""
        return Run(str(layout), "layout", layout, self._document(layout, "on"))

    def twin(self, layout: Layout) -> Run:
        """The same, with other last digits of the first weights."""
        document = self._document(layout, "twin", orders.ULP)
        return Run(f"{layout}, one ulp away", "twin", layout, document)

    def killed(self, layout: Layout) -> Run:
        """The same, with SIGKILL to every rank and a resume in the same layout."""
        step = self.checkpoint_step + 1
        document = self._document(layout, "killed", orders.kill_after(step))
        document["retry"] = {"max": 1}
        # In the background a checkpoint may be unfinished at the kill.
        document["train"]["checkpoint"] = {
            "every_steps": self.checkpoint_step,
            "background": False,
        }
        return Run(f"{layout}, killed after step {step} and resumed", "killed", layout, document)

    def moved(self, killed: Run, layout: Layout) -> Run:
        """The killed run's checkpoint, continued in another layout."""
        document = self._document(layout, "resumed", orders.RESUME)
        return Run(f"{killed.layout}, killed and resumed as {layout}", "moved", layout, document)

    def _document(self, layout: Layout, suffix: str, order: str = "") -> dict[str, Any]:
        document = short_document(
            self.document,
            purpose=PURPOSE,
            suffix=f"{suffix}-{layout.label}",
            gpus=layout.world_size,
            steps=self.steps,
        )
        if layout.world_size % (document["resources"].get("nodes") or 1):
            del document["resources"]["nodes"]
        document["train"]["batch"]["micro_size"] = layout.micro_size
        if order:
            document["env"] = {**(document.get("env") or {}), VERIFY: order}
        return document
