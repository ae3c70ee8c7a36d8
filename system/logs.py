"""Logging of a server program: one line per event, from structlog and from ``logging``.

The only module of this package that is not limited to the standard library.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from typing import Any, Literal

import structlog
from structlog.typing import Processor

from lockstep.system.log_stream import LogStream

LogFormat = Literal["console", "json"]


def configure(
    log_format: LogFormat,
    stream: Literal["stdout", "stderr"],
    *,
    libraries: int = logging.INFO,
    quiet: Iterable[str] = (),
) -> None:
    """Send events to one of the standard streams. Call once, at the program's start.

    No call of a logger raises afterwards, whatever the disk, the pipe or the event: a line that
    cannot be written is dropped and counted. ``sys.stdout`` and ``sys.stderr`` have this property,
    too, because libraries print.

    Parameters
    ----------
    log_format : "console" or "json"
    stream : "stdout" or "stderr"
    libraries : int
        Lowest level of the records of libraries, which have the same format.
    quiet : iterable of str
        Names of loggers whose records are shown from WARNING up.
    """
    console = log_format == "console"
    streams = {"stdout": LogStream(1), "stderr": LogStream(2)}
    sys.stdout, sys.stderr = streams["stdout"], streams["stderr"]
    output = streams[stream]
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
        renderer = structlog.dev.ConsoleRenderer(colors=output.isatty(), exception_formatter=plain)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=_never_raising(output),
        logger_factory=structlog.WriteLoggerFactory(output),  # type: ignore[arg-type]  # see above
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    # By default a record that cannot be formatted is printed with a traceback, each time.
    handler.handleError = output.drop_record  # type: ignore[method-assign]  # as its docstring says
    logging.basicConfig(level=libraries, handlers=[handler], force=True)
    for name in quiet:
        logging.getLogger(name).setLevel(logging.WARNING)


def _never_raising(output: LogStream) -> type[structlog.typing.FilteringBoundLogger]:
    """Return the class of loggers, which count an event that cannot be rendered as dropped."""
    base: Any = structlog.make_filtering_bound_logger(logging.INFO)

    class NeverRaising(base):  # type: ignore[misc]  # structlog makes the base at run time
        def _proxy_to_logger(self, method_name: str, event: str | None = None, **words: Any) -> Any:
            try:
                return super()._proxy_to_logger(method_name, event, **words)
            except structlog.DropEvent:
                return None
            except Exception:  # noqa: BLE001 -- a value whose repr raises, for example
                output.drop()
                return None

    return NeverRaising
