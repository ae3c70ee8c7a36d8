"""Content for tests: specs of small jobs, code archives, git repositories and event files."""

from __future__ import annotations

import gzip
import hashlib
import io
import subprocess
import tarfile
import warnings
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lockstep.domain.life.attempt import MANIFEST
from lockstep.storage.objects.blobs import BlobStore
from lockstep.system.untrusted import Untrusted


def digits(name: str = "digits", *, steps: int = 12, **train: Any) -> dict[str, Any]:
    """Return handwritten digits on two ranks with four accumulation steps."""
    return {
        "name": name,
        "kind": "train",
        "resources": {"gpus": 2},
        "train": {
            "task": "image_classification",
            "task_args": {"width": 8},
            "batch": {"size": 64, "micro_size": 8},
            "steps": steps,
            "optimizer": {"name": "adamw", "lr": 3e-3},
            **train,
        },
    }


def script(
    name: str, command: list[str], *, upload: str | None = None, gpus: int = 1, **more: Any
) -> dict[str, Any]:
    """Return a torchrun script."""
    spec: dict[str, Any] = {
        "name": name,
        "kind": "script",
        "resources": {"gpus": gpus},
        "script": {"command": command},
        **more,
    }
    if upload is not None:
        spec["code"] = {"upload": upload}
    return spec


SLOW_TASK = '''
"""A person's own task: a linear fit whose samples take a while, so that a test can interrupt it, until a file says enough."""

import os
import time

import torch
from torch import nn

from lockstep import Task


class Points(torch.utils.data.Dataset):
    def __init__(self, pause, enough):
        self.pause, self.enough = pause, enough

    def __len__(self):
        return 1000

    def __getitem__(self, item):
        if self.enough is None or not os.path.exists(self.enough):
            time.sleep(self.pause)
        x = torch.randn(4, generator=torch.Generator().manual_seed(item))
        return x, x.sum()


class Slow(Task):
    def __init__(self, pause=0.0, fail_at=None, enough=None):
        self.pause, self.fail_at, self.enough, self.seen = pause, fail_at, enough, 0

    def model(self):
        return nn.Linear(4, 1)

    def dataset(self, split):
        return Points(self.pause, self.enough)

    def loss(self, model, batch):
        self.seen += 1
        if self.fail_at is not None and self.seen > self.fail_at and int(os.environ["RANK"]) == 1:
            raise RuntimeError("the labels of shard 7 are damaged")
        x, y = batch
        return ((model(x).squeeze(-1) - y) ** 2).sum()
'''


def slow(
    service: Any,
    folder: Path,
    name: str = "slow",
    *,
    args: dict[str, Any],
    steps: int,
    **train: Any,
) -> dict[str, Any]:
    """Return the task above, uploaded and ready to submit, on two ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "task.py").write_text(SLOW_TASK)
    return {
        "name": name,
        "kind": "train",
        "resources": {"gpus": 2},
        "code": {"upload": service.upload(folder)},
        "train": {
            "task": "task.py:Slow",
            "task_args": args,
            "batch": {"size": 16, "micro_size": 4},
            "steps": steps,
            "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9},
            **train,
        },
    }


DAEMON = """
import os, pathlib, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
pathlib.Path(sys.argv[1], str(os.getpid())).touch()
time.sleep(600)
"""


TRICKY_TASK = (
    SLOW_TASK
    + f'''

import signal, subprocess, sys

DAEMON = """{DAEMON}"""


class Stubborn(Slow):
    """Traps SIGTERM, and leaves a daemon that has no parent, no session and no environment in common with it."""

    def __init__(self, folder, hang_from):
        super().__init__(pause=0.01)
        self.hang_from = hang_from
        signal.signal(signal.SIGTERM, lambda *_: None)
        subprocess.run([sys.executable, "-c", DAEMON, folder], env={{}}, check=True)

    def loss(self, model, batch):
        if self.seen >= self.hang_from:
            while True:
                time.sleep(1)
        return super().loss(model, batch)


class Lagging(Slow):
    """On rank 1 everything takes five times as long."""

    def __init__(self, pause):
        super().__init__(pause=pause * (5 if os.environ["RANK"] == "1" else 1))


class Stuck(Slow):
    """At its first attempt rank 1 leaves the others alone in a collective."""

    def __init__(self, how):
        super().__init__(pause=0.01)
        self.how = how

    def loss(self, model, batch):
        if os.environ["LOCKSTEP_ATTEMPT"] == os.environ["RANK"] == "1" and self.seen == 40:
            stay_away(self.how)
        return super().loss(model, batch)


def stay_away(how):
    if how == "sleeps":
        time.sleep(600)
    torch.distributed.recv(torch.zeros(1), src=0, tag=77)  # which rank 0 never sends
'''
)


def tricky(
    service: Any, folder: Path, task: str, *, args: dict[str, Any], steps: int, **more: Any
) -> dict[str, Any]:
    """Return a job of one of the tasks above.

    ``more`` goes into ``train``, except for ``retry``.
    """
    folder.mkdir(exist_ok=True)
    (folder / "task.py").write_text(TRICKY_TASK)
    retry = {"retry": more.pop("retry")} if "retry" in more else {}
    return {
        "name": task.lower(),
        "kind": "train",
        "resources": {"gpus": 2},
        "code": {"upload": service.upload(folder)},
        "train": {
            "task": f"task.py:{task}",
            "task_args": args,
            "batch": {"size": 16, "micro_size": 4},
            "steps": steps,
            "optimizer": {"name": "sgd", "lr": 0.01},
            **more,
        },
        **retry,
    }


def member(
    name: str, content: bytes = b"print(1)\n", **fields: object
) -> tuple[tarfile.TarInfo, bytes]:
    """Return one member.

    ``fields`` override those of ``TarInfo`` (``type``, ``linkname``, ``size``).
    """
    found = tarfile.TarInfo(name)
    found.size = len(content)
    for field, value in fields.items():
        setattr(found, field, value)
    return found, content


def link(name: str, target: str, kind: bytes = tarfile.SYMTYPE) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, b"", type=kind, linkname=target)


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """Return a gzipped tar archive."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        for found, content in members:
            tar.addfile(found, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), mtime=0)


