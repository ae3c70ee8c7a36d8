"""``user``: people of the service, with the databases of this machine.

Not here: the own account (``cli.service.session``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from cyclopts import App

from lockstep.cli.service.service import HomeFlag
from lockstep.client.errors import ExitCode

app = App(
    name="user",
    help="Give a person access to the service on this machine.",
    help_epilogue="",
    help_format="plaintext",
)


@app.command
def restore(name: str, /, *, home: HomeFlag = None, database_url: str | None = None) -> int:
    """Make a person an active admin of the service, and print an invitation code of one hour.

    Runs on the service's machine and needs no token: use it for the first person, or if no admin
    can sign in. `lockstep login --invitation` asks for the code.

    Parameters
    ----------
    name
        Name of the person; a new one is added.
    home
        Where the service's data is kept; else LOCKSTEP_HOME, else the user's data folder.
    database_url
        The job database; else SQLite in the home.
    """
    from lockstep.client.local import required_packages
    from lockstep.client.local.home import Home
    from lockstep.client.local.settings import Options, service

    required_packages.require(required_packages.SERVER)
    place = Home.of(os.environ, home)
    settled = service(place, Options(database_url=database_url), os.environ)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "lockstep.api", "welcome", name],
        env=settled.environment,
        cwd=place.folder if place.folder.is_dir() else Path.cwd(),
        check=False,
    )
    return ExitCode.OK if done.returncode == 0 else ExitCode.FAILED
