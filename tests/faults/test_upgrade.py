"""A rolling upgrade with a migration: programs replaced one after the other, no job affected (F27).

The old version is the last tag, or, if there is none, the last commit before the one with the
newest migration whose programs start. Its files are taken from git, and its programs run in the
same environment as the new ones.

Not here: the effect of a migration on rows (``tests.storage.test_migrations``).
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.harness.databases import Urls
from tests.harness.drills import Drill
from tests.harness.faults.versions import Rolling, Version, migrate
from tests.harness.plane import ENDED, PATIENCE_SECONDS, running, script
from tests.harness.processes import ROOT, Program, running_broker, until

COMMITS_MAX: Final = 5
"""Number of commits that are tried."""


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_urls(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Urls]:
    """Return databases without a table."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db", f"sqlite:///{tmp_path}/series.db"
        return
    server = request.getfixturevalue("postgres_server")
    name = server.create()
    yield server.url(name), server.url(name)
    server.drop(name)


@pytest.mark.drill
@pytest.mark.timeout(900)
def test_a_rolling_upgrade_disturbs_no_job(
    empty_urls: Urls, tmp_path: Path, drill: Drill, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = empty_urls[0].partition(":")[0].partition("+")[0]
    drill.begin("F27", f"rolling upgrade with a migration, {kind}")
    old, new = before_the_migration(tmp_path), Version(ROOT)
    jobs: dict[str, Path] = {}
    with ExitStack() as stack:
        broker = stack.enter_context(running_broker())
        rolling = Rolling(tmp_path, empty_urls, broker)
        stack.callback(rolling.close)
        first = rolling.new_api(old)
        migrate(first)
        first.start()
        rolling.start_scheduler(old, monkeypatch)
        rolling.start_agent(old)
        submit(rolling, first, jobs, "before")

        second = rolling.new_api(new)
        migrate(second)
        drill.injected += 1
        submit(rolling, first, jobs, "old programs over new tables")

        second.start()
        rolling.start_scheduler(new, monkeypatch)
        drill.injected += 2
        submit(rolling, first, jobs, "side by side, at the old api")
        submit(rolling, second, jobs, "side by side, at the new api")
        rolling.schedulers[0].end()
        submit(rolling, first, jobs, "placed by the new scheduler, run by the old agent")

        drill.recoveries.append(replace_agent(rolling, new))
        drill.injected += 1
        first.end()
        submit(rolling, second, jobs, "new programs alone")
        for job, flag in jobs.items():
            check_undisturbed(rolling, job, flag, drill)
    print(
        f"{len(jobs)} jobs, each of one attempt; a new agent took over within "
        f"{drill.recoveries[-1]:.2f} s"
    )


def before_the_migration(folder: Path) -> Version:
    """Return the old tree."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("NOT RUN: there is no git history to take the version before from")
    brought = git("log", "-1", "--diff-filter=A", "--format=%H", "--", "migrations/*/versions/*.py")
    before = (
        git("rev-list", "--first-parent", f"-{COMMITS_MAX}", f"{brought}^").split()
        if brought
        else []
    )
    for commit in (git("describe", "--tags", "--abbrev=0"), *before):
        version = Version(folder / commit)
        if commit and unpack(commit, version.root) and version.starts():
            return version
    pytest.skip(
        "NOT RUN: the git history does not reach back to a version before the newest migration"
    )


def unpack(commit: str, folder: Path) -> bool:
    folder.mkdir()
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode != 0:
        return False
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return True


def git(*words: str) -> str:
    """Return the output of git; empty if it fails."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def submit(rolling: Rolling, api: Program, jobs: dict[str, Path], name: str) -> None:
    """Submit a job that runs until its flag exists, and wait until it runs."""
    flag = rolling.folder / f"flag-{len(jobs)}"
    with api.client() as http:
        answer = http.post("/v1/jobs", json=script(running(flag), name=f"job-{len(jobs)}"))
        assert answer.status_code == 201, (name, answer.text)
        job = answer.json()["id"]
    jobs[job] = flag
    until(lambda: steps(rolling, job), PATIENCE_SECONDS, f"it runs: {name}")


def replace_agent(rolling: Rolling, version: Version) -> float:
    """SIGTERM the agent, which leaves its jobs running, and start another.

    Return the seconds until it has all of them.
    """
    rolling.node.terminate()
    ended = time.monotonic()
    rolling.start_agent(version)
    return time.monotonic() - ended


def steps(rolling: Rolling, job: str) -> list[int]:
    found = rolling.node.series(job)
    return found["loss"].step if "loss" in found else []


def check_undisturbed(rolling: Rolling, job: str, flag: Path, drill: Drill) -> None:
    flag.touch()
    row = rolling.node.wait(job, *ENDED, seconds=PATIENCE_SECONDS)
    assert row.state.value == "succeeded", rolling.node.events(job)
    assert row.attempt_count == 1, rolling.node.events(job)
    found, wanted = steps(rolling, job), list(range(int(flag.read_text())))
    drill.lost += len(set(wanted) - set(found))
    drill.doubled += len(found) - len(set(found))
    assert found == wanted
