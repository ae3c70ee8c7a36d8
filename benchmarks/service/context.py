"""Common parts of every row.

Not here: the rows (``rows_*``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.service import peer_mlflow
from benchmarks.service.compare import Bench, Contestant, Sample
from benchmarks.service.environments import Environments
from benchmarks.service.peer_mlflow import Mlflow
from benchmarks.service.sizes import Sizes
from benchmarks.service.stores import Store


@dataclass
class Context:
    """One run of the benchmark."""

    sizes: Sizes
    stores: list[Store]
    peers: Environments
    folder: Path
    before: Path | None
    """Python of an older installation, if one is compared."""
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def fresh(self) -> Path:
        """Return a new empty folder with a short name, because it may contain sockets."""
        folder = self.folder / str(next(self._numbers))
        folder.mkdir()
        return folder

    def add_mlflow(
        self,
        bench: Bench,
        stack: ExitStack,
        measure: Callable[[Mlflow, Store], Callable[[], Sample]],
    ) -> None:
        """Let MLflow take part, one server over each database.

        If it cannot, record the reason.
        """
        programs = self.peers.programs("mlflow")
        if programs is None:
            bench.absent["mlflow"] = self.peers.why("mlflow")
            return
        for store in self.stores:
            folder = self.fresh()
            server = stack.enter_context(
                peer_mlflow.running(programs, folder, store.theirs(folder))
            )
            bench.contestants.append(Contestant("mlflow", measure(server, store), store.name))


Row = Callable[[Context, ExitStack], Bench]
"""Starts the programs that a row measures; the stack ends them."""
