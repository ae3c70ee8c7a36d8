"""Logging of a server program: one line per event, from structlog and from ``logging``.

The only module of this room that is not limited to the standard library.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal, TextIO

import structlog
from structlog.typing import Processor

LogFormat = Literal["console", "json"]


def configure(
    log_format: LogFormat,
    stream: TextIO,
    *,
    libraries: int = logging.INFO,
    quiet: Iterable[str] = (),
) -> None:
    """Send events to ``stream``. Call once, at the program's start.

    Parameters
    ----------
    log_format : "console" or "json"
    stream : file
    libraries : int
        Lowest level of the records of libraries, which have the same format.
    quiet : iterable of str
        Names of loggers whose records are shown from WARNING up.
    """
    console = log_format == "console"
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        *([] if console else [structlog.processors.format_exc_info]),
    ]
    renderer: Processor = structlog.processors.JSONRenderer()
    if console:
        # Without local variables, which the default traceback includes: they may be secrets.
        plain = structlog.dev.plain_traceback
        renderer = structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.basicConfig(level=libraries, handlers=[handler], force=True)
    for name in quiet:
        logging.getLogger(name).setLevel(logging.WARNING)
