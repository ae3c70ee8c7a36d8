"""Time of rounds of kept files: one large file, many small ones, and a round without changes.

A real store, database and folder, without an agent. Beside each figure stands ``cp -r`` of the same
files, as the disk allows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lockstep.domain.life.attempt import AssignmentFile
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.reading import read_spec
from lockstep.storage.db import migrate
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.worker.folders import Folder
from lockstep.worker.upload.kept import restoring, rounds
from lockstep.worker.upload.kept.rounds import KeptFilesUploader
from lockstep.worker.upload.stream import Stream
from tests.storage import scenes

DOCUMENT = {"kind": "script", "script": {"command": ["true"]}, "train": None}


class Took(NamedTuple):
    """Duration and CPU time of this process, in seconds."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:.2f} s ({self.cpu:.2f} s of a core)"


def timed(work: Callable[[], object]) -> Took:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - wall, time.process_time() - cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--gigabytes", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        measure(Path(name), options.files, int(options.gigabytes * 1e9))


def measure(top: Path, files: int, large: int) -> None:
    rounds.STILL_SECONDS = 0.0
    urls = (f"sqlite:///{top}/jobs.db", f"sqlite:///{top}/series.db")
    migrate.upgrade(*urls)
    database = Database(*urls)
    blobs = BlobStore(str(top / "store"))
    scenes.add_node(database)
    document = scenes.document(**{**DOCUMENT, "resources": {"gpus": 1}})
    job_id = scenes.submit(database, **document)
    claim = scenes.start(database, job_id)
    folder = Folder(top / claim.assignment_id)
    folder.create()
    work = folder.file("code")
    work.mkdir()
    spec = read_spec(document)
    restoring.bring(folder, claim, spec, database, blobs)
    uploader = KeptFilesUploader(
        database,
        blobs,
        folder,
        Stream(claim.assignment_id, claim.job_id, claim.attempt_number, claim.token),
        AssignmentFile.model_construct(spec=spec, node_rank=0),
        report=lambda *_: None,
        every_seconds=0.0,
    )

    def one_round() -> None:
        uploader.hurry()
        uploader.step(last=False)

    piece = os.urandom(1 << 20)
    with (work / "large").open("wb") as file:
        for _ in range(large // len(piece)):
            file.write(piece)
    copy = timed(lambda: shutil.copyfile(work / "large", top / "copy"))
    took = timed(one_round)
    print(f"{large / 1e9:.1f} GB: {took}, {large / 1e6 / took.wall:.0f} MB/s; cp {copy}")
    for number in range(files):
        path = work / f"out/{number % 100}/{number}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(piece[:1000] + str(number).encode())
    copy = timed(lambda: subprocess.run(["cp", "-r", work / "out", top / "out"], check=True))
    took = timed(one_round)
    print(f"{files:,} files: {took}; cp {copy.wall:.2f} s")
    idle = sorted(timed(one_round) for _ in range(9))
    print(f"a round without changes: median {idle[4]}, most {idle[-1]}")
    scenes.renew(database, claim)
    scenes.end(database, claim, Reason.LOST)
    scenes.release(database, claim)
    again = scenes.start(database, job_id)
    other = Folder(top / again.assignment_id)
    other.create()
    other.file("code").mkdir()
    took = timed(lambda: restoring.bring(other, again, spec, database, blobs))
    print(f"restored to the next attempt: {took}")
    database.close()


if __name__ == "__main__":
    main()
