"""The inventory of a run's training state, and the part of it that a checkpoint holds.

The model's ``state_dict()`` holds its parameters and buffers. Everything else that a step may
change is found by a walk (``engine.state.walk``): modules and tensors of the task, buffers that are
not persistent, modes, counters, generators, containers, schedules, globals of the user's code. A
checkpoint holds what differs from the values that the run was built with. A resumed run builds the
same, and what is saved is put over it.

One list, of what could not be saved and what could not be restored, decides whether a resumed run
is exact, and is the source of each message about it.

Values that never moved are not restored, so that a user may change a number in the code before a
resume; the difference is named. Text that never moved is not compared: it is mostly a path.

Not here: the walk and its rules (``engine.state.walk``, ``engine.state.rules``), the state around a
step (``engine.state.step``).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from lockstep.engine.runtime.errors import BadSpecError
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.state.between_ranks import RankDifference, differences
from lockstep.engine.state.forms import (
    Form,
    Stored,
    form_of,
    identity_of,
    is_constant,
    mark_of,
    with_tuples,
)
from lockstep.engine.state.opaque import UNKNOWN
from lockstep.engine.state.parts import in_state_dict
from lockstep.engine.state.reasons import Reasons, other_value
from lockstep.engine.state.restore import Restoring
from lockstep.engine.state.rules import UserCode
from lockstep.engine.state.sharing import sharing, sharing_changed
from lockstep.engine.state.snapshot import Snapshot
from lockstep.engine.state.stored import UnsavableError, tensor_form
from lockstep.engine.state.values import bytes_of, mark
from lockstep.engine.state.walk import (
    ATTRIBUTES,
    CONTAINERS,
    NAMESPACE,
    OUT,
    OWN,
    TASK,
    TENSOR,
    Entry,
    Walk,
)
from lockstep.engine.task.interface import Task

STORED_BYTES_MAX: Final = 1 << 30
"""Bytes of one checkpoint for values beside ``state_dict()``."""


class Inventory:
    """State of one rank, outside of the strategy and the optimizer.

    Parameters
    ----------
    model : nn.Module
        As built, before a checkpoint is loaded into it.
    task : Task
    code : Path, optional
        Folder of the job's code.
    datasets : iterable
        The run's datasets, which are left out; that of the training first.
    """

    def __init__(
        self,
        model: nn.Module,
        task: Task,
        code: Path | None = None,
        datasets: Iterable[object] = (),
    ):
        not_state: object = task.not_state
        if not isinstance(not_state, tuple | list | set | frozenset):
            raise BadSpecError(
                f"not_state of the task is {not_state!r}: write a tuple of names, such as "
                '("started", "cache")',
            )
        self.model, self.task = model, task
        self._code = UserCode(code, [task, *model.modules()])
        self.datasets = [each for each in datasets if each is not None and each is not task]
        self._unseen, self._noted = Reasons(), Reasons()
        self._named: set[str] = set()
        self._stand_ins: dict[str, Tensor] = {}
        self._built: dict[str, str] = {}
        self._shared: dict[str, str] = {}
        self._buffers: frozenset[str] = frozenset()

    def remember(self) -> None:
        """Take the state as it is for the one that each start of the run builds."""
        entries = self.walk()
        self._built = {name: mark_of(each) for name, each in entries.items() if each.kind != OWN}
        self._shared = sharing(entries)
        self._buffers = frozenset(self._own_buffers())

    def cut(self, stand_ins: Mapping[str, Tensor]) -> None:
        """From here on, these tensors stand for parameters that other ranks hold."""
        self._stand_ins = dict(stand_ins)

    def walk(self) -> dict[str, Entry]:
        """Return all entries by name, in a fixed order."""
        return self._walk(None).entries

    def _walk(self, at: Snapshot | None) -> Walk:
        """Walk through everything; structures in ``at`` are taken as they were then."""
        walk = Walk(
            self._code,
            own=in_state_dict(self.model)
            | {id(each): name for name, each in self._stand_ins.items()},
            left_out=self.datasets,
            not_state=frozenset(self.task.not_state),
            contents=None if at is None else at.contents(),
        )
        walk.root("", self.model)
        walk.root(TASK, self.task)
        for module in self._code.modules():
            walk.root(module.__name__, module)
        walk.local_classes()
        self._unseen = walk.named
        return walk

    def differences(self, ranks: Ranks) -> list[RankDifference]:
        """Return what ranks have built differently. All ranks must call this."""
        return differences(self._walk(None), self._built, ranks)

    def snapshot(self, skip: Callable[[Tensor], bool] = lambda _: False) -> Snapshot:
        """Return a copy of everything, without the tensors that ``skip`` leaves out."""
        return Snapshot(self.walk().values(), skip)

    def weights_of_task(self) -> dict[str, Tensor]:
        """Return the leaf tensors beside the model's own that can receive a gradient."""
        return {
            entry.name: entry.value
            for entry in self.walk().values()
            if entry.kind == TENSOR and entry.value.is_leaf and entry.value.requires_grad
        }

    def parameters(self) -> int:
        """Return the number of values in parameters of the model and of the task's modules."""
        found = {
            id(entry.value): entry.value.numel()
            for entry in self.walk().values()
            if isinstance(entry.value, nn.Parameter)
        }
        return sum(found.values())

    # --- saving

    def unsavable(self) -> Reasons:
        """Return what no checkpoint of this run can hold, without what :meth:`note` added."""
        return self.newly_unsaved(self._store(None).unsaved)

    def has_unsavable(self) -> bool:
        """Return whether there is something that no checkpoint can hold."""
        return bool(self._store(None).unsaved.keys() - self._noted.keys())

    def newly_unsaved(self, unsaved: Reasons) -> Reasons:
        """Return what was neither named nor added by :meth:`note` before, and take it as named."""
        found = {name: why for name, why in unsaved.items() if name not in self._named}
        self._named |= found.keys()
        return found

    def note(self, name: str, why: str) -> None:
        """Add something that no checkpoint can hold, found by other means."""
        self._noted[name] = why
        self._named.add(name)

    def stored(self, ranks: Ranks, *, together: bool = False) -> dict[str, Any]:
        """Return the document for a checkpoint. All ranks must call this; rank 0 uses the result.

        Rank 0's values are stored in full, and for each other rank those that differ.

        Parameters
        ----------
        ranks : Ranks
        together : bool
            True if all ranks save: tensors of other ranks stay there, as ``Scattered``.
        """
        mine = self._store(None)
        if ranks.world_size == 1:
            return {**mine.document(), "unsaved": mine.unsaved, "ranks": [], "alone": False}
        marks = {name: mark(form) for name, form in mine.entries.items()} | self._buffer_marks()
        every = ranks.gather((marks, mine.unsaved, _digest(mine.constants)))
        names = {
            name
            for marks, _, _ in every
            for name in marks
            if any(other.get(name) != marks[name] for other, _, _ in every)
        }
        values = self._values_of(names, mine) if names else {}
        gather = ranks.of_each if together else ranks.to_first
        others = gather(values) if names else []
        unsaved = {name: why for _, reasons, _ in every for name, why in reasons.items()}
        return {
            **mine.document(),
            "unsaved": unsaved,
            "ranks": others,
            "digests": [digest for _, _, digest in every],
            "alone": False,
        }

    def stored_alone(self, at: Snapshot | None, ranks: Ranks) -> dict[str, Any]:
        """Return the document of this rank alone, of the moment ``at``: a step is under way."""
        mine = self._store(at)
        if at is not None:
            known = at.names()
            mine.unsaved |= {
                name: "a step was under way"
                for name in mine.entries
                if name not in known and name.partition("[")[0] not in known
            }
        alone = ranks.world_size > 1
        return {**mine.document(), "unsaved": mine.unsaved, "ranks": [], "alone": alone}

    def _store(self, at: Snapshot | None) -> Stored:
        """Return what differs from the values that the run was built with, now or at ``at``."""
        walk = self._walk(at)
        entries = walk.entries
        kept = {} if at is None else at.leaves()
        found, left = self._beside(entries), STORED_BYTES_MAX
        for name, entry in entries.items():
            if entry.kind == OWN or entry.owner is None:
                continue
            content = kept.get(id(entry.value))
            now = mark_of(entry, content)
            if now == OUT:  # A file or a lock, which may have come or gone.
                continue
            if now == self._unmoved(name, found):
                if is_constant(entry):
                    found.constants[name] = now
            elif entry.kind in ATTRIBUTES and self._built.get(name, "").startswith(
                f"{entry.kind} "
            ):
                found.unsaved[name] = f"{identity_of(entry)} in place of {self._built[name]}"
            elif left < (size := bytes_of(entry.value)):
                limit = f"limit {STORED_BYTES_MAX >> 30} GiB for a checkpoint"
                found.unsaved[name] = f"{size / 1e9:.1f} GB, {limit}"
            else:
                left -= size
                try:
                    found.entries[name] = form_of(entry, walk, content)
                except UnsavableError as error:
                    found.unsaved[name] = str(error)
        flags = (f"{name}.requires_grad" for name in self._stand_ins)
        found.constants |= {name: self._built[name] for name in flags if name in self._built}
        found.entries = with_tuples(found.entries, walk)
        return found

    def _beside(self, entries: Mapping[str, Entry]) -> Stored:
        """Return what is stored about the entries as a whole."""
        shared = sharing(entries)
        changed = sharing_changed(self._shared, shared)
        return Stored(
            {},
            self._gone(entries),
            {},
            {**self._noted, **self._unseen, **changed},
            modules=self._late_modules(entries),
            parted=[name for name in self._shared if name in entries and name not in shared],
            buffers=[name for name in self._own_buffers() if name not in self._buffers],
        )

    def _unmoved(self, name: str, found: Stored) -> str | None:
        """Return the mark of a value that has not moved; None if there is none."""
        built = None if name in found.parted else self._built.get(name)
        return None if built == UNKNOWN else built

    def _late_modules(self, entries: Mapping[str, Entry]) -> list[str]:
        return [
            each.value.__name__
            for name, each in entries.items()
            if each.owner is None and each.kind == NAMESPACE and name not in self._built
        ]

    def _gone(self, entries: Mapping[str, Entry]) -> list[Form]:
        """Return the attributes that the run was built with and that were deleted since."""
        owners = {name: entry for name, entry in entries.items() if entry.kind in ATTRIBUTES}
        gone = [name for name in self._built if name not in entries]
        found = []
        for name in gone:
            owner, _, attribute = name.rpartition(".")
            if owner not in owners or not attribute.isidentifier():
                continue
            if attribute not in getattr(owners[owner].value, "__dict__", {}):
                found.append([owner, attribute])
        return found

    def _buffer_marks(self) -> dict[str, str]:
        return {f"state_dict {name}": mark(buffer) for name, buffer in self._own_buffers().items()}

    def _own_buffers(self) -> dict[str, Tensor]:
        own = in_state_dict(self.model)
        return {name: each for name, each in self.model.named_buffers() if id(each) in own}

    def _values_of(self, names: Iterable[str], mine: Stored) -> dict[str, Any]:
        """Return this rank's values; none for a name that it does not have."""
        buffers = {
            f"state_dict {name}": tensor_form(each) for name, each in self._own_buffers().items()
        }
        return {name: mine.entries.get(name, buffers.get(name)) for name in sorted(names)}

    # --- restoring

    def restore(
        self, document: Mapping[str, Any] | None, ranks: Ranks, *, trained: bool = True
    ) -> Reasons:
        """Put the state of a checkpoint over what was built, and return what could not be.

        All ranks must call this. Without ``trained``, parameters of the model keep their
        ``requires_grad``: the optimizer is built with those that the run began with.
        """
        if document is None:
            return {"state beside the weights": "the checkpoint is of a version that saved none"}
        found = self._restore_mine(document, ranks, trained=trained)
        lost: Reasons = {}
        for each in ranks.gather(found):
            lost |= each
        return {**document["unsaved"], **lost}

    def _restore_mine(self, document: Mapping[str, Any], ranks: Ranks, *, trained: bool) -> Reasons:
        entries, buffers, lost = _of_rank(document, ranks)
        if document["alone"]:
            lost |= dict.fromkeys(entries, "rank 0 saved it alone")
        lost |= self._code.bring(document.get("modules", ()))
        if not trained:
            flags = {f"{name}.requires_grad" for name, _ in self.model.named_parameters()}
            entries = {name: form for name, form in entries.items() if name not in flags}
        parted = frozenset(document.get("parted", ()))
        lost |= Restoring(self.walk(), entries, document["gone"], parted).run()
        for name, form in buffers.items():
            if form is not None:
                self._own_buffers()[name].data.copy_(form[1])
        digests = document.get("digests", [])
        if ranks.rank == 0 or len(digests) != ranks.world_size:
            lost |= self._rebuilt(document["constants"])
        elif digests[ranks.rank] != _digest(self._constants(document["constants"])):
            lost["values that are built at the start"] = f"rank {ranks.rank} builds other ones"
        return lost

    def _constants(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self._built[name] for name in names if name in self._built}

    def _rebuilt(self, constants: Mapping[str, str]) -> Reasons:
        """Return the constants that this run was built with other values of."""
        return {
            name: other_value(before, self._built[name])
            for name, before in constants.items()
            if name in self._built and self._built[name] != before
        }


