"""Datasets whose items differ in a loader worker: open files, connections, process ids."""

from __future__ import annotations

import os
import sqlite3
import struct
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import pytest
import torch
from torch.utils.data import Dataset, Subset

from lockstep.engine.preflight.worker_items import handles
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks
from tests.engine.spool import events, records
from tests.engine.start_cases import Line, train

SIZE = 12
SPARE = 4  # Rows after the last item: a moved position still finds a whole row.
WORKERS = {"loader": {"workers": 2}}


class Rows(Dataset[Any]):
    """Numbers from a file."""

    def __init__(self, path: Path):
        self.path = path
        count = 3 * (SIZE + SPARE)
        path.write_bytes(struct.pack(f"{count}d", *(n / SIZE for n in range(count))))

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        with self.path.open("rb") as file:
            return self.read(file, index)

    def close(self) -> None:
        """Close nothing: nothing is open."""

    def read(self, file: BinaryIO, index: int) -> Any:
        file.seek(24 * index)
        time.sleep(0.002)  # Another process moves the position of a shared file here.
        *x, y = struct.unpack("3d", os.read(file.fileno(), 24))
        return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


class Shared(Rows):
    """Opens the file once, in the rank."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.file = path.open("rb", buffering=0)

    def close(self) -> None:
        self.file.close()

    def __getitem__(self, index: int) -> Any:
        return self.read(self.file, index)


class Connected(Rows):
    """Holds a connection that gives the same answers in every process."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.connections = {"rows": sqlite3.connect(":memory:")}

    def close(self) -> None:
        self.connections["rows"].close()


class ByProcess(Rows):
    """Adds the process id."""

    def __getitem__(self, index: int) -> Any:
        x, y = super().__getitem__(index)
        return x + os.getpid(), y


class AtHome(Connected):
    """Works only in the process that built it."""

    def __init__(self, path: Path):
        super().__init__(path)
        self.home = os.getpid()

    def __getitem__(self, index: int) -> Any:
        if os.getpid() != self.home:
            raise OSError("the server closed the connection")
        return super().__getitem__(index)


class Reads(Line):
    def __init__(self, rows: Dataset[Any]) -> None:
        self.rows = rows

    def dataset(self, split: str) -> Dataset[Any]:
        return self.rows


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (
            Shared,
            "differs in a loader worker: the dataset holds dataset.file (an open file), which all "
            "processes share: open files and connections in __getitem__, once in each process",
        ),
        (ByProcess, "differs in a loader worker: open files and connections in __getitem__"),
        (
            AtHome,
            "a loader worker fails where its rank does not (item 0 of dataset('train'): OSError: "
            "the server closed the connection): the dataset holds dataset.connections['rows'] (a",
        ),
    ],
)
def test_items_that_differ_in_a_worker_are_refused_with_the_cause(
    tmp_path: Path, kind: Callable[[Path], Rows], words: str
) -> None:
    with closing(kind(tmp_path / "rows")) as rows, pytest.raises(EngineError) as refused:
        train(Reads(rows), tmp_path, **WORKERS)
    assert refused.value.reason == "bad_spec"
    assert words in str(refused.value)
    assert records(tmp_path) == {}


def test_a_connection_is_reported_although_nothing_differs(tmp_path: Path) -> None:
    with closing(Connected(tmp_path / "rows")) as rows:
        trainer = train(Reads(Subset(rows, range(SIZE))), tmp_path, **WORKERS)
    assert trainer._parts.model.inventory.stored(Ranks())["unsaved"] == {}
    (warning,) = [each["message"] for each in events(tmp_path, "warning")]
    assert warning.startswith(
        "loader workers: the dataset holds dataset.dataset.connections['rows'] (a database "
        "connection), which all processes share: open files"
    )


def test_a_file_that_each_process_opens_has_no_warning(tmp_path: Path) -> None:
    train(Reads(Rows(tmp_path / "rows")), tmp_path, **WORKERS)
    assert events(tmp_path, "warning") == []


def test_without_workers_nothing_is_shared(tmp_path: Path) -> None:
    with closing(Shared(tmp_path / "rows")) as rows:
        train(Reads(rows), tmp_path)
    assert events(tmp_path, "warning") == []


def test_closed_files_and_files_in_memory_are_not_handles(tmp_path: Path) -> None:
    shared = Shared(tmp_path / "rows")
    assert list(handles(shared)) == ["dataset.file (an open file)"]
    shared.close()
    assert list(handles(shared)) == []
