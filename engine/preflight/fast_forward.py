"""State that calls change and read, found by putting it back and by advancing it.

A call is all that a micro-batch is computed with: ``collate``, ``weight``, ``penalty``, ``loss``
and its backward. Between three calls the weights move, the samples change, and the task evaluates,
if the run does. State that the last two calls move is compared; one that only the first moves is a
cache. Then one batch is computed again with each of these values as it was before, and with numbers
as they would be 10, 100, … 1,000,000 calls later. If the loss or a gradient changes, it reads the
value: a run then depends on the number of micro-batches before. A log of losses moves too, and is
not read. An evaluation is computed again likewise.

So a counter is found whose effect begins late, which no comparison of the first batches can see.

What the first call makes is compared after first calls with unlike samples: a cache is the same
after both, a mean of the first micro-batch is not.

Not here: the values that a task holds (``engine.state``), a loss that is not a sum over samples
(``engine.preflight.additivity_check``).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from lockstep.engine.preflight.comparison import tolerance
from lockstep.engine.preflight.read_state import ReadState
from lockstep.engine.preflight.time_limit import TooLongError, time_limit
from lockstep.engine.preflight.trial_task import Piece, TrialTask, divided
from lockstep.engine.runtime import randomness
from lockstep.engine.runtime.device import traits_of
from lockstep.engine.runtime.errors import release
from lockstep.engine.state.places import set_child
from lockstep.engine.state.snapshot import Snapshot
from lockstep.engine.state.walk import CONTAINERS, PLAIN, TENSOR, Entry
from lockstep.engine.task.interface import Task

Change = Callable[[], None]
C = TypeVar("C")
CALLS: Final = (10, 100, 1_000, 10_000, 100_000, 1_000_000)
"""Calls by which numbers are advanced."""
GROWN_MAX: Final = 10_000
"""Values by which a list grows at most."""
COUNTERS_MAX: Final = 64
"""Numbers of a tensor that are advanced, if they move by whole numbers: an average of activations
is read at once, or not at all."""
SECONDS_MAX: Final = 3.0
CALLS_MAX: Final = 20
"""A call with advanced numbers takes this many times an ordinary one, and ``SECONDS_MAX``, at
most."""
TOO_LONG_MAX: Final = 3
"""Calls beyond their limit after which no further value is tried."""
SINGLES_MAX: Final = 24
"""Values that are tried one by one. Further ones are tried together."""
_MOVED: Final = 1.01
"""Factor of the weights between the calls: a teacher that equals its student does not move."""


def read_by(
    trial: TrialTask, samples: list[Any], *, seed: int, evaluates: bool
) -> tuple[ReadState, ...]:
    """Return the state that calls of a task change and read.

    Parameters
    ----------
    trial : TrialTask
        Its state moves.
    samples : list
        Sorted. The first two and the last two are used.
    seed : int
        The job's.
    evaluates : bool
        True to call the task's evaluation, too.
    """
    of_loss = _Loss(trial, samples[:2], seed)
    of_evaluation = _Evaluation(trial, samples[:2], seed) if evaluates else None
    start = trial.begin(of_loss.piece(samples[:2]))
    taken = _taken_at_first(trial, of_loss, start, samples)
    of_loss.call()
    trial.scale(_MOVED)
    first = _Moment(trial)
    if of_evaluation is not None:
        try:
            of_evaluation.call(samples[-2:])
        except Exception as error:  # noqa: BLE001 - of a task that evaluates other samples
            release(error)
            of_evaluation = None
    of_loss.call(samples[-2:])
    second = _Moment(trial)
    if of_evaluation is not None:
        of_evaluation.call()
    of_loss.call()
    changes = {
        change.name: (moment, change)
        for moment in (second, first)
        for change in moment.snapshot.changes()
    }
    third = _Moment(trial)
    changes = of_loss.without_penalty(changes, of_evaluation, third.snapshot, samples[-2:])
    moved = [
        _Moved(entry, before, _advances(entry, second, third))
        for moment, change in changes.values()
        for entry, before in moment.parts_of(change, third)
    ]
    read = of_loss.read(moved, third.snapshot)
    if of_evaluation is not None:
        # Parameters and buffers that move have a warning of their own.
        others = [each for each in moved if not each.entry.of_module and each.is_none_of(read)]
        read += of_evaluation.read(others, third.snapshot)
    known = {each.name.partition("[")[0] for each in read}
    return (*read, *(each for each in taken if each.name.partition("[")[0] not in known))


def _taken_at_first(
    trial: TrialTask, of_loss: _Loss, start: Snapshot, samples: list[Any]
) -> list[ReadState]:
    """Return the state that a first call takes from its samples, and that the loss reads.

    Leaves the state of a first call.
    """
    found: list[ReadState] = []
    if all(each.owner and isinstance(each.owner.value, _NormBase) for each in start.changes()):
        return []  # Running statistics, which training does not read.
    ways = []
    for first in (samples[-2:], samples[:2]):
        start.put_back()
        of_loss.call(first)
        ways.append((trial.held(), of_loss.call()))
    (other, _), (now, expected) = ways
    if not of_loss.same(*(value for _, value in ways)):
        now.put_back()
        for each in other.changes():
            now.put_back()
            other.put_back_only([each])
            if not of_loss.same(of_loss.call(), expected):
                found.append(ReadState(each.name, 0, each.of_module, is_first=True))
    now.put_back()
    return found


class _Moment:
    """State at a moment."""

    def __init__(self, trial: TrialTask):
        self.entries = trial.inventory.walk()
        self.snapshot = Snapshot(self.entries.values(), trial.is_left_out)
        self._leaves = self.snapshot.leaves()

    def content(self, name: str) -> Any:
        """Return a value as it was at this moment."""
        entry = self.entries.get(name)
        if entry is None or entry.kind == PLAIN:
            return None if entry is None else entry.value
        return self._leaves.get(id(entry.value))

    def parts_of(self, change: Entry, now: _Moment) -> Iterator[tuple[Entry, Change]]:
        """Yield what changed since this moment, and how it is put back.

        A container of several kinds of values is split into its numbers.
        """
        if change.kind not in CONTAINERS:
            if change.name in self.entries and change.name in now.entries:
                yield now.entries[change.name], partial(self.snapshot.put_back_only, [change])
            return
        for name, entry in now.entries.items():
            before = self.entries.get(name)
            if entry.owner is None or entry.owner.name != change.name or before is None:
                continue
            is_other = entry.value is not before.value and entry.kind == before.kind
            if (is_other and entry.kind == TENSOR) or (
                is_other and entry.kind == PLAIN and entry.value != before.value
            ):
                yield entry, partial(_put, entry, before.value)


@dataclass(frozen=True)
class _Moved:
    """A value that calls change."""

    entry: Entry
    before: Change
    """Puts the value back."""
    later: list[tuple[int, Change]]
    """Advances the value by some calls."""

    def is_none_of(self, found: Iterable[ReadState]) -> bool:
        """Return whether the value is not among these."""
        return all(each.name != self.entry.name for each in found)


def _advances(entry: Entry, before: _Moment, now: _Moment) -> list[tuple[int, Change]]:
    """Return changes that advance the numbers of a value at the pace of the last call.

    A whole number also moves by one: it may be read by its remainder.
    """
    old, new = before.content(entry.name), now.content(entry.name)
    advanced = [(calls, _advanced(old, new, calls)) for calls in CALLS]
    if advanced[0][1] is not None and _is_whole(new):
        advanced.insert(0, (0, new + 1))
    return [(calls, partial(_put, entry, value)) for calls, value in advanced if value is not None]


@torch.no_grad()
def _put(entry: Entry, value: Any) -> None:
    """Put a number, a tensor, or a container of plain values in the place of an entry."""
    if isinstance(entry.value, Tensor):
        entry.value.data.copy_(value)
    elif isinstance(entry.value, np.ndarray):
        entry.value[...] = value
    elif isinstance(entry.value, dict):
        entry.value.update(value)
    elif isinstance(entry.value, list | deque):
        entry.value.clear()
        entry.value.extend(value)
    elif entry.owner is not None:
        set_child(entry.owner, entry.key, value)


def _advanced(before: Any, now: Any, calls: int) -> Any:
    """Return numbers some calls later; None for other values, and for those that stood still."""
    if isinstance(now, dict) and isinstance(before, dict):
        later = {key: _advanced(before.get(key), each, calls) for key, each in now.items()}
        moved = {key: each for key, each in later.items() if each is not None}
        return {**now, **moved} if moved else None
    if type(now) is type(before) and isinstance(now, list | tuple | deque):
        return _advanced_values(before, now, calls)
    if isinstance(now, Tensor | np.ndarray) and isinstance(before, type(now)):
        return now + (now - before) * calls if _counts(before, now) else None
    if not (_is_number(now) and _is_number(before)) or now == before:
        return None
    return now + (now - before) * calls


def _advanced_values(before: Any, now: Any, calls: int) -> list[Any] | tuple[Any, ...] | None:
    """Return a list or a tuple some calls later: with later numbers, or longer."""
    if grown := len(now) - len(before):
        return [*now, *[now[-1]] * min(grown * calls, GROWN_MAX)] if grown > 0 else None
    later = [_advanced(one, other, calls) for one, other in zip(before, now, strict=True)]
    if all(each is None for each in later):
        return None
    found = (other if each is None else each for each, other in zip(later, now, strict=True))
    return tuple(found) if isinstance(now, tuple) else list(found)


def _counts(before: Any, now: Any) -> bool:
    """Return whether a tensor or an array is a number that moves, or a few that count."""
    old, new = torch.as_tensor(before), torch.as_tensor(now)
    if new.shape != old.shape or new.dtype == torch.bool or torch.equal(new, old):
        return False
    few = new.numel() <= COUNTERS_MAX and not new.is_complex()
    return new.numel() == 1 or (few and torch.equal(new - old, (new - old).round()))


def _is_whole(value: Any) -> bool:
    if isinstance(value, Tensor | np.ndarray):
        return bool((torch.as_tensor(value) % 1 == 0).all())
    return isinstance(value, int | np.integer)


def _is_number(value: Any) -> bool:
    numbers = int | float | np.integer | np.floating
    return isinstance(value, numbers) and not isinstance(value, bool)


class _FastForward(ABC):
    """Calls from one state, with parts of it replaced."""

    evaluates = False

    def __init__(self, trial: TrialTask, samples: list[Any], seed: int):
        self._trial, self._samples = trial, samples
        self._seed = randomness.seed_of(randomness.MICRO_BATCH, seed)
        self._too_long = 0

    def call(self, samples: list[Any] | None = None) -> tuple[Tensor, Tensor]:
        """Return losses and gradients of a call, which keeps the state that it changes."""
        randomness.seed_host(self._seed)
        randomness.seed_device(self._seed, self._trial.device)
        return self._values(self.piece(samples or self._samples))

    def piece(self, samples: list[Any]) -> Piece:
        """Collate samples."""
        return divided(self._trial.task, samples, [len(samples)])[0]

    @abstractmethod
    def _values(self, piece: Piece) -> tuple[Tensor, Tensor]: ...

    def read(self, moved: list[_Moved], now: Snapshot) -> list[ReadState]:
        """Return the values that the call reads."""
        if not moved:
            return []

        def differs(changes: Iterable[Change]) -> bool:
            if self._too_long >= TOO_LONG_MAX:
                return False
            now.put_back()
            for change in changes:
                change()
            try:
                with time_limit(limit):
                    return not self.same(self.call(), expected)
            except TooLongError:  # A loop that is as long as the number, or without an end.
                self._too_long += 1
                return True
            except Exception:  # noqa: BLE001 - a number beyond the end of a schedule
                return True

        now.put_back()
        began = time.monotonic()
        expected = self.call()
        limit = SECONDS_MAX + CALLS_MAX * (time.monotonic() - began)
        if differs([]):
            return []  # It is no function of its state, and has a warning of its own.
        if not self._reads(moved, differs):
            return []
        alone = [(each, self._reads([each], differs)) for each in moved[:SINGLES_MAX]]
        rest = moved[SINGLES_MAX:]
        if rest:
            together = self._reads(rest, differs)
            alone += [(each, together) for each in rest]
        return [
            ReadState(each.entry.name, min(calls), each.entry.of_module, self.evaluates)
            for each, calls in alone
            if calls
        ]

    def _reads(self, moved: list[_Moved], differs: Callable[[Iterable[Change]], bool]) -> list[int]:
        """Return the first number of calls after which these values change the loss, if any."""
        if differs([each.before for each in moved]):
            return [0]
        for calls in (0, *CALLS):
            later = [change for each in moved for number, change in each.later if number == calls]
            if later and differs(later):
                return [calls]
        return []

    def same(self, one: tuple[Tensor, Tensor], other: tuple[Tensor, Tensor]) -> bool:
        """Return whether two calls agree to rounding."""
        roundings = traits_of(self._trial.device).roundings
        rounding = torch.finfo(self._trial.dtype).eps * roundings
        return torch.allclose(
            one[0], other[0], rtol=rounding, atol=0.0, equal_nan=True
        ) and are_alike(one[1], other[1], *tolerance(self._trial.dtype, self._trial.device))


class _Loss(_FastForward):
    def _values(self, piece: Piece) -> tuple[Tensor, Tensor]:
        return self._trial.called(piece)

    def without_penalty(
        self,
        changes: dict[str, C],
        evaluation: _Evaluation | None,
        now: Snapshot,
        samples: list[Any],
    ) -> dict[str, C]:
        """Return the changes that are not of ``penalty()`` alone, which runs once per step."""
        if type(self._trial.task).penalty is Task.penalty:
            return changes
        if evaluation is not None:
            evaluation.call()
        self._trial.called(self.piece(samples), penalize=False)
        names = {each.name for each in now.changes()}
        now.put_back()
        return {name: each for name, each in changes.items() if name in names}


class _Evaluation(_FastForward):
    evaluates = True

    def _values(self, piece: Piece) -> tuple[Tensor, Tensor]:
        return self._trial.evaluated(piece), torch.zeros(0, 2)


def calls_of(
    trial: TrialTask, samples: list[Any], seed: int, *, evaluates: bool
) -> list[_FastForward]:
    """Return the calls of a run with some samples."""
    kinds: list[type[_FastForward]] = [_Loss, _Evaluation] if evaluates else [_Loss]
    return [kind(trial, samples, seed) for kind in kinds]


def are_alike(one: Tensor, other: Tensor, limit: float, floor: float) -> bool:
    """Return whether norms and sums of gradients, of shape (parameters, 2), are the same."""
    off = torch.where((one == other) | (one.isnan() & other.isnan()), 0.0, (one - other).abs())
    norms = torch.maximum(one[:, 0], other[:, 0])
    scales = norms.clamp(min=floor * float(norms.norm()))
    return bool((off.amax(1) <= limit * scales).all()) if len(off) else True
