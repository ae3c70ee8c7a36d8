"""The node agent as a program: its parts, and Celery around them (``broker.consumer``).

Tasks only put a notification into the supervisor's inbox and return within microseconds.
Acknowledgements, prefetching and visibility timeouts therefore never matter.

Not here: the supervisor (``worker.agent.supervisor``).
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import structlog

from lockstep.broker.app import make_app
from lockstep.broker.consumer import consume
from lockstep.broker.messages import StartAssignment, StopAssignment, WakeScheduler
from lockstep.broker.publisher import Publisher
from lockstep.broker.queues import node_queue
from lockstep.domain.life import attempt
from lockstep.domain.version import VERSION
from lockstep.storage.db import schema
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from lockstep.system.processes import keep_files_private
from lockstep.system.watchdog import Watchdog
from lockstep.worker.agent.supervisor import Supervisor, WakeUp
from lockstep.worker.devices import inventory
from lockstep.worker.launch import launching
from lockstep.worker.launch.fork_client import COMMAND as WARM_COMMAND
from lockstep.worker.launch.fork_client import ForkServer
from lockstep.worker.settings import AgentSettings

log = structlog.get_logger(__name__)

LOCK_SECONDS = 20.0
"""Wait of a new agent for the end of the previous one."""
CELERY_SECONDS = 3.0
"""Time for Celery to close its connections after the supervisor has ended."""


def run(
    settings: AgentSettings,
    *,
    launcher_command: Sequence[str] = launching.LAUNCHER_COMMAND,
    warm_command: Sequence[str] | None = None,
) -> None:
    """Run one node agent until SIGTERM or SIGINT. Call from the main thread.

    By default launchers are the engine's, and forked from the engine's warm process. Others are
    started by exec, unless there is a ``warm_command`` for them.

    Raises
    ------
    LockstepError
        When the databases have another schema than this program.
    """
    if warm_command is None and launcher_command == launching.LAUNCHER_COMMAND:
        warm_command = WARM_COMMAND
    environment = {
        **launching.environment_of(os.environ),
        attempt.UMASK_VARIABLE: f"{keep_files_private():03o}",
    }
    with _alone(settings.node_dir), _databases(settings) as (heartbeats, uploads):
        schema.require_once_up(
            heartbeats,
            lambda why: log.warning("the schema version cannot be checked yet", error=why),
        )
        publisher = Publisher(settings.broker_url)
        watchdog = Watchdog("supervisor loop")
        supervisor = Supervisor(
            settings,
            heartbeats=heartbeats,
            uploads=uploads,
            blobs=BlobStore(settings.store),
            devices=inventory.devices(settings.cpu_slots),
            version=VERSION,
            freed=lambda: publisher.publish(WakeScheduler()),
            environment=environment,
            fork_server=ForkServer(environment, warm_command)
            if settings.warm_launch and warm_command is not None
            else None,
            launcher_command=launcher_command,
            report=watchdog.report,
        )
        try:
            _serve(settings, supervisor, watchdog)
        finally:
            publisher.close()


def _serve(settings: AgentSettings, supervisor: Supervisor, watchdog: Watchdog) -> None:
    app = make_app(settings.broker_url, queue=node_queue(settings.node_name))

    @app.task(name=StartAssignment.task)  # type: ignore[untyped-decorator]  # celery publishes no types
    def start_assignment(assignment_id: str) -> None:
        supervisor.wake(WakeUp("start", assignment_id))

    @app.task(name=StopAssignment.task)  # type: ignore[untyped-decorator]  # celery publishes no types
    def stop_assignment(assignment_id: str) -> None:
        supervisor.wake(WakeUp("stop", assignment_id))

    consume(
        app,
        supervisor,
        name=f"agent@{settings.node_name}",
        end_seconds=lambda: supervisor.end_seconds() + CELERY_SECONDS,
        watchdog=watchdog,
    )


@contextmanager
def _databases(settings: AgentSettings) -> Iterator[tuple[Database, Database]]:
    heartbeats = Database(settings.database_url, settings.series_url)
    uploads = Database(settings.database_url, settings.series_url)
    try:
        yield heartbeats, uploads
    finally:
        heartbeats.close()
        uploads.close()


@contextmanager
def _alone(node_dir: Path) -> Iterator[None]:
    """Hold the folder's lock: two agents on one folder would start everything twice.

    Raises
    ------
    SystemExit
        If another agent has it and does not end within ``LOCK_SECONDS``.
    """
    node_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle = os.open(node_dir / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if not _locked(handle, seconds=0):
            log.info("waiting for the previous agent to end", node_dir=str(node_dir))
            if not _locked(handle, seconds=LOCK_SECONDS):
                sys.exit(
                    f"another node agent uses {node_dir}; stop it, or set another "
                    f"LOCKSTEP_NODE_DIR for this one"
                )
        yield
    finally:
        os.close(handle)


def _locked(handle: int, *, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.1)
