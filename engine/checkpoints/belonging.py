"""Comparison of a checkpoint with the run that resumes from it: batch, seed, model and dataset.

Not here: training fields that may change (``engine.checkpoints.changes``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from lockstep.engine.checkpoints.contents import State
from lockstep.engine.data import fingerprint
from lockstep.engine.data.fingerprint import Samples
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import Ranks


class RunIdentity:
    """The facts of a run that its checkpoints share.

    Parameters
    ----------
    values : mapping
        Decide which samples a step holds: batch size, seed, size of the dataset.
    samples : mapping
        Fingerprints of some samples (``engine.data.fingerprint.samples_of``).
    read_again : callable
        Computes the fingerprints of the same samples once more.
    ranks : Ranks
    warn : callable
    """

    def __init__(
        self,
        values: dict[str, Any],
        samples: Samples,
        read_again: Callable[[], Samples],
        ranks: Ranks,
        warn: Callable[[str], None],
    ):
        self.values, self.samples = values, samples
        self._read_again, self._ranks, self._warn = read_again, ranks, warn

    def require_same(self, name: str, state: State, model: nn.Module) -> None:
        """Raise if a checkpoint belongs to another run, with the differences.

        All ranks must call this.

        Raises
        ------
        EngineError
            ``bad_spec``.
        """
        there = state["identity"]
        wrong = [
            f"{key} {there.get(key)!r}, now {value!r}"
            for key, value in self.values.items()
            if there.get(key) != value
        ]
        if wrong:
            raise BadSpecError(f"the checkpoint {name} belongs to another run: {'; '.join(wrong)}")
        wrong = fingerprint.differences(state["model"], model.state_dict(), formats=True)
        if wrong:
            raise BadSpecError(
                f"the checkpoint {name} belongs to another model: {fingerprint.sentence(wrong)}",
            )
        # Rank 0 checks the samples for all ranks.
        wrong = self._ranks.from_first(
            self._other_samples(state.get("samples", {})) if self._ranks.first else []
        )
        if wrong:
            raise BadSpecError(
                f"the checkpoint {name} belongs to another dataset: {fingerprint.sentence(wrong)}",
            )

    def _other_samples(self, there: Samples) -> list[str]:
        wrong = fingerprint.other_samples(there, self.samples)
        if wrong and fingerprint.other_samples(self._read_again(), self.samples):
            self._warn(
                "a sample of the dataset differs each time it is fetched: the dataset cannot be "
                "compared with the checkpoint's, and the run is not repeatable"
            )
            return []
        return wrong
