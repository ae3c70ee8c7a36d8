"""``nodes``: list nodes with the users of their devices; drain, resume and remove a node.

Not here: the rules for lost nodes (``api.jobs.views``) and quarantine (``domain.life.quarantine``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from cyclopts import App

from lockstep.cli.common import Connection, Output, say
from lockstep.cli.text import output as out
from lockstep.client.errors import ExitCode
from lockstep.domain.kinds.offers import FOUND, named

if TYPE_CHECKING:
    from lockstep.domain.views import DeviceView, NodeView


app = App(
    name="nodes",
    help="List nodes and the jobs on their devices; drain, resume and remove nodes.",
    help_epilogue="",
    help_format="plaintext",
)


@app.default
def nodes(*, output: Output = Output(), connection: Connection = Connection()) -> ExitCode:
    """List nodes and their devices; -o wide has one line per device."""
    form = output.format
    with connection.client() as client:
        found = client.nodes()
    if form == "json":
        out.print_json(found)
    elif form == "name":
        for node in found:
            print(node.name)
    elif not found:
        say(
            "no node is registered; start one here with `lockstep up`, or on another machine with "
            "`lockstep agent`"
        )
    else:
        _print_table(found, wide=form == "wide")
    for node in found:
        if node.state == "quarantined":
            say(f"{node.name} gets no new jobs; undo this with: lockstep nodes resume {node.name}")
    return ExitCode.OK


@app.command
def drain(
    node: str, /, *, reason: str | None = None, connection: Connection = Connection()
) -> ExitCode:
    """Drain a node: it gets no more work, and its running jobs continue.

    Parameters
    ----------
    node
        Its whole name.
    reason
        Reason, which all readers of the node see.
    """
    with connection.client() as client:
        found = client.drain_node(node, reason=reason)
    say(
        f"{found.name} is {found.state} and gets no new jobs; undo this with: lockstep nodes "
        f"resume {found.name}"
    )
    return ExitCode.OK


@app.command
def resume(node: str, /, *, connection: Connection = Connection()) -> ExitCode:
    """Resume a node that was drained or quarantined. Inspect it first.

    Parameters
    ----------
    node
        Its whole name.
    """
    with connection.client() as client:
        found = client.resume_node(node)
    say(f"{found.name} is {found.state}")
    return ExitCode.OK


@app.command
def rm(node: str, /, *, connection: Connection = Connection()) -> ExitCode:
    """Remove a node that is gone for good. It must be lost, and its attempts must have ended.

    An agent that is started again with this name registers it again.

    Parameters
    ----------
    node
        Its whole name.
    """
    with connection.client() as client:
        client.remove_node(node)
    say(f"{node} is removed")
    return ExitCode.OK


def _print_table(found: Sequence[NodeView], *, wide: bool) -> None:
    """Print a line per node, or per device; with the nodes' reasons if there are any."""
    why = ["WHY"] if any(node.reason for node in found) else []
    now = datetime.now(UTC)
    columns = ["NODE", "STATE", "DEVICES", "FREE", "JOBS", "SEEN", "VERSION", "OFFERS"]
    right: tuple[str, ...] = ("FREE",)
    if wide:
        columns = ["NODE", "STATE", "DEVICE", "TYPE", "MEMORY", "JOB"]
        right = ("DEVICE", "MEMORY")
    rows = [
        row + [node.reason or ""] * len(why)
        for node in found
        for row in (_device_rows(node) if wide else [_row(node, now)])
    ]
    out.print_table([*columns, *why], rows, right=right)


def _row(node: NodeView, now: datetime) -> list[str]:
    types = Counter(device.type for device in node.devices)
    holders = sorted({out.short_id(device.job_id) for device in node.devices if device.job_id})
    return [
        node.name,
        out.styled(node.state),
        ", ".join(f"{count} × {kind}" for kind, count in sorted(types.items())) or "-",
        str(node.devices_free),
        ", ".join(holders + ["others"] * any(map(_is_foreign, node.devices))) or "-",
        f"{out.age(node.seen_at, now)} ago",
        node.version,
        _offers(node),
    ]


def _offers(node: NodeView) -> str:
    """Return the names that the node offers, those of its setting first."""
    ordered = sorted(node.offers, key=lambda name: name.partition(":")[0] in FOUND)
    return named(ordered, "and") if ordered else "-"


def _device_rows(node: NodeView) -> Iterator[list[str]]:
    for device in node.devices:
        memory = out.size(device.memory_bytes)
        yield [
            node.name,
            out.styled(node.state),
            str(device.index),
            device.type,
            memory,
            device.job_id or ("of another project" if _is_foreign(device) else "-"),
        ]


def _is_foreign(device: DeviceView) -> bool:
    """Return whether a job holds it that the user may not read."""
    return device.held and device.job_id is None
