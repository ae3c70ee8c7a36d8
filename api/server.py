"""Start of the program: settings, logging, schema; then the server.

An invalid setting ends the start with exit code 2 and one line that names the setting and the next
step. The application is imported last: the import takes about a second, which an invalid setting or
``migrate`` should not cost.

Not here: serving (``api.serving``).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import structlog
from pydantic import ValidationError
from structlog.typing import Processor

from lockstep.api.settings import ApiSettings
from lockstep.domain.errors import LockstepError
from lockstep.storage.db import migrate


def main(arguments: Sequence[str]) -> int:
    """Run one of the two commands and return the exit code."""
    if list(arguments) not in ([], ["migrate"]):
        print("usage: python -m lockstep.api [migrate]", file=sys.stderr)  # noqa: T201 -- usage of a command
        return 2
    try:
        settings = ApiSettings()
        configure_logging(settings.log_format)
        return _migrate(settings) if arguments else _serve(settings)
    except ValidationError as error:
        for line in error.errors():
            name = "_".join(["LOCKSTEP", *(str(part).upper() for part in line["loc"])]) if line["loc"] else "settings"
            print(f"api: {name}: {line['msg'].removeprefix('Value error, ')}", file=sys.stderr)  # noqa: T201 -- no log yet
        return 2
    except LockstepError as error:
        print(f"api: {error.message}; {error.next_step}", file=sys.stderr)  # noqa: T201 -- no log yet
        return 2


def _migrate(settings: ApiSettings) -> int:
    urls = settings.database_url, settings.series_url
    try:
        behind = migrate.pending(*urls)
    except LockstepError:
        behind = ["jobs", "series"]  # SQLite without its folder; any other error is raised again by the upgrade
    migrate.upgrade(*urls)
    for which in ("jobs", "series"):
        print(f"{which}: {'brought to this version' if which in behind else 'already up to date'}")  # noqa: T201 -- output of a command
    return 0


def _serve(settings: ApiSettings) -> int:
    if settings.migrate == "on":
        migrate.upgrade(settings.database_url, settings.series_url)
    from lockstep.api.serving import serve

    return serve(settings)


def configure_logging(log_format: str) -> None:
    """Log to stderr, one line per event.

    Records of libraries have the same format, from level WARNING up.
    """
    console = log_format == "console"
    common: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        *([] if console else [structlog.processors.format_exc_info]),
    ]
    rendered: Processor = structlog.processors.JSONRenderer()
    if console:
        # Without local variables, which the default traceback includes: they may be secrets.
        plain = structlog.dev.plain_traceback
        rendered = structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), exception_formatter=plain)
    structlog.configure(
        processors=[*common, rendered],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    of_libraries = logging.StreamHandler(sys.stderr)
    of_libraries.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *common],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, rendered],
        )
    )
    logging.basicConfig(level=logging.WARNING, handlers=[of_libraries])
