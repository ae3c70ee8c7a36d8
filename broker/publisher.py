"""Publisher of notifications that never blocks its caller.

A publish to a frozen broker blocks, and to an absent one fails; requests and reconcile cycles can
afford neither. ``publish`` only enqueues, and one thread sends, with short timeouts and few
retries; then the message is dropped: every notification may be lost. A message that is already
queued is not queued twice, the same one is not sent again within a short time, and the oldest is
dropped when the queue is full.

Not here: the recovery from lost notifications (reconcile cycles and heartbeats).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import OrderedDict
from typing import Any, Final

import structlog

from lockstep.broker.app import TRANSPORT, make_app
from lockstep.broker.messages import Message
from lockstep.broker.queues import CONTROL

WAITING_MAX: Final = 1_000
"""Messages. More than that waiting means that the broker is away, and that most of them are
stale."""
SEND_SECONDS_MAX: Final = 1.0
"""For one answer of the broker."""
TRIES: Final = 2
"""The first may find a connection that broke while it was idle."""
CLOSE_SECONDS: Final = 1.0
REST_SECONDS: Final = 0.05
"""Minimum interval between two equal notifications: hundreds of submits a second cause one, and
reconcile cycles are farther apart than this."""

log = structlog.get_logger("broker.publisher")


class Publisher:
    """Sends messages from a thread of its own. Safe to use from any thread, and after a fork.

    Parameters
    ----------
    broker_url : str
        As in ``BrokerSettings``. Nothing is connected before the first message.
    waiting_max : int
        Messages that may wait; beyond it the oldest is dropped.
    """

    def __init__(self, broker_url: str, *, waiting_max: int = WAITING_MAX) -> None:
        self._app = make_app(broker_url, queue=CONTROL)
        self._waiting_max = waiting_max
        self._begin()

    def _begin(self) -> None:
        """State of a process that has published nothing yet."""
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._waiting: OrderedDict[Message, None] = OrderedDict()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._failing = False
        self._last: Message | None = None
        self._last_at = 0.0
        self._connection: Any = None
        self._producer: Any = None

    def publish(self, message: Message) -> None:
        """Send this soon, if that is possible. Never blocks and never raises."""
        if self._pid != os.getpid():
            # A fork copied the queue, but not the thread; and the lock may have been copied while
            # it was held.
            self._begin()
        with self._changed:
            if self._closed:
                return
            is_new = message not in self._waiting
            self._waiting[message] = None
            if len(self._waiting) > self._waiting_max:
                self._waiting.popitem(last=False)
            # A thread that ended by a defect is started again: messages would pile up unsent.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="publisher", daemon=True)
                self._thread.start()
            if is_new:  # else the thread waits for the end of its rest
                self._changed.notify()

    def close(self) -> None:
        """Send the queued messages within at most a second, and end."""
        if self._pid != os.getpid():
            return
        with self._changed:
            self._closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            # Not waited for any longer: it is a daemon, and may be inside a socket's timeout.
            thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._changed:
                while (message := self._due()) is None and not self._closed:
                    self._changed.wait(REST_SECONDS if self._waiting else None)
                if message is None or (self._closed and self._failing):
                    break
                del self._waiting[message]
            self._send(message)
            self._last, self._last_at = message, time.monotonic()
        self._disconnect()

    def _due(self) -> Message | None:
        """The oldest that waits and does not rest."""
        rests = not self._closed and time.monotonic() < self._last_at + REST_SECONDS
        return next(
            (message for message in self._waiting if not rests or message != self._last), None
        )

    def _send(self, message: Message) -> None:
        for attempt in range(TRIES):
            if attempt:
                time.sleep(0.1 * attempt)
            try:
                self._app.send_task(
                    message.task,
                    args=message.arguments(),
                    queue=message.queue,
                    producer=self._connected(),
                    retry=False,
                )
            except Exception as error:  # noqa: BLE001 -- the notification is lost and the service continues
                self._disconnect()
                problem = error
            else:
                if self._failing:
                    log.info("the broker answers again")
                self._failing = False
                return
        if not self._failing:
            # Once per outage, not once per notifier.
            log.warning(
                "the broker does not answer; jobs start with a short delay",
                error=str(problem) or repr(problem),
            )
        self._failing = True

    def _connected(self) -> Any:
        """A producer on this thread's own connection."""
        if self._producer is None:
            options = {
                **TRANSPORT,
                "socket_timeout": SEND_SECONDS_MAX,
                "socket_connect_timeout": SEND_SECONDS_MAX,
            }
            self._connection = self._app.connection_for_write(transport_options=options)
            self._producer = self._app.amqp.Producer(self._connection, auto_declare=False)
        return self._producer

    def _disconnect(self) -> None:
        connection, self._connection, self._producer = self._connection, None, None
        if connection is not None:
            with contextlib.suppress(Exception):  # it may be the connection that failed
                connection.release()
