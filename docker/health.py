"""Health of this container's program: exit 0 if it works, otherwise 1 with the reason.

    python health.py api | scheduler | agent

A running process may still be stuck, so each program is checked by its latest work: the api by an
answer, the scheduler by a recent reconcile cycle, the agent by a heartbeat that reached the
database.

Not here: the state of training (see a job's outcome).
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

ANSWER_SECONDS = 4.0
"""A little less than the timeout of the health check, so that the reason is still written."""


def main(program: str) -> str:
    """Return the problem; empty if there is none."""
    if program == "api":
        return _api(int(os.environ.get("LOCKSTEP_PORT", "8470")))
    if program == "scheduler":
        return _scheduler()
    if program == "agent":
        return _agent()
    return f"no program is named {program!r}; expected api, scheduler or agent"


def _api(port: int) -> str:
    import urllib.request

    url = f"http://127.0.0.1:{port}/livez"
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS):
            return ""
    except OSError as error:
        return f"{url} does not answer: {error}"


def _scheduler() -> str:
    from lockstep.storage.control import agreed_timings, scheduler_lease
    from lockstep.storage.db.database import Database
    from lockstep.storage.db.settings import StorageSettings

    settings = StorageSettings()
    database = Database(settings.database_url, settings.series_url)
    try:
        with database.read_jobs() as session:
            gap = scheduler_lease.gap_seconds(session)
            limit = agreed_timings.read(session).outage_seconds
    finally:
        database.close()
    return (
        ""
        if gap <= limit
        else f"the last pass ended {gap:.0f} s ago; at most {limit:.0f} s are expected"
    )


def _agent() -> str:
    """Look at the file that the agent touches with every heartbeat (``worker.health``).

    The folder is the one that ``docker/slot.py`` has taken. Needs the standard library alone.
    """
    note = Path(tempfile.gettempdir(), "lockstep-node-folder")
    folder = note.read_text() if note.exists() else os.environ["LOCKSTEP_NODE_DIR"]
    file = Path(folder) / ".health"
    try:
        valid_seconds = float(file.read_text())
        silent = time.time() - file.stat().st_mtime
    except (OSError, ValueError):
        return f"the agent has made no heartbeat yet: {file} is not there"
    # A clock that was set back would make a dead agent young.
    return (
        ""
        if abs(silent) <= valid_seconds
        else (
            f"the last heartbeat was {silent:.0f} s ago; at most {valid_seconds:.0f} s are expected"
        )
    )


if __name__ == "__main__":
    problem = main(sys.argv[1] if len(sys.argv) > 1 else "")
    if problem:
        sys.exit(problem)
