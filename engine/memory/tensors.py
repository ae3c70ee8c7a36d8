"""Count of the memory that tensors hold during a block, for real and for fake tensors.

Every operation passes a dispatch mode, which sees the storages of its arguments and results. A
storage is counted from the first operation that uses it until it is freed. A forecast (fake
tensors) and a measurement (real ones) are therefore the same count.

Tensors that exist before the count starts are counted from their first use on, so a first step is
only partly counted. Count two steps and take the peak of the second, or register existing tensors
with :meth:`TensorCount.hold`.

Not counted: temporary memory of kernels, and tensors that no operation of this thread uses. On the
CPU, forward, backward and the optimizer run in one thread.

Not here: the allocator's own numbers (``engine.memory.measured``, ``engine.runtime.telemetry``).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from torch import Tensor, UntypedStorage, device, dtype
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

Part = Literal[
    "weights", "buffers", "gradients", "optimizer", "activations", "temporary", "buckets"
]
_SENDS: Final = frozenset({"c10d", "fsdp", "_c10d_functional"})
"""Namespaces of operations whose tensors are on their way between ranks."""
_NUMBERS: Final = frozenset({bool, int, float, str, type(None), dtype, device})
"""Types of most arguments; they hold no tensor."""


class _Held:
    """One storage that is counted."""

    __slots__ = ("key", "part", "reference", "size")

    def __init__(self, storage: UntypedStorage, size: int, part: Part, freed: deque[_Held]):
        self.key, self.size, self.part = id(storage), size, part
        # Freed in whatever thread drops it last: there it is only noted.
        self.reference = weakref.ref(storage, lambda _: freed.append(self))


class TensorCount(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's own
    """Bytes held by tensors, now and at the fullest moment.

    Enter it while they are to be counted, once or several times.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.part: Part = "activations"
        """Part that new tensors are counted as."""
        self.peak: dict[Part, int] = {}
        """Bytes of each part at the fullest moment since it was last entered."""
        self.peak_bytes = 0
        """Bytes of all parts at that moment."""
        self._now: dict[Part, int] = {}
        self._total = 0
        self._known: dict[int, _Held] = {}
        self._freed: deque[_Held] = deque()
        self._ignored: weakref.WeakSet[UntypedStorage] = weakref.WeakSet()
        self._paused = False
        self.is_complete = True
        """False once a tensor came by that has no storage to look at, such as a sparse one."""

    def hold(self, part: Part, tensors: Iterable[Tensor]) -> None:
        """Count tensors that exist already."""
        for storage in self._storages(list(tensors)):
            self._see(storage, part)

    def ignore(self, tree: Any) -> None:
        """Leave these tensors out, such as samples that wait on the host."""
        for storage in self._storages(tree):
            self._ignored.add(storage)

    def rename(self, part: Part, tensors: Iterable[Tensor]) -> None:
        """Count tensors that are known as another part from here on."""
        for storage in self._storages(list(tensors)):
            held = self._find(storage)
            if held is not None:
                self._move(held, part)

    def rename_all(self, before: Part, after: Part) -> None:
        """Count all that is left of one part as another from here on."""
        self._forget_freed()
        for held in self._known.values():
            if held.part == before:
                self._move(held, after)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out all tensors that are made meanwhile."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def __enter__(self) -> TensorCount:
        self._refresh()
        self.peak, self.peak_bytes = dict(self._now), self._total
        self._resize = resize = UntypedStorage.resize_

        def resized(storage: UntypedStorage, size: int) -> Any:
            self._see(storage, self.part)
            result = resize(storage, size)
            self._resized(storage)
            return result

        # FSDP frees gathered parameters by resizing their storage, which is no operation.
        UntypedStorage.resize_ = resized  # type: ignore[method-assign, assignment] # put back in __exit__
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *raised: Any) -> None:
        super().__exit__(*raised)  # type: ignore[no-untyped-call]
        UntypedStorage.resize_ = self._resize  # type: ignore[method-assign] # puts torch's own method back

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # Of a wrapper, such as FSDP's, the tensors inside follow.
        given = self._storages((args, kwargs))
        for storage in given:
            self._see(storage, self.part)
        result = func(*args, **(kwargs or {}))
        made = self._storages(result)
        self._forget_freed()
        for storage in made:
            self._see(storage, self.part)
        if func.namespace in _SENDS:
            for storage in given + made:
                held = self._find(storage)
                if held is not None and held.part in {"temporary", "activations"}:
                    self._move(held, "buckets")
        return result

    def _storages(self, tree: Any) -> list[UntypedStorage]:
        found = []
        for leaf in _leaves(tree):
            if isinstance(leaf, Tensor):
                try:
                    found.append(
                        (leaf.to_local() if hasattr(leaf, "to_local") else leaf).untyped_storage()
                    )
                except (RuntimeError, NotImplementedError):
                    self.is_complete = False
        return found

    def _see(self, storage: UntypedStorage, part: Part) -> None:
        if self._find(storage) is not None:
            return
        if self._paused:
            self._ignored.add(storage)
        if storage not in self._ignored:
            held = _Held(storage, storage.nbytes(), part, self._freed)
            self._known[held.key] = held
            self._change(part, held.size)

    def _find(self, storage: UntypedStorage) -> _Held | None:
        held = self._known.get(id(storage))
        if held is not None and held.reference() is not storage:
            self._forget_freed()  # Of one that is gone, whose place in memory this one has.
            return None
        return held

    def _forget_freed(self) -> None:
        while self._freed:
            held = self._freed.popleft()
            if self._known.get(held.key) is held:
                del self._known[held.key]
            self._change(held.part, -held.size)

    def _refresh(self) -> None:
        """Read again the sizes that may have changed while nothing was counted."""
        self._forget_freed()
        for held in list(self._known.values()):
            storage = held.reference()
            if storage is not None:
                self._resized(storage)

    def _resized(self, storage: UntypedStorage) -> None:
        held = self._find(storage)
        if held is not None:
            grown, held.size = storage.nbytes() - held.size, storage.nbytes()
            self._change(held.part, grown)

    def _move(self, held: _Held, part: Part) -> None:
        self._now[held.part] -= held.size
        self._now[part] = self._now.get(part, 0) + held.size
        held.part = part

    def _change(self, part: Part, size: int) -> None:
        self._now[part] = self._now.get(part, 0) + size
        self._total += size
        if self._total > self.peak_bytes:
            self.peak_bytes = self._total
            self.peak = dict(self._now)


def _leaves(tree: Any) -> Iterator[Any]:
    """Return the leaves of ``tree``. Torch's own walk takes ten times as long per operation."""
    kind = type(tree)
    if kind is tuple or kind is list:
        for each in tree:
            yield from _leaves(each)
    elif kind is dict:
        yield from _leaves(list(tree.values()))
    elif isinstance(tree, Tensor):
        yield tree
    elif kind not in _NUMBERS:
        yield from tree_leaves(tree)
