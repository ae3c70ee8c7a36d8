"""``settings``: value, source and meaning of each setting of the service's programs.

Not here: the programs' own lists, which this command collects (``storage.control.settings_list``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter

from lockstep.cli.common import Output
from lockstep.client.errors import ClientError, ExitCode

MODULES: Final = {"api": "api", "scheduler": "scheduler", "agent": "worker"}
Row = dict[str, Any]
READ_SECONDS_MAX: Final = 60.0
"""Limit for one program, which may wait for its database."""


def settings(
    *,
    program: Literal["up", "api", "scheduler", "agent"] = "up",
    home: Annotated[Path | None, Parameter(show_default=False)] = None,
    output: Output | None = None,
) -> ExitCode:
    """List the settings of the service: value, source and meaning. Passwords are masked.

    The source is the environment, `lockstep up`, the default, or the database: the scheduler stores
    the timings for all other programs. Values that a program would refuse at its start are named
    after the list, with exit code 2.

    Parameters
    ----------
    program
        up: all programs as `lockstep up` starts them here; else one program as it starts by itself
        in this environment.
    home
        Folder of the service; else LOCKSTEP_HOME, else the user's data folder.
    """
    from lockstep.cli.text import output as out
    from lockstep.client.local import required_packages

    server = () if program == "agent" else required_packages.SERVER
    required_packages.require(
        (*server, *(required_packages.NODE if program in {"up", "agent"} else ()))
    )
    rows, refused = _of_up(home) if program == "up" else _of(program, os.environ)
    found = _merged(rows)
    form = (output or Output()).format
    if form == "json":
        print(json.dumps(found, indent=2, ensure_ascii=False))
    elif form == "name":
        for name in dict.fromkeys(row["name"] for row in found):
            print(name)
    else:
        out.print_table(
            ["SETTING", "VALUE", "SOURCE", "PROGRAMS", "MEANING"],
            [
                [
                    row["name"],
                    "-" if row["value"] is None else row["value"],
                    row["source"],
                    ", ".join(row["programs"]),
                    row["meaning"],
                ]
                for row in found
            ],
        )
    for line in dict.fromkeys(refused):
        print(f"error: {line}", file=sys.stderr)
    return ExitCode.USAGE if refused else ExitCode.OK


def _of_up(home: Path | None) -> tuple[list[Row], list[str]]:
    from lockstep.client.local.home import Home
    from lockstep.client.local.settings import Options, service

    folder = Home.of(os.environ, home)
    planned = service(folder, Options(), os.environ)
    refused: list[str] = []
    rows: list[Row] = [
        {
            "name": "LOCKSTEP_HOME",
            "value": str(folder.folder),
            "source": "environment" if "LOCKSTEP_HOME" in os.environ else "default",
            "meaning": "Folder of the service on this machine.",
            "program": "up",
        }
    ]
    own = {each.name: each.environment for each in planned.programs}
    for program, module in MODULES.items():
        listed, also = _of(program, {**planned.environment, **own[module]})
        refused += also
        for row in listed:
            if row["source"] == "environment" and row["name"] not in os.environ:
                row["source"] = "lockstep up"
            rows.append(row)
    return rows, refused


def _of(program: str, environment: Mapping[str, str]) -> tuple[list[Row], list[str]]:
    """Return the list that a program writes, and its refusals."""
    # -P: a folder named lockstep in the working folder must not be imported.
    command = [sys.executable, "-P", "-m", f"lockstep.{MODULES[program]}", "settings"]
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            capture_output=True,
            text=True,
            check=True,
            timeout=READ_SECONDS_MAX,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise ClientError(
            f"the settings of the {program} cannot be listed: {error}",
            next_step=f"run: {' '.join(command)}",
        ) from error
    found = json.loads(done.stdout)
    refused = [f"the {program} does not start: {line}" for line in found["refused"]]
    return [{**row, "program": program} for row in found["settings"]], refused


def _merged(rows: list[Row]) -> list[Row]:
    """Return each value of a setting once, with its programs.

    Timings of the api and of agents are those that the scheduler stores. They are listed apart only
    where the stored value is another one.
    """
    found: dict[tuple[str, str | None], Row] = {}
    last = {row["name"]: row for row in rows if row["program"] == "scheduler"}
    for row in rows:
        own = last.get(row["name"], row)
        shown = own if row["value"] in (None, own["value"]) else row
        key = row["name"], shown["value"]
        found.setdefault(key, {**shown, "programs": []})["programs"].append(row["program"])
    return [
        {key: value for key, value in row.items() if key != "program"} for row in found.values()
    ]