def made_at_first_call(document: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the objects of a checkpoint that no start of the run builds, and their containers."""
    entries = {} if document is None else document["entries"]
    made = {name for name, (kind, *_) in entries.items() if kind in ATTRIBUTES}
    owners = {entries[name][1] for name in made}
    return frozenset(made | {name for name in owners if entries.get(name, [""])[0] in CONTAINERS})


def _of_rank(
    document: Mapping[str, Any], ranks: Ranks
) -> tuple[dict[str, Form], dict[str, Form | None], Reasons]:
    """Return entries and buffers of this rank, and what differed by rank on another number."""
    others: list[dict[str, Any]] = document["ranks"]
    entries, buffers = dict(document["entries"]), {}
    if len(others) == ranks.world_size:
        for name, form in others[ranks.rank].items():
            if name.startswith("state_dict "):
                buffers[name.removeprefix("state_dict ")] = form
            elif form is None:
                entries.pop(name, None)
            else:
                entries[name] = form
        return entries, buffers, {}
    names = {name.removeprefix("state_dict ") for other in others[:1] for name in other}
    outer = sorted({name.partition("[")[0] for name in names})
    return entries, {}, dict.fromkeys(outer, f"it differed by rank, on {len(others)} ranks")


def _digest(constants: Mapping[str, str]) -> int:
    """Return a number that differs if some constant does."""
    return zlib.crc32(repr(sorted(constants.items())).encode())
