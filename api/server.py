"""The program: settings, schema, token, socket, in this order; and everything closed again at the end.

The address is bound before anything is served, and said only once requests are answered there, so whoever reads the log
may connect. What a person has set wrong ends the start with one line that says what to do, and exit code 2.

Not here: restarting it (``lockstep up``, or any supervisor).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import Final

import structlog
import uvicorn
from pydantic import ValidationError

from api.app import create_app
from api.auth import ensure_token
from api.settings import Settings
from broker.publisher import Publisher
from domain.errors import ErrorCode, LockstepError
from storage import migrate
from storage.blobs import BlobStore
from storage.database import Database

DRAIN_SECONDS: Final = 5
"""Requests in progress have this long when the service is asked to stop."""
KEEP_ALIVE_SECONDS: Final = 30
"""Longer than any client's polling interval, so that a follower keeps its connection."""

log = structlog.get_logger("api")


def main(arguments: Sequence[str]) -> int:
    """Run one of the two commands; the exit code."""
    if list(arguments) not in ([], ["migrate"]):
        print("usage: python -m api [migrate]", file=sys.stderr)  # noqa: T201 -- a command's usage
        return 2
    try:
        settings = Settings()
        configure_logging(settings.log_format)
        return _migrate(settings) if arguments else serve(settings)
    except ValidationError as error:
        for line in error.errors():
            name = "_".join(["LOCKSTEP", *(str(part).upper() for part in line["loc"])]) if line["loc"] else "settings"
            print(f"api: {name}: {line['msg'].removeprefix('Value error, ')}", file=sys.stderr)  # noqa: T201
        return 2
    except LockstepError as error:
        print(f"api: {error.message}; {error.next_step}", file=sys.stderr)  # noqa: T201
        return 2


def _migrate(settings: Settings) -> int:
    urls = settings.database_url, settings.series_url
    try:
        behind = migrate.pending(*urls)
    except LockstepError:
        behind = ["jobs", "series"]  # SQLite without its folder; anything else ends the upgrade, too
    migrate.upgrade(*urls)
    for which in ("jobs", "series"):
        print(f"{which}: {'brought to this version' if which in behind else 'already up to date'}")  # noqa: T201
    return 0


def serve(settings: Settings) -> int:
    """Serve until a signal asks to stop."""
    if settings.migrate == "on":
        migrate.upgrade(settings.database_url, settings.series_url)
    with contextlib.ExitStack() as stack:
        database = Database(settings.database_url, settings.series_url)
        stack.callback(database.close)
        if settings.token_file is not None:
            ensure_token(settings.token_file, database)
        listener = stack.enter_context(_listen(settings.host, settings.port))
        publisher = Publisher(settings.broker_url)
        stack.callback(publisher.close)
        app = create_app(settings, database, BlobStore(settings.store), publisher)
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=DRAIN_SECONDS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        _Server(config, listener).run(sockets=[listener])
    return 0


class _Server(uvicorn.Server):
    """Says where it listens once it does."""

    def __init__(self, config: uvicorn.Config, listener: socket.socket):
        super().__init__(config)
        self._listener = listener

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            log.info("listening", url=url_of(self._listener))


@contextlib.contextmanager
def _listen(host: str, port: int) -> Iterator[socket.socket]:
    """A socket bound to the address, not yet listening."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
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
    """Where a client on this machine reaches it."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def configure_logging(log_format: str) -> None:
    """Log to stderr, one line per event; libraries only from warnings up."""
    console = log_format == "console"
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.StackInfoRenderer(),
            *([] if console else [structlog.processors.format_exc_info]),
            structlog.dev.ConsoleRenderer(
                # Without the values of local variables, which the default adds: they may be secrets.
                colors=sys.stderr.isatty(),
                exception_formatter=structlog.dev.plain_traceback,
            )
            if console
            else structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def _cannot_listen(host: str, port: int, error: OSError) -> LockstepError:
    return LockstepError(
        ErrorCode.INVALID,
        f"cannot listen on {host} port {port}: {error.strerror}",
        next_step="stop what listens there, or set LOCKSTEP_HOST and LOCKSTEP_PORT",
    )
