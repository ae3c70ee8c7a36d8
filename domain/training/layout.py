"""Layout of a run: the place of each rank among copies of the model, stages and tensor groups.

Ranks of a tensor group are neighbours, because they exchange most; stages of a pipeline are
farthest apart, because they exchange least. Only the copies share the samples of a batch.

Not here: the process groups (``engine.runtime.mesh``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class RankPlace(NamedTuple):
    """Place of one rank."""

    stage: int
    copy: int
    """Copy of the model: the rank's index among those that share the batch."""
    tensor: int
    """Index of the rank's slices."""


@dataclass(frozen=True)
class RankLayout:
    """Copies × tensor × pipeline ranks."""

    copies: int
    tensor: int = 1
    pipeline: int = 1

    @classmethod
    def of(cls, world_size: int, tensor: int = 1, pipeline: int = 1) -> RankLayout:
        """Return the layout of so many ranks.

        Raises
        ------
        ValueError
            If the last copy of the model would be incomplete.
        """
        copies, left = divmod(world_size, tensor * pipeline)
        if left or not copies:
            raise ValueError(
                f"{world_size} ranks are no multiple of tensor × pipeline ({tensor * pipeline}), "
                "so a copy of the model would be incomplete"
            )
        return cls(copies, tensor, pipeline)

    @property
    def ranks_per_copy(self) -> int:
        return self.tensor * self.pipeline

    @property
    def world_size(self) -> int:
        return self.copies * self.ranks_per_copy

    def place(self, rank: int) -> RankPlace:
        """Return the place of a rank."""
        line, tensor = divmod(rank, self.tensor)
        stage, copy = divmod(line, self.copies)
        return RankPlace(stage, copy, tensor)

    def rank(self, place: RankPlace) -> int:
        """Return the rank at a place."""
        return (place.stage * self.copies + place.copy) * self.tensor + place.tensor

    def counts(self, rank: int) -> bool:
        """Return whether this rank reports the weights of its copy, as its first one."""
        place = self.place(rank)
        return place.stage == 0 and place.tensor == 0

    def counts_losses(self, rank: int) -> bool:
        """Return whether this rank reports the losses of its copy: the last stage has them."""
        place = self.place(rank)
        return place.stage == self.pipeline - 1 and place.tensor == 0

    def tensor_groups(self) -> list[tuple[int, ...]]:
        """Return the ranks of each tensor group: they hold slices of the same layers."""
        return [
            tuple(range(first, first + self.tensor))
            for first in range(0, self.world_size, self.tensor)
        ]

    def data_groups(self) -> list[tuple[int, ...]]:
        """Return the ranks of each data group: they hold the same slices of other copies."""
        return [
            tuple(self.rank(RankPlace(stage, copy, tensor)) for copy in range(self.copies))
            for stage in range(self.pipeline)
            for tensor in range(self.tensor)
        ]

    def copy_groups(self) -> list[tuple[int, ...]]:
        """Return the ranks of each copy of the model: they have equal samples."""
        return [
            tuple(
                self.rank(RankPlace(stage, copy, tensor))
                for stage in range(self.pipeline)
                for tensor in range(self.tensor)
            )
            for copy in range(self.copies)
        ]

    def stage_groups(self) -> list[tuple[int, ...]]:
        """Return the ranks of each stage: they hold the same layers, or slices of them."""
        size = self.copies * self.tensor
        return [tuple(range(first, first + size)) for first in range(0, self.world_size, size)]

    def lines(self, stages: tuple[int, ...] | None = None) -> list[tuple[int, ...]]:
        """Return the ranks of each line: they hold the same slices of stage after stage.

        Parameters
        ----------
        stages : tuple of int, optional
            Stages to take; all by default.
        """
        return [
            tuple(self.rank(RankPlace(stage, copy, tensor)) for stage in stages)
            for stages in [range(self.pipeline) if stages is None else stages]
            for copy in range(self.copies)
            for tensor in range(self.tensor)
        ]
