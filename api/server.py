"""The program's start: settings, logging, schema, in this order; then it serves.

What a person has set wrong ends the start with one line that says what to do, and exit code 2. The application is
imported last: it takes a second that neither a wrong setting nor ``migrate`` should cost.

Not here: serving (``api.serving``).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

import structlog
from pydantic import ValidationError
from structlog.typing import Processor

from lockstep.api.settings import Settings
from lockstep.domain.errors import LockstepError
from lockstep.storage.db import migrate


def main(arguments: Sequence[str]) -> int:
    """Run one of the two commands; the exit code."""
    if list(arguments) not in ([], ["migrate"]):
        print("usage: python -m lockstep.api [migrate]", file=sys.stderr)  # noqa: T201 -- a command's usage
        return 2
    try:
        settings = Settings()
        configure_logging(settings.log_format)
        return _migrate(settings) if arguments else _serve(settings)
    except ValidationError as error:
        for line in error.errors():
            name = "_".join(["LOCKSTEP", *(str(part).upper() for part in line["loc"])]) if line["loc"] else "settings"
            print(f"api: {name}: {line['msg'].removeprefix('Value error, ')}", file=sys.stderr)  # noqa: T201 -- before there is a log
        return 2
    except LockstepError as error:
        print(f"api: {error.message}; {error.next_step}", file=sys.stderr)  # noqa: T201 -- before there is a log
        return 2


def _migrate(settings: Settings) -> int:
    urls = settings.database_url, settings.series_url
    try:
        behind = migrate.pending(*urls)
    except LockstepError:
        behind = ["jobs", "series"]  # SQLite without its folder; anything else ends the upgrade, too
    migrate.upgrade(*urls)
    for which in ("jobs", "series"):
        print(f"{which}: {'brought to this version' if which in behind else 'already up to date'}")  # noqa: T201 -- a command's answer
    return 0


def _serve(settings: Settings) -> int:
    if settings.migrate == "on":
        migrate.upgrade(settings.database_url, settings.series_url)
    from lockstep.api.serving import serve

    return serve(settings)


def configure_logging(log_format: str) -> None:
    """Log to stderr, one line per event, in one form for what libraries say, too; these only from warnings up."""
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
        # Without the values of local variables, which the default adds: they may be secrets.
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
