"""Two versions of Lockstep side by side: trees of files, and one service with programs of both.

Not here: the required behaviour of such a service (``test_upgrade``, ``test_versions``).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from lockstep.storage.db.database import Database
from lockstep.storage.db.schema import head
from tests.harness.databases import Urls
from tests.harness.node import FAKE_LAUNCHER, Node
from tests.harness.processes import ROOT, Broker, Program, Scheduler

SCALE: Final = 0.5
"""Fence 25 s: an agent is replaced within it."""
DEVICES: Final = "8"
NEWER: Final = "9.9.0"
PACKAGES: Final = (
    *sorted(path.name for path in (ROOT / "lockstep").iterdir() if path.is_symlink()),
    *("lockstep", "tests"),
)
_EDITS: Final = {
    "domain/version.py": ('VERSION: Final = "', f'VERSION: Final = "{NEWER}"  # '),
    "domain/spec/job.py": (
        "class Retry(Section):\n",
        "class Retry(Section):\n    jitter: Annotated[float, Field(ge=0), NO_BOOL] = 0.0\n",
    ),
    "domain/life/attempt.py": (
        "    rendezvous_port: int\n",
        "    rendezvous_port: int\n    nice: int = 0\n",
    ),
    "domain/life/outcomes.py": (
        "    rank: int | None = None\n",
        "    host: str | None = None\n    rank: int | None = None\n",
    ),
    "storage/db/tables.py": (
        "    boot_id: Mapped[Word]\n",
        "    boot_id: Mapped[Word]\n    rack: Mapped[str | None]\n",
    ),
}
"""Additions of the newer version.

A field of the spec, of the assignment's file and of an outcome, and a column.
"""
_MIGRATION: Final = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = {revision!r}, {before!r}


def upgrade() -> None:
    op.add_column("nodes", sa.Column("rack", sa.String(), nullable=True))
"""


def newer_version(folder: Path) -> Version:
    """Write the version after this one: this tree with a few fields and a migration more.

    It is generated, because the previous version is not available in every clone, and because this
    tree must also be tested as the older of the two.
    """
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package,
            folder / package,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__", "pages"),
        )
    for name, (old, new) in _EDITS.items():
        text = (folder / name).read_text()
        assert old in text, f"{name} has no {old!r} any more; edit _EDITS"
        (folder / name).write_text(text.replace(old, new, 1))
    before = head("jobs")
    revision = f"{int(before) + 1:04d}"
    migration = folder / "migrations" / "jobs" / "versions" / f"{revision}_racks.py"
    migration.write_text(_MIGRATION.format(revision=revision, before=before))
    return Version(folder)


@dataclass(frozen=True)
class Version:
    """A tree of files whose programs are run."""

    root: Path

    @property
    def environment(self) -> dict[str, str]:
        """Return variables with which ``python -m`` imports modules from this tree.

        This holds in every folder and with every installed version. Programs of this tree are forks
        and need none.
        """
        return {} if self.root == ROOT else {"PYTHONPATH": str(self.root), "PYTHONSAFEPATH": "1"}

    @property
    def launcher(self) -> list[str]:
        return [sys.executable, str(self.root / Path(FAKE_LAUNCHER[-1]).relative_to(ROOT))]

    def starts(self) -> bool:
        """Return True if its programs can be imported, and belong to this tree."""
        programs = (
            "lockstep.api.server, lockstep.scheduler.service, lockstep.worker.service, "
            "tests.worker.agent"
        )
        command = [sys.executable, "-c", f"import {programs}; print(lockstep.__file__)"]
        environment = {**os.environ, **self.environment}
        found = subprocess.run(
            command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False
        )
        return found.returncode == 0 and Path(found.stdout.strip()).is_relative_to(self.root)


class Rolling:
    """One service with programs of both versions.

    The node agent is of one version at a time.
    """

    def __init__(self, folder: Path, urls: Urls, broker: Broker) -> None:
        self.folder, self.urls, self.broker = folder, urls, broker
        self.database = Database(*urls)
        self.node = Node(folder, self.database, urls, broker.url, scale=SCALE)
        self.apis: list[Program] = []
        self.schedulers: list[Scheduler] = []

    def new_api(self, version: Version) -> Program:
        api = Program(
            self.folder,
            LOCKSTEP_DATABASE_URL=self.urls[0],
            LOCKSTEP_SERIES_URL=self.urls[1],
            LOCKSTEP_BROKER_URL=self.broker.url,
            LOCKSTEP_MIGRATE="off",
            **version.environment,
        )
        self.apis.append(api)
        return api

    def start_scheduler(self, version: Version, patch: pytest.MonkeyPatch) -> Scheduler:
        with patch.context() as patched:
            for name, value in version.environment.items():
                patched.setenv(name, value)
            number = len(self.schedulers)
            made = Scheduler(
                self.folder, self.urls, self.broker.url, timings_scale=SCALE, number=number
            )
        self.schedulers.append(made)
        return made

    def start_agent(self, version: Version) -> None:
        self.node.start(
            launcher=version.launcher, LOCKSTEP_CPU_SLOTS=DEVICES, **version.environment
        )

    def close(self) -> None:
        for scheduler in self.schedulers:
            scheduler.process.kill()
            scheduler.process.wait()
        for api in self.apis:
            api.end(9)
        self.node.close()
        self.database.close()


def migrate(api: Program) -> None:
    done = api.run("migrate")
    assert done.returncode == 0, done.stdout + done.stderr
