"""Memory of one rank by purpose: the forecast of a plan, and its text.

Not here: the computation (``engine.memory``), the request for it before a run
(``domain.training.predicted``).
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import BaseModel, Field, computed_field

from lockstep.domain.schema_docs import Described

Bytes = Annotated[int, Field(ge=0)]
_SHOWN_SHARE_MIN: Final = 0.005
"""Parts below half a percent of the peak are not worth a word."""
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


class StageForecast(Described, BaseModel, frozen=True):
    """One stage of a pipeline."""

    blocks: Annotated[int, Field(ge=0)]
    """Blocks of the model that it has."""
    peak: Bytes
    """Bytes that the tensors of one of its ranks hold at the fullest moment of a step."""


class MemoryForecast(Described, BaseModel, frozen=True):
    """Bytes that one rank's tensors hold at the fullest moment of a step.

    The parts add up to the peak. In a pipeline they are those of the stage with the largest peak.

    A part can be zero because it is not there *at that moment*: where a step is fullest in the
    middle of its first backward, hardly a gradient exists yet, and where it is fullest in the
    optimizer, no activation exists any more.
    """

    weights: Bytes
    """The model's parameters."""
    buffers: Bytes
    """The model's buffers, such as running statistics."""
    gradients: Bytes
    """Gradients between backward and the optimizer."""
    optimizer: Bytes
    """The optimizer's state."""
    activations: Bytes
    """The micro-batch, and the activations that forward keeps for backward."""
    temporary: Bytes
    """Gradients of activations, and temporary memory of the optimizer."""
    buckets: Bytes
    """Copies of the gradients that are on their way between ranks."""
    stages: tuple[StageForecast, ...] = ()
    """Stages of the pipeline, in their order; empty without one."""

    @computed_field  # type: ignore[prop-decorator] # mypy supports no decorator above a property; pydantic's is meant there
    @property
    def peak(self) -> int:
        """All parts together."""
        return sum(self._parts().values())

    def sentence(self) -> str:
        """The forecast in words.

        "about 1.9 GiB per rank (optimizer 1.0, weights 0.5, activations 0.4)". In a pipeline:
        "about 31.0 GiB on stage 0 (optimizer 20.4, …); by stage 31.0, 28.5".
        """
        power = _power(self.peak)
        shown = [
            f"{name} {bytes_ / 1024**power:.1f}"
            for name, bytes_ in sorted(self._parts().items(), key=lambda item: -item[1])
            if bytes_ > _SHOWN_SHARE_MIN * self.peak
        ]
        where = "per rank"
        if self.stages:
            where = f"on stage {self.largest_stage}"
        found = f"about {self.peak / 1024**power:.1f} {_UNITS[power]} {where} ({', '.join(shown)})"
        if self.stages:
            peaks = ", ".join(f"{stage.peak / 1024**power:.1f}" for stage in self.stages)
            found += f"; by stage {peaks}"
        return found

    @property
    def largest_stage(self) -> int:
        """Index of the stage that needs the most memory; 0 without a pipeline."""
        peaks = [stage.peak for stage in self.stages]
        return peaks.index(max(peaks)) if peaks else 0

    def on_stage(self, stage: int) -> int:
        """Return the peak of a rank of a stage."""
        return self.stages[stage].peak if self.stages else self.peak

    @classmethod
    def parts(cls) -> list[str]:
        """Return the names of the parts."""
        return [name for name in cls.model_fields if name != "stages"]

    def _parts(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in self.parts()}


class PlannedMemory(Described, BaseModel, frozen=True):
    """Memory that each rank of a planned job would need, and the memory of its device."""

    state: Literal["known", "computing", "unknown"]
    """``computing``: ask again in a moment."""
    source: Literal["task", "code", "history"] | None = None
    """``task``: computed from the built-in task. ``code``: computed from the code of your own task.
    ``history``: measured in an earlier job with the same task and size. Null if there is no
    forecast."""
    job: str | None = None
    """The earlier job."""
    measured_bytes: Bytes | None = None
    """Memory of rank 0 of the earlier job, if it was measured."""
    forecast: MemoryForecast | None = None
    why: str | None = None
    """Reason for a missing forecast."""
    micro_batch_size: int | None = None
    """Samples in one forward and backward that the forecast is for; with ``micro_size: auto`` the
    largest that fits."""
    micro_batch_size_max: int | None = None
    """Largest of the sizes that ``micro_size: auto`` tries which fits; 0 if none does; null where
    that is not known."""
    device_type: str | None = None
    """The type with the least memory of those that the job may get; null where no node is
    registered."""
    capacity_bytes: Bytes | None = None
    """Memory of one such device; of a CPU slot, its part of the host's. Null if unknown."""
    headroom: float = 0.0
    """Fraction of it that stays free for memory that a forecast does not count."""

    def sentence(self) -> str:
        """Return a sentence about a rank's memory and its source."""
        if self.state == "computing":
            return "the forecast is being computed; plan again in a few seconds"
        if self.forecast is None:
            return f"no forecast: {self.why}"
        samples = f" with micro-batches of {self.micro_batch_size}" if self.micro_batch_size else ""
        return f"{self.forecast.sentence()}{samples}, {self._source()}"

    def device_sentence(self) -> str | None:
        """Return a sentence about the device's memory and limit; None if it is unknown."""
        if self.capacity_bytes is None:
            return None
        has = f"{in_words(self.capacity_bytes)} on each {self.device_type}"
        most = self.micro_batch_size_max
        if most is None:
            return has
        if most == 0:
            return f"{has}: no micro-batch fits, not even one sample"
        only = "only " if self.micro_batch_size is not None and self.micro_batch_size > most else ""
        return f"{has}: {only}micro-batches of up to {most} fit"

    def _source(self) -> str:
        if self.source == "history":
            took = (
                f", which took {in_words(self.measured_bytes)}"
                if self.measured_bytes is not None
                else ""
            )
            return f"as forecast for job {self.job}{took}"
        return "computed from your code" if self.source == "code" else "computed from the task"


def in_words(bytes_: float) -> str:
    """A number of bytes: "1.9 GiB"."""
    power = _power(bytes_)
    return f"{bytes_ / 1024**power:.1f} {_UNITS[power]}"


def compared(measured: float | None, measure: str, predicted: float | None) -> str:
    """Measured peak of rank 0 beside the prediction, in words.

    Parameters
    ----------
    measured : float or None
        Bytes.
    measure : str
        The kind of measurement; where ``measured`` is None, why there is none.
    predicted : float or None
        Bytes.
    """
    forecast = f"{in_words(predicted)} predicted" if predicted is not None else "no forecast"
    if measured is None:
        return f"not measured ({measure}); {forecast}"
    return f"{in_words(measured)} at most on rank 0 ({measure}); {forecast}"


def _power(bytes_: float) -> int:
    """Return the index of the unit in which a number of bytes is printed."""
    power = 0
    while bytes_ >= 1024 and power < len(_UNITS) - 1:
        bytes_ /= 1024
        power += 1
    return power
