"""Celery worker with a supervisor thread, shared by scheduler and agent.

The supervisor is a thread of the program. It is a step of the *worker's* blueprint: a step of the
consumer would be restarted at each reconnect and would not run while the broker is away. Celery's
worker starts its steps before it connects to the broker, and retries the connection without end.

On SIGTERM or SIGINT the signal handler stops the supervisor at once; Celery follows. A frozen
broker can keep Celery in a socket timeout, so the process exits after ``end_seconds`` in any case:
Celery holds no state that matters.

Not here: the supervisors (``scheduler.loop``, ``worker``).
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final, Protocol

from celery import Celery, bootsteps
from celery.worker import WorkController, state

from lockstep.system.watchdog import Watchdog

_GUARD_SECONDS: Final = 0.2
"""Interval at which the limit of an end is read."""


class BackgroundService(Protocol):
    """The part of a program that must run whether or not there is a broker."""

    def start(self) -> None:
        """Begin, in a thread of its own."""

    def request_stop(self) -> None:
        """Begin to end. Called from a signal handler: sets a flag, takes no lock."""

    def join(self) -> None:
        """Wait until it has ended. Called once, after ``request_stop``."""

    def runs(self) -> bool:
        """Return whether its thread is alive."""


def consume(
    app: Celery,
    supervisor: BackgroundService,
    *,
    name: str,
    end_seconds: Callable[[], float],
    watchdog: Watchdog,
) -> None:
    """Run a worker on the app's queue, and the supervisor, until SIGTERM or SIGINT.

    Call from the main thread.

    Parameters
    ----------
    app : Celery
        From ``make_app``, with its tasks registered.
    supervisor : Supervisor
    name : str
        Of this worker among all that share the broker.
    end_seconds : callable
        Returns how long an orderly end may take, supervisor and Celery together. It may grow.
    watchdog : Watchdog
        Ends the process if the supervisor ends or stands still.
    """

    class ServiceStep(bootsteps.StartStopStep):  # type: ignore[misc]  # celery publishes no types
        requires = ("celery.worker.components:Pool",)

        def start(self, _parent: Any) -> None:
            supervisor.start()
            watchdog.watch(supervisor.runs)

        def stop(self, _parent: Any) -> None:
            watchdog.let_end()
            supervisor.request_stop()
            supervisor.join()

    app.steps["worker"].add(ServiceStep)
    worker = WorkController(
        app=app,
        hostname=name,
        pool="threads",
        concurrency=1,  # Each task lasts milliseconds.
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
    )

    def exit_late(started: float) -> None:
        while time.monotonic() < started + end_seconds():
            time.sleep(_GUARD_SECONDS)
        os._exit(os.EX_OK)

    def end(_signal: int, _frame: FrameType | None) -> None:
        watchdog.let_end()
        supervisor.request_stop()
        state.should_stop = os.EX_OK
        threading.Thread(target=exit_late, args=(time.monotonic(),), daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    worker.start()
