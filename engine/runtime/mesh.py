"""Process groups of a run whose copies of the model are cut over several ranks.

``world`` is every rank: launcher, control operation and checkpoints use it. ``data`` are the ranks
that hold the same slices of other copies: they share the samples of a batch, and strategies see
them alone. The ranks of a tensor group hold the slices of one copy, and have equal samples; so have
those of a line, which hold its stages. ``stage`` are the ranks of one stage, whose parameters are
comparable. Without a cut, ``data`` and ``stage`` are ``world``.

Not here: the places of ranks (``domain.training.layout``), the messages of a tensor group
(``engine.parallel.collectives``) and of a line (``engine.parallel.links``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch.distributed as dist

from lockstep.domain.spec.parallel import Parallel
from lockstep.domain.training.layout import RankLayout, RankPlace
from lockstep.engine.runtime.device import is_accelerator
from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import P, Ranks


@dataclass(frozen=True)
class StageLine:
    """Groups of the ranks that hold the stages of one copy, in the order of the stages.

    Activations and gradients have groups of their own, so that no order of messages can wait in a
    cycle.
    """

    activations: dist.ProcessGroup
    gradients: dist.ProcessGroup
    host: dist.ProcessGroup
    """Gloo, for shapes and for tensors on the host; on the CPU the group of the activations."""
    host_gradients: dist.ProcessGroup


@dataclass(frozen=True)
class Mesh:
    """This rank among the others, by what they share."""

    layout: RankLayout
    world: Ranks
    data: Ranks
    tensor: dist.ProcessGroup | None = None
    """Ranks that share each layer of one copy of the model; None if none is shared."""
    tensor_on_host: dist.ProcessGroup | None = None
    """The same ranks, for tensors on the host."""
    stage: Ranks | None = None
    """Ranks of the same stage; None without a pipeline."""
    line: StageLine | None = None
    """Stages of the same copy; None without a pipeline."""

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
        """True on the rank that reports weights for its copy of the model."""
        return self.layout.counts(self.world.rank)

    @property
    def counts_losses(self) -> bool:
        """True on the rank that reports losses for its copy of the model."""
        return self.layout.counts_losses(self.world.rank)

    @property
    def cuts(self) -> bool:
        """True if a copy of the model takes several ranks."""
        return self.layout.ranks_per_copy > 1

    def from_last_stage(self, value: P) -> P:
        """Return the value of the first rank of the last stage. All ranks must call this."""
        if self.line is None:
            return value
        return self.world.gather(value)[self.layout.rank(RankPlace(self.layout.pipeline - 1, 0, 0))]

    def groups_of_stages(
        self, stages: tuple[int, ...], *, on_host: bool = False
    ) -> dist.ProcessGroup | None:
        """Make a group of some stages for each line, and return this rank's, if it has one.

        All ranks must call this, in the same order.
        """
        backend = "gloo" if on_host else None
        groups = _new_groups(self.world, self.layout.lines(stages), backend)
        return next((group for members, group in groups if self.world.rank in members), None)


def mesh_of(ranks: Ranks, parallel: Parallel) -> Mesh:
    """Return the mesh of a run, with its groups. All ranks must call this.

    Raises
    ------
    EngineError
        ``bad_spec``, if a copy of the model would be incomplete.
    """
    try:
        layout = RankLayout.of(ranks.world_size, parallel.tensor_size, parallel.stages)
    except ValueError as error:
        raise BadSpecError(f"{error}: start another number of ranks") from None
    if parallel.ranks_per_copy == 1:
        return Mesh.whole(ranks)
    place, stage, line = layout.place(ranks.rank), None, None
    tensor = on_host = None
    data = _some_of(ranks, layout.data_groups())
    if layout.tensor > 1:
        tensor = on_host = _member_of(_groups(ranks, layout.tensor_groups(), None), ranks.rank)
        if is_accelerator(ranks.device):
            on_host = _member_of(_new_groups(ranks, layout.tensor_groups(), "gloo"), ranks.rank)
    if layout.pipeline > 1:
        assert place.copy == data.rank
        stage = data if layout.tensor == 1 else _some_of(ranks, layout.stage_groups())
        line = _line(ranks, layout)
    return Mesh(layout, ranks, data, tensor, on_host, stage, line)


def _some_of(ranks: Ranks, members: list[tuple[int, ...]]) -> Ranks:
    """Return this rank among those of its group, as if these were all."""
    mine = next(each for each in members if ranks.rank in each)
    if len(mine) == 1:
        return Ranks(local_rank=ranks.local_rank, device=ranks.device, patience=ranks.patience)
    names = _processes(ranks)
    device_groups = _groups(ranks, members, None)
    host_groups = device_groups
    if is_accelerator(ranks.device):
        host_groups = _groups(ranks, members, "gloo")
    return replace(
        ranks,
        rank=mine.index(ranks.rank),
        world_size=len(mine),
        host_group=_member_of(host_groups, ranks.rank),
        device_group=_member_of(device_groups, ranks.rank),
        stream_group=None,
        alike=tuple(tuple(names[rank] for rank in each) for each in members),
    )


def _line(ranks: Ranks, layout: RankLayout) -> StageLine:
    """Return the groups of this rank's line."""
    lines = layout.lines()
    on_device = [_member_of(_new_groups(ranks, lines, None), ranks.rank) for _ in range(2)]
    on_host = on_device
    if is_accelerator(ranks.device):
        on_host = [_member_of(_new_groups(ranks, lines, "gloo"), ranks.rank) for _ in range(2)]
    activations, gradients, host, host_gradients = (*on_device, *on_host)
    assert activations is not None
    assert gradients is not None
    assert host is not None
    assert host_gradients is not None
    return StageLine(activations, gradients, host, host_gradients)


Groups = Sequence[tuple[tuple[int, ...], dist.ProcessGroup | None]]
"""Members of each group, and the group on a member."""


def _groups(ranks: Ranks, members: list[tuple[int, ...]], backend: str | None) -> Groups:
    """Make groups, in the same order on all ranks. A group of all ranks is there already."""
    if len(members) == 1:
        return [(members[0], ranks.device_group)]
    return _new_groups(ranks, members, backend)


def _new_groups(ranks: Ranks, members: list[tuple[int, ...]], backend: str | None) -> Groups:
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
