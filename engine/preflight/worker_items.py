"""Check that items are the same in loader workers, which are forks of their rank.

An open file has one position that all forks move. Connections to databases and sockets mix the
answers to several processes. Some samples are therefore fetched by workers, side by side, and
compared with those of the rank. A difference is refused, with the open files and connections that
the dataset holds. Such a handle is reported even where nothing differs: the workers' reads may not
have met.

Only the first rank of each node checks. A dataset whose samples differ at each fetch is not
compared (``engine.preflight.repeatability``).

Not here: the workers (``engine.data.fetching``).
"""

from __future__ import annotations

import io
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

import numpy as np
from torch import Tensor
from torch.utils.data import Dataset

from lockstep.engine.data.fetching import Fetcher, micro_batches
from lockstep.engine.runtime.errors import BadSpecError, EngineError, listed
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.state.values import equal
from lockstep.engine.task.interface import Batch

WORKERS: Final = 2
ROUNDS: Final = 8
"""Number of times that each sample is fetched: reads of two workers must meet."""
SECONDS_MAX: Final = 2.0
"""Further rounds are left out after this time."""
_DEPTH_MAX: Final = 6
_OBJECTS_MAX: Final = 10_000
_ENTRIES_MAX: Final = 1_000
_NOT_WALKED: Final = (type, ModuleType, FunctionType, MethodType, Tensor, np.ndarray, str, bytes)
_CONNECTIONS: Final = {
    "sqlite3.Connection": "a database connection",
    "psycopg.Connection": "a database connection",
    "psycopg2.connection": "a database connection",
    "pymysql.Connection": "a database connection",
    "lmdb.Environment": "a database",
    "h5py.File": "an HDF5 file",
}
"""Classes without a descriptor that Python shows, by package and name."""
_REMEDY: Final = (
    "open files and connections in __getitem__, once in each process, or set loader.workers to 0"
)


@dataclass(frozen=True)
class WorkerItems:
    """Result of the check."""

    refusal: str = ""
    warning: str = ""


def require_same_in_workers(
    ranks: Ranks,
    dataset: Dataset[Any],
    known: Mapping[int, Batch],
    collate: Callable[[list[Any]], Batch],
    *,
    seed: int,
    compares: bool,
) -> list[str]:
    """Return warnings about open files and connections. All ranks must call this.

    Parameters
    ----------
    ranks : Ranks
    dataset : Dataset
    known : mapping of int to Batch
        Samples that the rank fetched under the same seed, each collated alone.
    collate : callable
        The task's.
    seed : int
        The job's.
    compares : bool
        False if the samples differ at each fetch.

    Raises
    ------
    EngineError
        ``bad_spec``, on all ranks: a sample differs in a worker.
    """
    found = WorkerItems()
    if ranks.local_rank == 0:
        found = compared(dataset, known if compares else {}, collate, seed=seed)
    refusal = next(filter(None, ranks.gather(found.refusal)), "")
    if refusal:
        raise BadSpecError(refusal)
    return [found.warning] if found.warning else []


def compared(
    dataset: Dataset[Any],
    known: Mapping[int, Batch],
    collate: Callable[[list[Any]], Batch],
    *,
    seed: int,
) -> WorkerItems:
    """Compare samples of workers with ``known``, and look for open files and connections."""
    shared = list(handles(dataset))
    holds = f"the dataset holds {listed(shared)}, which all processes share: " if shared else ""
    items = [[(0, index)] for _ in range(ROUNDS) for index in known]
    fetcher = Fetcher(dataset, collate, seed=seed)
    in_workers = micro_batches(fetcher, items, workers=WORKERS, ahead=WORKERS, pin=False)
    until = time.monotonic() + SECONDS_MAX
    for number, ((_, index),) in enumerate(items):
        if number >= len(known) and time.monotonic() > until:
            break
        try:
            same = equal(next(in_workers), known[index])
        except EngineError as error:
            if not shared:
                raise
            refusal = f"a loader worker fails where its rank does not ({error}): {holds}{_REMEDY}"
            return WorkerItems(refusal)
        if not same:
            refusal = f"item {index} of dataset('train') differs in a loader worker: "
            return WorkerItems(refusal + holds + _REMEDY)
    return WorkerItems(warning=f"loader workers: {holds}{_REMEDY}" if shared else "")


def handles(dataset: object) -> Iterator[str]:
    """Yield the open files and connections, such as ``dataset.file (an open file)``."""
    seen: set[int] = set()
    waiting: deque[tuple[str, object, int]] = deque([("dataset", dataset, 0)])
    while waiting and len(seen) < _OBJECTS_MAX:
        name, value, depth = waiting.popleft()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kind = _kind(value)
        if kind:
            yield f"{name} ({kind})"
        elif depth < _DEPTH_MAX:
            waiting.extend((name + key, each, depth + 1) for key, each in _parts(value))


def _kind(value: object) -> str:
    if isinstance(value, socket.socket):
        return "a socket" if value.fileno() >= 0 else ""
    if isinstance(value, io.IOBase):
        return "an open file" if _has_descriptor(value) else ""
    classes = (
        f"{each.__module__.partition('.')[0]}.{each.__name__}" for each in type(value).__mro__
    )
    return next((_CONNECTIONS[each] for each in classes if each in _CONNECTIONS), "")


def _has_descriptor(file: io.IOBase) -> bool:
    try:
        return file.fileno() >= 0
    except (OSError, ValueError):  # In memory, or closed.
        return False


def _parts(value: object) -> Iterator[tuple[str, object]]:
    """Yield what an object or a container holds, with the text that leads to it."""
    if isinstance(value, _NOT_WALKED):
        return
    if isinstance(value, dict | list | tuple):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        if len(value) <= _ENTRIES_MAX:
            yield from ((f"[{key!r}]", each) for key, each in entries)
    elif hasattr(value, "__dict__"):
        yield from ((f".{key}", each) for key, each in vars(value).items())
