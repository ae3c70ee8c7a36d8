"""The Celery app, with every setting and its reason.

Not here: the worker (``broker.consumer``), and the tasks (``scheduler``, ``worker``).
"""

from __future__ import annotations

import ssl
from queue import Empty
from typing import Any, Final

from celery import Celery
from celery.app.amqp import AMQP
from kombu.connection import Connection
from kombu.entity import Queue
from kombu.transport import redis
from redis.exceptions import ResponseError

from lockstep.broker.incoming import DROPS, BadMessageError, arguments_of, rebuilt

RECONNECT_SECONDS_MAX: Final = 2.0
"""Longest wait between two connection attempts. Kombu's own waits grow to 30 s, and delay
notifications by as much."""

SETTINGS: Final[dict[str, Any]] = {
    # Messages are ids. JSON alone: a pickle from the broker would be code.
    "task_serializer": "json",
    "accept_content": ["json"],
    # No result backend: every state it could hold is weaker than the job's row.
    "task_ignore_result": True,
    "task_store_errors_even_if_ignored": False,
    # The lease in the database owns a running job, and no task lasts long enough to be redelivered.
    "task_acks_late": False,
    # A worker without its broker tries to connect forever: its supervisor works in the meantime.
    "broker_connection_retry": True,
    "broker_connection_retry_on_startup": True,
    "broker_connection_max_retries": None,
    # So does one whose broker answers with an error.
    "broker_channel_error_retry": True,
    "broker_pool_acquire_timeout": 5,
    # A reconnect must not stop a task that is running: it is only claiming and launching.
    "worker_enable_prefetch_count_reduction": False,
    "worker_cancel_long_running_tasks_on_connection_loss": False,
    # Pub/Sub commands and events between workers have no consumer, and cause most failures at a
    # reconnect.
    "worker_enable_remote_control": False,
    "worker_send_task_events": False,
    # The programs log by themselves, also for Celery.
    "worker_hijack_root_logger": False,
    "worker_redirect_stdouts": False,
    "task_create_missing_queues": True,
    "enable_utc": True,
}

TRANSPORT: Final[dict[str, Any]] = {
    # A frozen server keeps its connections open: without this a command waits for its answer
    # forever. Well above the
    # second that a consumer's BRPOP waits.
    "socket_timeout": 5,
    "socket_connect_timeout": 2,
    "socket_keepalive": True,
    # A half-open connection is dropped after 1 + 2 × this many seconds.
    "health_check_interval": 5,
    # A Redis that others use too keeps our keys apart.
    "global_keyprefix": "lockstep:",
}


class _Qos(redis.QoS):
    """Restores nothing: no message waits for an acknowledgement, so these keys are foreign."""

    def restore_visible(self, *_args: Any, **_options: Any) -> None:
        """Read nothing from the broker."""


class _Channel(redis.Channel):
    """Reads without acknowledgements.

    A notification may be lost, and with acknowledgements a dying broker ends its workers.

    Celery logs an acknowledgement that fails and continues, and its message counts against the
    prefetch permanently: the worker never reads again, and never notices that its connection is
    gone. An acknowledgement that a pool's thread sends after the reconnect ends the worker, because
    its channel has no transport any more. Both were observed within a few restarts of the broker
    under load, with Celery 5.7 and Kombu 5.7.
    """

    QoS = _Qos

    def _brpop_read(self, **options: Any) -> Any:
        """Read one message; drop malformed data, which would end the worker."""
        try:
            return super()._brpop_read(**options)  # type: ignore[no-untyped-call]  # kombu has no types
        except (Empty, *_Transport.connection_errors):
            raise
        except ResponseError as error:
            if not str(error).startswith("WRONGTYPE"):
                raise
            DROPS.add(f"the key of a queue is not a list: {error}")
            self._remove_queues()
        except Exception as error:  # noqa: BLE001 -- the bytes are a stranger's, and decoding them may raise anything
            DROPS.add(f"the message cannot be decoded: {error!r}")
        return True

    def _remove_queues(self) -> None:
        with self.conn_or_acquire() as client:
            for queue in self.active_queues:
                for priority in self.priority_steps:
                    client.delete(self._q_for_pri(queue, priority))  # type: ignore[no-untyped-call]  # kombu has no types

    def basic_consume(self, queue: str, no_ack: bool, *args: Any, **options: Any) -> Any:  # noqa: ARG002 -- see above
        return super().basic_consume(queue, True, *args, **options)  # type: ignore[no-untyped-call]  # kombu has no types

    def basic_ack(self, *_args: Any, **_options: Any) -> None:
        """Nothing was kept to be acknowledged."""

    def basic_reject(self, *_args: Any, **_options: Any) -> None:
        """Nothing was kept to be put back."""


class _Transport(redis.Transport):
    Channel = _Channel

    def _deliver(self, message: Any, queue: str) -> None:
        try:
            task, arguments = arguments_of(message, queue)
        except BadMessageError as error:
            DROPS.add(str(error))
            return
        super()._deliver(rebuilt(task, arguments, queue), queue)  # type: ignore[no-untyped-call]  # kombu has no types


class _Connection(Connection):
    """Connection with this transport, with a short retry interval after any outage."""

    def get_transport_cls(self) -> type[_Transport]:
        return _Transport

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        often = {"interval_start": 0.2, "interval_step": 0.4, "interval_max": RECONNECT_SECONDS_MAX}
        return super().ensure_connection(*args, **{**options, **often})  # type: ignore[no-untyped-call]  # kombu has no types


class _Amqp(AMQP):  # type: ignore[misc]  # celery publishes no types
    Connection = _Connection


def make_app(broker_url: str, *, queue: str) -> Celery:
    """A Celery app that consumes ``queue`` and may send to any.

    Parameters
    ----------
    broker_url : str
        As in ``BrokerSettings``.
    queue : str
        ``CONTROL`` or a ``node_queue``.
    """
    app = Celery(
        "lockstep",
        broker=broker_url,
        amqp=_Amqp,
        set_as_current=False,
        changes={},
        config_source=None,
    )
    app.conf.update(SETTINGS)
    if broker_url.startswith("rediss://"):
        # Without options Kombu verifies nothing. Options in the URL replace this one, and Redis'
        # own default verifies.
        app.conf.broker_use_ssl = {"ssl_cert_reqs": ssl.CERT_REQUIRED}
    app.conf.update(
        broker_transport_options=dict(TRANSPORT),
        # Only this one: an agent must not answer for another node.
        task_queues=[Queue(queue, routing_key=queue)],  # type: ignore[no-untyped-call]  # kombu has no types
        task_default_queue=queue,
    )
    return app
