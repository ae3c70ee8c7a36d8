"""Process groups of a run whose copies of the model are cut over several ranks.

``world`` is every rank: launcher, control operation and checkpoints use it. ``data`` are the ranks
that hold the same slices of other copies: they share the samples of a batch, and strategies see
them alone. The ranks of a tensor group hold the slices of one copy, and have equal samples. Without
a cut, ``data`` is ``world``.

Not here: the places of ranks (``domain.training.layout``), the messages of a tensor group
(``engine.parallel.collectives``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch.distributed as dist

from lockstep.domain.spec.parallel import Parallel
from lockstep.domain.training.layout import RankLayout, RankPlace
from lockstep.engine.runtime.device import is_accelerator
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import Ranks


@dataclass(frozen=True)
class Mesh:
    """This rank among the others, by what they share."""

    layout: RankLayout
    world: Ranks
    data: Ranks
    tensor: dist.ProcessGroup | None = None
    """Ranks that hold one copy of the model; None if each rank holds a whole one."""

    @classmethod
    def whole(cls, ranks: Ranks) -> Mesh:
        """Return the mesh of ranks that hold a whole model each."""
        return cls(RankLayout(ranks.world_size), ranks, ranks)

    @property
    def place(self) -> RankPlace:
        """Place of this rank."""
        return self.layout.place(self.world.rank)

    @property
    def counts(self) -> bool:
        """True on the rank that reports weights and losses for its copy of the model."""
        return self.layout.counts(self.world.rank)


def mesh_of(ranks: Ranks, parallel: Parallel) -> Mesh:
    """Return the mesh of a run, with its groups. All ranks must call this.

    Raises
    ------
    EngineError
        ``bad_spec``, if a copy of the model would be incomplete.
    """
    try:
        layout = RankLayout.of(ranks.world_size, parallel.tensor_size, parallel.pipeline or 1)
    except ValueError as error:
        raise BadSpecError(f"{error}: start another number of ranks") from None
    if parallel.ranks_per_copy == 1:
        return Mesh.whole(ranks)
    place = layout.place(ranks.rank)
    return Mesh(
        layout,
        ranks,
        _data_ranks(ranks, layout, place),
        _member_of(_groups(ranks, layout.tensor_groups(), None), ranks.rank),
    )


def _data_ranks(ranks: Ranks, layout: RankLayout, place: RankPlace) -> Ranks:
    """Return the ranks with the same slices, as strategies see them."""
    if layout.copies == 1:
        return Ranks(local_rank=ranks.local_rank, device=ranks.device, patience=ranks.patience)
    names = _processes(ranks)
    device_groups = _groups(ranks, layout.data_groups(), None)
    host_groups = device_groups
    if is_accelerator(ranks.device):
        host_groups = _groups(ranks, layout.data_groups(), "gloo")
    return replace(
        ranks,
        rank=place.copy,
        world_size=layout.copies,
        host_group=_member_of(host_groups, ranks.rank),
        device_group=_member_of(device_groups, ranks.rank),
        stream_group=None,
        alike=tuple(tuple(names[rank] for rank in members) for members in layout.data_groups()),
    )


Groups = Sequence[tuple[tuple[int, ...], dist.ProcessGroup | None]]
"""Members of each group, and the group on a member."""


def _groups(ranks: Ranks, members: list[tuple[int, ...]], backend: str | None) -> Groups:
    """Make groups, in the same order on all ranks. A group of all ranks is there already."""
    if len(members) == 1:
        return [(members[0], ranks.device_group)]
    names = _processes(ranks)
    return [
        (
            each,
            dist.new_group([names[rank] for rank in each], timeout=ranks.patience, backend=backend),
        )
        for each in members
    ]


def _processes(ranks: Ranks) -> list[int]:
    """Return the process of each rank, as torch counts them."""
    assert ranks.device_group is not None, "several ranks have a group"
    return dist.get_process_group_ranks(ranks.device_group)


def _member_of(groups: Groups, rank: int) -> dist.ProcessGroup | None:
    return next(group for members, group in groups if rank in members)
