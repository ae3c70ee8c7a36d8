"""State of one step, which is tried once or several times.

A masked sample leaves no trace in it, nor does a try of a step that is repeated, nor a step that
moves no parameter. Only what was seen to move is copied at the begin of a step: a mask or a table
of positions may be large, and stays. Where only the device knows that a step moved no parameter,
tensors alone are put back: the host does not wait to learn it.

Not here: checkpoints (``engine.state.inventory``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from torch import Tensor, nn

from lockstep.engine.state.inventory import Inventory
from lockstep.engine.state.places import get_child
from lockstep.engine.state.snapshot import Snapshot
from lockstep.engine.state.walk import (
    ATTRIBUTES,
    CONTAINERS,
    FLAT,
    OWN,
    PROTOCOL,
    Entry,
    children,
    kind_of,
)

NESTED_MAX: Final = 1_000
"""Containers inside containers that are copied in each step."""
_LASTING: Final = ATTRIBUTES | {OWN, PROTOCOL}
"""Kinds that the value alone does not tell. A list of numbers may become one of tensors."""
_NOTHING: Final = Snapshot([])


class StepState:
    """State of a step.

    Parameters
    ----------
    inventory : Inventory
    moved : iterable of str
        Names of the parameters that ``loss()`` changes by itself.
    """

    def __init__(self, inventory: Inventory, moved: Iterable[str] = ()) -> None:
        self._inventory, self._moved = inventory, frozenset(moved)
        self._moving: dict[str, Entry] = {}
        self._warm = False
        self._step: int | None = None
        self._before = _NOTHING

    @contextmanager
    def warm_up(self, keep: frozenset[str] = frozenset()) -> Iterator[None]:
        """Put everything back at the end, and note what has changed.

        Parameters of the model are left out, unless ``loss()`` changes them. Objects named in
        ``keep`` stay if the passes make them: a checkpoint has their contents. A second warm-up,
        during training, leaves alone what did not move in the first: the loader's thread may
        change it meanwhile.
        """
        if self._warm:
            with self.unchanged():
                yield
            return
        self._warm = True
        before = Snapshot(
            entry
            for entry in self._inventory.walk().values()
            if not is_trained(entry) or entry.name in self._moved
        )
        try:
            yield
        finally:
            self.watch(before.changes())
            before.put_back(keep=keep)

    @property
    def moving(self) -> list[str]:
        """Names of what was seen to move."""
        return sorted(self._moving)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Put back at the end what moves."""
        before = self._now()
        try:
            yield
        finally:
            before.put_back()

    def watch(self, entries: Iterable[Entry]) -> None:
        """From now on, these entries are state of a step."""
        self._moving |= {entry.name: entry for entry in entries}

    def begin(self, step: int) -> None:
        """A try of ``step`` begins.

        The first finds the state as it is, every other one as the first did.
        """
        if step == self._step:
            self._before.put_back()
        else:
            self._step, self._before = step, self._now()

    def end(self, *, refused: bool | Tensor) -> None:
        """End the step. If it was refused, restore the state."""
        if refused is not False:
            self._before.put_back(where=None if refused is True else refused)

    def at_begin(self, step: int) -> Snapshot | None:
        """Return the state at the begin of ``step``, if that step is under way."""
        return self._before if step == self._step else None

    def _now(self) -> Snapshot:
        if not self._moving:
            return _NOTHING
        entries = [_as_it_is(entry) for entry in self._moving.values()]
        slots = [e for e in entries if e.owner is not None and e.owner.kind in ATTRIBUTES]
        return Snapshot([*entries, *islice(_containers(entries), NESTED_MAX)], slots=slots)


def _containers(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Yield the containers inside containers, which may be younger than the warm-up."""
    waiting = deque(entry for entry in entries if entry.kind in CONTAINERS)
    while waiting:
        owner = waiting.popleft()
        for key, end, value in children(owner):
            kind = kind_of(value)
            if kind in CONTAINERS or kind == FLAT:
                entry = Entry(f"{owner.name}{end}", owner, key, value, kind)
                yield entry
            if kind in CONTAINERS:
                waiting.append(entry)


def _as_it_is(entry: Entry) -> Entry:
    """Return an entry with the value that its place has now."""
    value = entry.value
    if entry.owner is not None and entry.owner.kind in ATTRIBUTES:
        value = get_child(entry.owner, entry.key)
    kind = entry.kind if value is entry.value and entry.kind in _LASTING else kind_of(value)
    return Entry(entry.name, entry.owner, entry.key, value, kind)


def is_trained(entry: Entry) -> bool:
    """Return whether an entry is a parameter of the model, trainable or not."""
    return entry.kind == OWN and isinstance(entry.value, nn.Parameter)
