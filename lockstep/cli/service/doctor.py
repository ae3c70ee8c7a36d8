"""``doctor``: findings about server, token, nodes and this machine, each with the next step.

Not here: the checks (``client.doctor``).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from lockstep.cli.common import Connection, Output
from lockstep.cli.text import output as out
from lockstep.client.errors import ClientError, ExitCode
from lockstep.client.local.home import Home

if TYPE_CHECKING:
    from lockstep.client.doctor import DoctorResult

STYLES: Final = {"ok": "green", "warn": "yellow", "fail": "red"}


def doctor(*, output: Output = Output(), connection: Connection = Connection()) -> ExitCode:
    """Check the server, the token, the nodes and this machine; exit code 1 if something fails.

    A warning is about something that works and may not for long, or that only `lockstep up` needs.
    """
    found = list(_findings(connection))
    form = output.format
    if form == "json":
        print(json.dumps([finding._asdict() for finding in found], indent=2, ensure_ascii=False))
    elif form == "name":
        for finding in found:
            print(f"{finding.level} {finding.name}")
    else:
        rows = []
        for finding in found:
            rows.append(
                [out.Word(finding.level, STYLES[finding.level]), finding.name, finding.what]
            )
            if finding.next_step and finding.level != "ok":
                rows.append(["", "", f"→ {finding.next_step}"])
        out.print_facts(rows)
    return ExitCode.FAILED if any(finding.level == "fail" for finding in found) else ExitCode.OK


def _findings(connection: Connection) -> Iterator[DoctorResult]:
    from lockstep.client import doctor as asking

    try:
        server = connection.server()
    except ClientError as error:
        yield asking.DoctorResult("fail", "address", error.message, error.next_step)
    else:
        yield from asking.of_server(server, connection.client)
    yield from asking.of_machine(Home.of(os.environ).folder)
