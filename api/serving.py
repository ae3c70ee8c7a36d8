"""Lifecycle of the server: token, socket, application, and their orderly shutdown.

The socket is bound before the application starts. The address is logged once requests are answered,
and clients that read it from the log can connect immediately.

Not here: restarting the server (``lockstep up``, or any supervisor).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import structlog
import uvicorn

from lockstep.api.app import create_app
from lockstep.api.auth.bearer import ensure_token
from lockstep.api.jobs import forecasts
from lockstep.api.parts import AppState
from lockstep.api.protocol import ProblemProtocol
from lockstep.api.settings import ApiSettings
from lockstep.broker.publisher import Publisher
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.storage.db import schema
from lockstep.storage.db.database import Database
from lockstep.storage.db.engines import CONNECTIONS_MAX
from lockstep.storage.objects.blobs import BlobStore
from lockstep.system.watchdog import Watchdog

DRAIN_SECONDS: Final = 5
"""Time for requests in progress to finish after a stop signal."""
KEEP_ALIVE_SECONDS: Final = 30
"""Longer than any client's polling interval, to reuse the connections of polling clients."""

log = structlog.get_logger("api")


def serve(settings: ApiSettings) -> int:
    """Serve until a signal requests the stop."""
    with contextlib.ExitStack() as stack:
        # Keep all connections open: a burst of requests uses all of them, and bursts recur every
        # second.
        database = Database(settings.database_url, settings.series_url, kept=CONNECTIONS_MAX)
        stack.callback(database.close)
        schema.require(database)
        if settings.token_file is not None:
            ensure_token(settings.token_file, database)
        listener = stack.enter_context(_listen(settings.host, settings.port))
        publisher = Publisher(settings.broker_url)
        stack.callback(publisher.close)
        blobs = BlobStore(settings.store)
        with contextlib.suppress(OSError):  # reported by /readyz while it lasts
            blobs.create()
        app = create_app(
            settings, database, blobs, publisher, compute_forecast=forecasts.app_state()
        )
        parts: AppState = app.state.parts
        stack.callback(parts.forecasts.close)
        stack.callback(parts.following.join)
        config = uvicorn.Config(
            app,
            http=ProblemProtocol,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        _Server(config, listener, parts).run(sockets=[listener])
    return 0


class _Server(uvicorn.Server):
    """Uvicorn server that logs its address, is watched, and closes log streams at shutdown."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket, parts: AppState):
        super().__init__(config)
        self._parts = parts
        self._listener = listener
        self._watchdog = Watchdog("event loop")

    async def on_tick(self, counter: int) -> bool:
        self._watchdog.report()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._watchdog.let_end()
        # Before the graceful shutdown, which waits for requests in progress: a log stream does not
        # end by itself.
        self._parts.following.close()
        await super().shutdown(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._watchdog.watch()
            log.info("listening", url=url_of(self._listener))


@contextlib.contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    """Yield a socket that is bound to the address and does not listen yet."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(host, port, error) from None
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
        except OSError as error:
            raise _cannot_listen(host, port, error) from None
        yield listener


def url_of(listener: socket.socket) -> str:
    """Return the URL of the socket for clients on this machine."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _cannot_listen(host: str, port: int, error: OSError) -> LockstepError:
    return LockstepError(
        ErrorCode.INVALID,
        f"cannot listen on {host} port {port}: {error.strerror}",
        next_step="stop the other program on this port, or set LOCKSTEP_HOST and LOCKSTEP_PORT",
    )
