"""Checks of everything that a job needs: one finding per check, each with the next step.

The checks are ordered by dependency: nodes are not requested from a server that does not answer.
Nothing is changed and no request is retried: a slow or absent part is a finding.

Not here: the printing of findings (``cli.service.doctor``), and readiness itself
(``api.readiness``).
"""

from __future__ import annotations

import importlib.metadata
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import httpx2
from pydantic import ValidationError

from lockstep.client.errors import ClientError, NotAllowedError, UsageError
from lockstep.client.local import required_packages
from lockstep.client.tls import tls_error, verification
from lockstep.domain.packages import with_extra
from lockstep.domain.version import VERSION
from lockstep.domain.views import Health

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.client.config import Server
    from lockstep.domain.views import NodeView

ANSWER_SECONDS: Final = 5.0
SKEW_SECONDS_MAX: Final = 5.0
"""The Date header counts whole seconds, and an answer takes time; from here on times shown side by
side are misleading."""
DISK_FAIL_BYTES: Final = 1024**3
DISK_WARN_BYTES: Final = 10 * 1024**3
"""A few checkpoints of a middling model."""
PYTHON_MIN: Final = (3, 11)
ROLES: Final = (
    "protect against mistakes and outsiders; a job still reads what the user of its node agent "
    "reads, until jobs are isolated"
)
"""For a service with several people."""


class DoctorResult(NamedTuple):
    """The answer to one question."""

    level: Literal["ok", "warn", "fail"]
    name: str
    what: str
    next_step: str = ""


def of_server(server: Server, connect: Callable[[], Client]) -> Iterator[DoctorResult]:
    """Check that the server answers, has this version, is ready, and accepts the token.

    Parameters
    ----------
    server : Server
    connect : callable
        Returns a client of the server.
    """
    yield DoctorResult("ok", "address", f"{server.url}, from {server.origin}")
    try:
        verify = verification(server.url)
        with httpx2.Client(
            base_url=server.url, timeout=ANSWER_SECONDS, trust_env=False, verify=verify
        ) as http:
            alive = http.get("/livez")
            here = time.time()
            # With the token, because only its holder gets the reasons.
            ready = http.get(
                "/readyz",
                headers={"Authorization": f"Bearer {server.token}"} if server.token else {},
            )
    except UsageError as error:
        yield DoctorResult("fail", "answer", error.message, error.next_step)
        return
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        if (refused := tls_error(server.url, error)) is not None:
            yield DoctorResult("fail", "answer", refused.message, refused.next_step)
            return
        why = (
            "connection refused" if "refused" in str(error) else str(error) or type(error).__name__
        )
        yield DoctorResult(
            "fail",
            "answer",
            f"{server.url} does not answer: {why}",
            "start the service with `lockstep up`, or give another address with --url or "
            "LOCKSTEP_URL",
        )
        return
    if alive.status_code != 200:
        yield DoctorResult(
            "fail",
            "answer",
            f"{server.url}/livez answered {alive.status_code}",
            "check that the address belongs to Lockstep and not to another program",
        )
        return
    yield DoctorResult("ok", "answer", f"within {alive.elapsed.total_seconds() * 1000:.0f} ms")
    yield _version(alive)
    yield _clock(alive.headers.get("Date", ""), here)
    yield from _readiness(ready)
    yield from _inside(server, connect)


def _version(alive: httpx2.Response) -> DoctorResult:
    try:
        theirs = Health.model_validate_json(alive.content).version
    except ValidationError:
        theirs = None
    if theirs is None:
        return DoctorResult(
            "warn",
            "version",
            "the server does not report its version",
            "check that the address belongs to Lockstep",
        )
    if theirs == VERSION:
        return DoctorResult("ok", "version", f"{VERSION}, as the server's")
    return DoctorResult(
        "warn",
        "version",
        f"{VERSION} here, {theirs} on the server",
        "install the server's version on this machine",
    )


def _clock(date: str, here: float) -> DoctorResult:
    try:
        skew = parsedate_to_datetime(date).timestamp() - here
    except ValueError:
        return DoctorResult("warn", "clock", "the server does not report its time")
    if abs(skew) <= SKEW_SECONDS_MAX:
        return DoctorResult("ok", "clock", "as the server's")
    return DoctorResult(
        "warn",
        "clock",
        f"the server's clock is {abs(skew):.0f} s {'ahead' if skew > 0 else 'behind'}",
        "set both clocks, for example with NTP; times and ages are wrong until then",
    )


