"""Process that saves and kills itself at its n-th file operation, for every n.

    python -m tests.engine.checkpoints.killed HOW FOLDER

It prints one JSON object per kill: the operation before which it died, and the remaining
checkpoints. Each save runs in a fork, which is killed for real; torch is imported once. Operations
are found by Python's profile hook, which is called for every function in C.

Not here: the conditions afterwards (``tests.engine.checkpoints.test_saving``).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import torch
import torch.distributed as dist

from lockstep.engine.checkpoints import checkpoint, export
from lockstep.engine.checkpoints.contents import scattered_in
from lockstep.engine.checkpoints.saving import Saver
from lockstep.engine.checkpoints.streams import send
from lockstep.engine.runtime.ranks import Ranks
from lockstep.engine.runtime.scattered import Scattered

OPERATIONS = frozenset(
    "open mkdir rename replace unlink remove rmdir rmtree write flush fsync close link symlink truncate".split()
)
KILLS_MAX = 400


def state(value: float) -> dict[str, Any]:
    return {
        "model": {"w": torch.full((3000,), value), "b": torch.full((3,), value)},
        "optimizer": {"betas": (0.9, 0.95)},
    }


def scattered_state(value: float, ranks: Ranks) -> dict[str, Any]:
    """Return the same state, of which the second rank has the second half of ``w``."""
    parts = ((0, 1500), (1, 1500))
    own = torch.full((1500,), value)
    return state(value) | {
        "model": {
            "w": Scattered(torch.float32, (3000,), parts, own),
            "b": torch.full((3,), value),
        }
    }


def saver(folder: Path, keep_last: int = 1, ranks: Ranks | None = None) -> Saver:
    return Saver(
        folder,
        keep_last=keep_last,
        device=torch.device("cpu"),
        background=True,
        durable=lambda saved: None,
        warn=lambda message: None,
        full_disk_seconds=0,
        ranks=ranks,
    )


def connected(rank: int, store: Path) -> Ranks:
    """Connect one of two ranks."""
    dist.init_process_group("gloo", store=dist.FileStore(str(store), 2), rank=rank, world_size=2)
    return Ranks(rank=rank, world_size=2, host_group=dist.group.WORLD)


def save(how: str, folder: Path, ranks: Ranks | None) -> None:
    """Run the save that is interrupted: the second into a folder with a checkpoint of step 1 and
    value 1."""
    given = saver(folder, ranks=ranks)
    if ranks is not None:
        given.begin(2, scattered_state(2.0, ranks))
        given.finish()
    elif how == "background":
        given.begin(2, state(2.0))
        given.finish()
    elif how == "final":
        given.write(
            2, state(2.0), others=export.parts(state(2.0)["model"], {"job": "killed", "step": 2})
        )
    elif how == "replaced":
        given.write(1, state(2.0))
    elif how == "in_place":  # A wrong rule: nothing has another name while it is written.
        with mock.patch.object(checkpoint, "_beside", lambda target, _: target):
            given.write(2, state(2.0))
    elif how == "pruned_first":  # Another: older ones are deleted before the new one exists.
        shutil.rmtree(folder / checkpoint.folder_name(1))
        given.write(2, state(2.0))


def send_to_a_rank_that_dies(store: Path) -> NoReturn:
    """Be the second rank, whose part is sent while the first one writes."""
    with contextlib.suppress(RuntimeError):
        ranks = connected(1, store)
        send(ranks, scattered_in(scattered_state(2.0, ranks)))
    os._exit(0)


def die_before(operation: int, report: int) -> None:
    """Kill this process before its n-th file operation, and report the operation."""
    seen = 0

    def observe(_: Any, event: str, called: Any) -> None:
        nonlocal seen
        if event == "c_call" and getattr(called, "__name__", "") in OPERATIONS:
            seen += 1
            if seen == operation:
                sys.setprofile(None)
                os.write(report, called.__name__.encode())
                os.kill(os.getpid(), signal.SIGKILL)

    threading.setprofile(observe)
    sys.setprofile(observe)


def left_in(folder: Path) -> dict[str, Any]:
    """Return the names of the checkpoints and the value of the newest.

    Raises if one of them is incomplete.
    """
    values = {}
    for path in checkpoint.complete(folder):
        checkpoint.verify(path)
        values[path.name] = float(checkpoint.load(path)["model"]["w"][0])
    return {
        "values": values,
        "hidden": sorted(path.name for path in folder.iterdir() if path.name.startswith(".")),
    }


def main(how: str, root: Path) -> None:
    torch.set_num_threads(1)
    start = root / "start"
    saver(start).write(1, state(1.0))
    for operation in range(1, KILLS_MAX):
        folder = root / "now"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(start, folder)
        reading, writing = os.pipe()
        store = root / f"store{operation}"
        other = None if how != "streamed" else os.fork()
        if other == 0:
            send_to_a_rank_that_dies(store)
        child = os.fork()
        if child == 0:
            ranks = connected(0, store) if how == "streamed" else None
            die_before(operation, writing)
            save(how, folder, ranks)
            os._exit(0)
        os.close(writing)
        status = os.waitpid(child, 0)[1]
        if other is not None:
            os.waitpid(other, 0)
        with os.fdopen(reading) as pipe:
            died_before = pipe.read()
        row: dict[str, Any] = {
            "died_before": died_before,
            "killed": os.WIFSIGNALED(status),
            "before": left_in(folder),
        }
        checkpoint.tidy(folder)
        row["after"] = left_in(folder)
        saver(folder).write(3, state(3.0))
        row["next"] = left_in(folder)
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()
        if not row["killed"]:
            assert os.waitstatus_to_exitcode(status) == 0
            return
    raise AssertionError(f"more than {KILLS_MAX} file operations in one save")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