def code(names: Iterable[str] = ("train.py",)) -> bytes:
    return packed(*(member(name) for name in names))


def digest(archive: bytes) -> str:
    return hashlib.sha256(archive).hexdigest()


_OPTIONS = (
    "user.name=Ada",
    "user.email=ada@example.org",
    "tag.gpgSign=false",
    "commit.gpgSign=false",
)


class Repository:
    """A new repository with the branch ``main``, reached as ``url``."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.url = f"file://{folder}"
        subprocess.run(["git", "init", "--quiet", "--initial-branch=main", str(folder)], check=True)

    def git(self, *words: str) -> str:
        """Return the output of git."""
        options = [word for option in _OPTIONS for word in ("-c", option)]
        command = ["git", "-C", str(self.folder), *options, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self, **files: str) -> str:
        """Write ``name.py`` for each name, and commit everything; return the commit's id."""
        for name, text in files.items():
            (self.folder / f"{name}.py").write_text(text)
        self.git("add", "-A")
        self.git("commit", "--quiet", "--message", "x")
        return self.git("rev-parse", "HEAD")


def tensorboard() -> Any:
    """Return the real library's parts.

    Its imports warn, which must not fail our tests.
    """
    pytest.importorskip("tensorboard", reason="NOT RUN: tensorboard is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from tensorboard.backend.event_processing.event_file_loader import LegacyEventFileLoader
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

    return SimpleNamespace(
        Loader=LegacyEventFileLoader,
        Event=Event,
        Summary=Summary,
        Tensor=TensorProto,
        Writer=EventFileWriter,
    )


def value(tag: str, number: float, kind: str = "simple") -> Any:
    """Return one scalar as PyTorch writes it.

    ``simple``, or in its new style as a tensor of ``float`` or ``double``.
    """
    real = tensorboard()
    if kind == "simple":
        return real.Summary.Value(tag=tag, simple_value=number)
    tensor = (
        real.Tensor(dtype=1, float_val=[number])
        if kind == "float"
        else real.Tensor(dtype=2, double_val=[number])
    )
    made = real.Summary.Value(tag=tag, tensor=tensor)
    made.metadata.plugin_data.plugin_name = "scalars"
    return made


def write(folder: Path, values: list[tuple[int, float, Any]]) -> Path:
    """Write steps, times and values with the real writer; return the file."""
    real = tensorboard()
    before = set(folder.glob("*tfevents*"))
    writer = real.Writer(str(folder))
    for step, time, each in values:
        writer.add_event(real.Event(step=step, wall_time=time, summary=real.Summary(value=[each])))
    writer.close()
    (path,) = set(folder.glob("*tfevents*")) - before
    return path


def as_untrusted(path: Path) -> tuple[Untrusted, str]:
    """Return a file as the readers of jobs' files take it: its folder and its name."""
    return Untrusted(path.parent), path.name


def put_tree(blobs: BlobStore, folder: Path, key: str) -> None:
    """Store any folder as a published tree, without the checks of a checkpoint."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in sorted(files, key=lambda path: path.name == MANIFEST):
        blobs.write(f"{key}/{path.relative_to(folder).as_posix()}", path.read_bytes())