def _readiness(ready: httpx2.Response) -> Iterator[DoctorResult]:
    try:
        health = Health.model_validate_json(ready.content)
    except ValidationError:
        yield DoctorResult(
            "fail",
            "service",
            f"/readyz answered {ready.status_code} with a body that cannot be parsed",
        )
        return
    for name, said in health.checks.items():
        if said == "ok":
            yield DoctorResult("ok", name, "answers")
        elif name == "store":
            yield DoctorResult(
                "fail", name, said, "check that the folder or bucket of LOCKSTEP_STORE is writable"
            )
        elif health.status == "unavailable" and name != "broker":
            yield DoctorResult(
                "fail", name, said, "jobs are refused until then; see the log of the api"
            )
        else:
            yield DoctorResult("warn", name, said, f"check the {name}; see its log")


def _inside(server: Server, connect: Callable[[], Client]) -> Iterator[DoctorResult]:
    """Run the checks that need a valid token."""
    try:
        with connect() as client:
            client.jobs(limit=1)
            giver = (
                f"from {server.token_origin}"
                if server.token_origin
                else server.withheld or "none is needed"
            )
            yield DoctorResult("ok", "token", giver)
            if not client.whoami().is_alone:
                yield DoctorResult("ok", "roles", ROLES)
            yield from of_nodes(client.nodes())
    except NotAllowedError as error:
        yield DoctorResult(
            "fail",
            "token",
            error.message,
            error.next_step or "set LOCKSTEP_TOKEN to the right token",
        )
    except ClientError as error:
        yield DoctorResult("fail", "service", error.message, error.next_step)


def of_nodes(nodes: list[NodeView]) -> Iterator[DoctorResult]:
    """Check that a node can run a job."""
    if not nodes:
        yield DoctorResult(
            "fail",
            "nodes",
            "no node is registered: every job waits",
            "start one with `lockstep up`",
        )
        return
    ready = [node for node in nodes if node.state == "ready"]
    devices = sum(len(node.devices) for node in ready)
    if ready:
        yield DoctorResult(
            "ok", "nodes", f"{len(ready)} of {len(nodes)} ready, with {devices} devices"
        )
    else:
        yield DoctorResult(
            "fail",
            "nodes",
            f"none of {len(nodes)} is ready: every job waits",
            "lockstep nodes shows the reasons",
        )
    for node in nodes:
        if node.state == "lost":
            yield DoctorResult(
                "warn",
                node.name,
                "has sent no heartbeat for too long",
                "start its agent, or check the network to it",
            )
        elif node.state == "leaving":
            yield DoctorResult(
                "warn", node.name, "is leaving: its agent was stopped", "start the agent again"
            )
        elif node.state in ("quarantined", "draining"):
            words = f"is {node.state}" + (f": {node.reason}" if node.reason else "")
            yield DoctorResult(
                "warn", node.name, words, f"lockstep nodes resume {node.name} ends this"
            )
        if node.version != VERSION:
            yield DoctorResult(
                "warn",
                node.name,
                f"has version {node.version}, this machine has {VERSION}",
                "install the same version everywhere",
            )


def of_machine(folder: Path) -> Iterator[DoctorResult]:
    """Check that ``lockstep up`` can run on this machine.

    Parameters
    ----------
    folder : Path
        Folder of the service's data; it need not exist.
    """
    python = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < PYTHON_MIN:
        yield DoctorResult(
            "fail", "python", python, f"install {'.'.join(map(str, PYTHON_MIN))} or newer"
        )
    else:
        yield DoctorResult("ok", "python", python)
    try:
        required_packages.require(required_packages.SERVER + required_packages.NODE)
        yield DoctorResult("ok", "programs", "the service's packages are installed")
    except ClientError as error:
        yield DoctorResult(
            "warn", "programs", error.message, f"for lockstep up only: {error.next_step}"
        )
    try:
        yield DoctorResult("ok", "torch", importlib.metadata.version("torch"))
    except importlib.metadata.PackageNotFoundError:
        yield DoctorResult(
            "warn", "torch", "is not installed", f"for lockstep up only: {with_extra('all')}"
        )
    yield _disk(folder)


def _disk(folder: Path) -> DoctorResult:
    there = next(each for each in (folder, *folder.parents) if each.exists())
    try:
        free = shutil.disk_usage(there).free
    except OSError as error:
        return DoctorResult(
            "fail", "disk", f"{there} cannot be read: {error.strerror}", "name another --home"
        )
    words = f"{free / 1024**3:.1f} GiB free at {folder}"
    advice = "free space there, or set LOCKSTEP_HOME to another folder"
    if free < DISK_FAIL_BYTES:
        return DoctorResult("fail", "disk", words, advice)
    return (
        DoctorResult("warn", "disk", words, advice)
        if free < DISK_WARN_BYTES
        else DoctorResult("ok", "disk", words)
    )
