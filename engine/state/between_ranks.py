"""Values that ranks build differently at the start of a run.

Numbers, tensors, generators and containers of plain values are compared, and whether a rank has a
value at all. Text is not compared: it is mostly a path.

Not here: whether the training reads them (``engine.preflight.effects``).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.state.forms import Form, form_of, is_constant
from lockstep.engine.state.places import delete_child
from lockstep.engine.state.restore import Restoring
from lockstep.engine.state.stored import UnsavableError
from lockstep.engine.state.values import bytes_of
from lockstep.engine.state.walk import OWN, Entry, Walk

BYTES_MAX: Final = 1 << 26
"""Bytes of a value beyond which it is not sent to rank 0."""
_ABSENT: Final = "absent"
_Marks = Mapping[str, list[str]]
"""Name → mark and name of the owner; no mark for what is not compared."""


@dataclass(frozen=True)
class RankDifference:
    """A value of rank 0 that another rank builds otherwise."""

    name: str
    form: Form | None
    """The value of the other rank, on rank 0; None if that rank lacks it."""
    shown: str
    """Both values."""

    def take(self, here: Mapping[str, Entry]) -> None:
        """Put the other rank's value in the place of this one's."""
        if self.form is not None:
            Restoring(here, {self.name: self.form}, []).run()
        elif (entry := here.get(self.name)) is not None and entry.owner is not None:
            delete_child(entry.owner, entry.key)


def differences(walk: Walk, built: Mapping[str, str], ranks: Ranks) -> list[RankDifference]:
    """Return the differences, in the same order on all ranks. All ranks must call this.

    Parameters
    ----------
    walk : Walk
    built : mapping of str to str
        Marks of the values at the start.
    ranks : Ranks
    """
    marks = {
        name: [built[name] if is_constant(entry) else "", entry.owner.name if entry.owner else ""]
        for name, entry in walk.entries.items()
        if entry.kind != OWN and name in built
    }
    if len(set(ranks.gather(zlib.crc32(repr(sorted(marks.items())).encode())))) == 1:
        return []
    every = ranks.gather(marks)
    found = _first_ranks(every)
    sent = ranks.to_first({name: _form(walk, name) for name in found})
    return [
        RankDifference(
            name,
            sent[rank][name] if sent else None,
            f"{_shown(every[0], name)} on rank 0, {_shown(every[rank], name)} on rank {rank}",
        )
        for name, rank in found.items()
        if not sent or name not in every[rank] or sent[rank][name] is not None
    ]


def _first_ranks(every: list[dict[str, list[str]]]) -> dict[str, int]:
    """Return name → the first rank whose value differs from that of rank 0."""
    found = {}
    for name in sorted({name for each in every for name in each}):
        mine, *others = [each.get(name) for each in every]
        rank = next((rank for rank, other in enumerate(others, 1) if other != mine), 0)
        if rank and _is_comparable(every[0], every[rank], name):
            found[name] = rank
    return found


def _is_comparable(first: _Marks, other: _Marks, name: str) -> bool:
    """Return whether the other's value can take the place of the first rank's."""
    if name in first and name in other:
        return bool(first[name][0] and other[name][0])
    there, lacking = (first, other) if name in first else (other, first)
    mark, owner = there[name]
    # Without its owner, the owner is the difference. An object cannot be made elsewhere.
    return owner in lacking and (name in first or bool(mark))


def _form(walk: Walk, name: str) -> Form | None:
    entry = walk.entries.get(name)
    if entry is None or bytes_of(entry.value) > BYTES_MAX:
        return None
    try:
        return form_of(entry, walk)
    except UnsavableError:
        return None


def _shown(marks: _Marks, name: str) -> str:
    return (marks[name][0] or "an object") if name in marks else _ABSENT
