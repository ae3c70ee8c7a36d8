"""Settings of the programs of a local service.

Flags, then the environment, then defaults of this machine.

Not here: the meaning of each setting (``settings.py`` of each program).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, TypeVar

from pydantic import TypeAdapter, ValidationError

from lockstep.client.errors import UsageError
from lockstep.client.local.home import Home
from lockstep.client.local.supervisor import Program
from lockstep.domain.life.grace import AGENT_END_SECONDS_MAX
from lockstep.domain.life.timings import Timings

N = TypeVar("N", int, float)

PORT_DEFAULT: Final = 8470
STOP_SECONDS: Final = 10.0
"""For a program that has nothing to bring to an end."""


@dataclass(frozen=True)
class Options:
    """The flags of ``lockstep up``; None is not given."""

    host: str | None = None
    port: int | None = None
    cpu_slots: int | None = None
    node_name: str | None = None
    database_url: str | None = None

    def words(self) -> list[str]:
        """The flags again, for the process that stays in the background."""
        return [
            word
            for name, value in vars(self).items()
            if value is not None
            for word in (f"--{name.replace('_', '-')}", str(value))
        ]

    def variables(self) -> dict[str, str]:
        """The flags as variables of the environment, which have the same names."""
        return {
            f"LOCKSTEP_{name.upper()}": str(value)
            for name, value in vars(self).items()
            if value is not None
        }


@dataclass(frozen=True)
class Service:
    """One local service, ready to be started.

    Attributes
    ----------
    environment : dict
        Everything the caller's environment holds, and the settings.
    programs : tuple of Program
        In the order in which they are started; they are stopped in the opposite order.
    migrate : Program
        Runs to its end before the others start.
    """

    url: str
    host: str
    port: int
    token_file: str
    environment: dict[str, str]
    programs: tuple[Program, ...]
    migrate: Program


def service(home: Home, options: Options, environment: Mapping[str, str]) -> Service:
    """Return the programs to start, with their settings.

    Raises
    ------
    UsageError
        If a setting is no number where one is expected.
    """
    asked = {**environment, **options.variables()}
    own_broker = "LOCKSTEP_BROKER_URL" not in asked
    socket = home.socket() if own_broker else None
    defaults = {
        "LOCKSTEP_HOST": "127.0.0.1",
        "LOCKSTEP_PORT": str(PORT_DEFAULT),
        "LOCKSTEP_DATABASE_URL": f"sqlite:///{home.folder / 'jobs.db'}",
        "LOCKSTEP_BROKER_URL": f"redis+socket://{socket}",
        "LOCKSTEP_STORE": str(home.folder / "store"),
        "LOCKSTEP_NODE_DIR": str(home.folder / "node"),
        "LOCKSTEP_TOKEN_FILE": str(home.token_file),
        "LOCKSTEP_HOME": str(home.folder),
    }
    settled = {**defaults, **asked, "LOCKSTEP_HOME": str(home.folder)}
    host, port = settled["LOCKSTEP_HOST"], _number(settled, "LOCKSTEP_PORT", int)
    if not 0 < port < 65_536:
        raise UsageError(
            f"LOCKSTEP_PORT: expected a port from 1 to 65535, got {port}",
            next_step="choose another port with --port",
        )
    scale = _number({"LOCKSTEP_TIMINGS_SCALE": "1", **settled}, "LOCKSTEP_TIMINGS_SCALE", float)
    broker = (
        [
            replace(
                _program("broker", "--socket", str(socket), "--dir", str(home.folder / "broker")),
                socket=socket,
            )
        ]
        if own_broker
        else []
    )
    worker = _program(
        "worker",
        stop_seconds=AGENT_END_SECONDS_MAX * max(1.0, scale),
        # Set here alone: an agent that is restarted on a machine of its own leaves its jobs
        # running.
        environment={"LOCKSTEP_STOP_JOBS_ON_EXIT": "on"},
    )
    return Service(
        url=f"http://{_reachable(host)}:{port}",
        host=host,
        port=port,
        token_file=settled["LOCKSTEP_TOKEN_FILE"],
        environment=settled,
        # The scheduler goes first: it would give the jobs that the worker has just stopped to the
        # same node again, where
        # they would be lost.
        programs=(*broker, _program("api"), worker, _program("scheduler")),
        migrate=replace(_program("api", "migrate"), name="migrate"),
    )


def _program(
    name: str,
    *arguments: str,
    stop_seconds: float = STOP_SECONDS,
    environment: Mapping[str, str] | None = None,
) -> Program:
    argv = (sys.executable, "-P", "-m", f"lockstep.{name}", *arguments)
    return Program(name, argv, stop_seconds=stop_seconds, environment=dict(environment or {}))


def _reachable(host: str) -> str:
    """An address under which a server bound to ``host`` is reached from this machine."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, host)  # noqa: S104 - read, not bound
    return f"[{reachable}]" if ":" in reachable and not reachable.startswith("[") else reachable


def require_timings(environment: Mapping[str, str]) -> None:
    """Raise UsageError unless the scheduler would accept its timings.

    A program that is refused at its start would only be restarted.
    """
    names = {field.name: f"LOCKSTEP_{field.name.upper()}" for field in fields(Timings)}
    given = {field: environment[name] for field, name in names.items() if name in environment}
    try:
        TypeAdapter(Timings).validate_python(given)
    except ValidationError as error:
        first = error.errors()[0]
        place = f"{names[str(first['loc'][0])]}: " if first["loc"] else ""
        raise UsageError(
            f"{place}{first['msg'].removeprefix('Value error, ')}",
            next_step="see: lockstep settings",
        ) from None


def _number(settled: Mapping[str, str], name: str, kind: type[N]) -> N:
    try:
        return kind(settled[name])
    except ValueError:
        raise UsageError(f"{name}: expected a number, got {settled[name]!r}") from None
