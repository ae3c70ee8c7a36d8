"""Validation of messages before Celery reads them.

Messages that no program of Lockstep sent are dropped.

Every process that reaches the broker can write to its queues. Kombu and Celery raise on bytes that
are no JSON, on missing properties and on unknown tasks, and an exception there ends the worker, and
with it the agent or the scheduler. They also act on fields that no notification uses: an ETA,
callbacks, chains. A message is therefore read strictly (``arguments_of``), and Celery receives one
that is built from the task's name and its arguments only (``rebuilt``).

Not here: the call from the transport (``broker.app``).
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from lockstep.broker.messages import StartAssignment, StopAssignment, WakeScheduler
from lockstep.broker.queues import CONTROL

MESSAGE_CHARS_MAX: Final = 16_384
"""Limit of a message's body. A notification has some hundred."""
BURST_SECONDS: Final = 60.0
"""Dropped messages are logged at most this often."""
_ID: Final = re.compile(r"[\w.-]{1,100}", re.ASCII)

log = structlog.get_logger("broker.incoming")


class BadMessageError(Exception):
    """Message that no program of Lockstep sent. The text names the fault."""


def arguments_of(payload: object, queue: str) -> tuple[str, list[str]]:
    """Return the task's name and its arguments of a message in ``queue``.

    Parameters
    ----------
    payload : object
        The decoded envelope, as Kombu writes it.
    queue : str

    Raises
    ------
    BadMessageError
    """
    if not isinstance(payload, Mapping):
        raise BadMessageError(f"the message is a {type(payload).__name__}, expected an object")
    headers = payload.get("headers")
    task = headers.get("task") if isinstance(headers, Mapping) else None
    expected = (
        {WakeScheduler.task: 0}
        if queue == CONTROL
        else {StartAssignment.task: 1, StopAssignment.task: 1}
    )
    if not isinstance(task, str) or task not in expected:
        raise BadMessageError(f"the task is {task!r:.100}, expected one of {sorted(expected)}")
    decoded = _json_in(payload.get("body"))
    arguments = decoded[0] if isinstance(decoded, list) and decoded else None
    if not isinstance(arguments, list) or len(arguments) != expected[task]:
        raise BadMessageError(f"{task} takes {expected[task]} arguments, got {arguments!r:.100}")
    if not all(isinstance(argument, str) and _ID.fullmatch(argument) for argument in arguments):
        raise BadMessageError(f"the argument of {task} is not an id: {arguments!r:.100}")
    return task, arguments


def _json_in(body: object) -> object:
    if not isinstance(body, str) or len(body) > MESSAGE_CHARS_MAX:
        raise BadMessageError(f"the body is not a text of at most {MESSAGE_CHARS_MAX} characters")
    try:
        return json.loads(base64.b64decode(body, validate=True))
    except (ValueError, RecursionError) as error:
        raise BadMessageError(f"the body is not base64-encoded JSON: {error}") from None


def rebuilt(task: str, arguments: list[str], queue: str) -> dict[str, Any]:
    """Return Celery's message (protocol 2) for this task and these arguments."""
    tag = str(uuid.uuid4())
    embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return {
        "body": base64.b64encode(json.dumps([arguments, {}, embedded]).encode()).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {
            "lang": "py",
            "task": task,
            "id": tag,
            "root_id": tag,
            "parent_id": None,
            "group": None,
        },
        "properties": {
            "correlation_id": tag,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": tag,
        },
    }


class Drops:
    """Counts dropped messages, and logs the first of a burst. Safe to use from any thread.

    Parameters
    ----------
    clock : callable, optional
        Seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.count = 0
        self._clock = clock
        self._lock = threading.Lock()
        self._logged_at: float | None = None

    def add(self, why: str) -> None:
        """Count one, and log it unless another was logged within ``BURST_SECONDS``."""
        now = self._clock()
        with self._lock:
            self.count += 1
            if self._logged_at is not None and now < self._logged_at + BURST_SECONDS:
                return
            self._logged_at = now
            count = self.count
        log.warning("a broker message was dropped", why=why[:300], dropped_in_all=count)


DROPS: Final = Drops()
"""Of this process."""
