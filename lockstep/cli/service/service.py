"""``up``, ``down``, ``migrate`` and ``version``: the service on this machine.

Not here: how it is supervised (``client.local``).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lockstep.cli.common import Detach, Flag, say
from lockstep.client.errors import ExitCode
from lockstep.domain.version import VERSION

HomeFlag = Annotated[Path | None, Parameter(show_default=False)]


def up(
    *,
    home: HomeFlag = None,
    port: int | None = None,
    host: str | None = None,
    cpu_slots: int | None = None,
    node_name: str | None = None,
    database_url: str | None = None,
    detach: Detach = False,
    debug: Flag = False,
) -> int:
    """Start the whole service on this machine: broker, api, scheduler and one node agent.

    Restart what dies.

    Ctrl-C or `lockstep down` stops it; running jobs are stopped, too, and resume at the next start.

    Parameters
    ----------
    home
        Where its data is kept; else LOCKSTEP_HOME, else the user's data folder.
    port
        Port of the api (8470).
    host
        Address it listens on (127.0.0.1).
    cpu_slots
        Number of ranks that may run here at once without a GPU; by default the number of cores.
    node_name
        Name of this machine's node; else its host name.
    database_url
        The job database; else SQLite in the home.
    detach
        Return when the service is ready; it runs in the background.
    debug
        On an error, print the traceback, too.
    """
    from lockstep.client.local import required_packages
    from lockstep.client.local import up as local_up
    from lockstep.client.local.home import Home
    from lockstep.client.local.settings import Options, require_timings, service

    del debug  # read by cli.app
    required_packages.require(required_packages.SERVER + required_packages.NODE)
    require_timings(os.environ)
    place = Home.of(os.environ, home)
    options = Options(host, port, cpu_slots, node_name, database_url)
    if detach:
        return local_up.run_detached(place, options, tell=say)
    place.create()
    return local_up.run(place, service(place, options, os.environ), tell=say)


def down(*, home: HomeFlag = None) -> int:
    """Stop the service that `lockstep up` started on this machine.

    Parameters
    ----------
    home
        Where its data is kept; else LOCKSTEP_HOME, else the user's data folder.
    """
    from lockstep.client.local import down as local_down
    from lockstep.client.local.home import Home

    return local_down.run(Home.of(os.environ, home), tell=say)


def migrate(*, home: HomeFlag = None, database_url: str | None = None) -> int:
    """Bring the databases up to date; `lockstep up` does so by itself.

    Parameters
    ----------
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
    place.create()
    configured = service(place, Options(database_url=database_url), os.environ)
    done = subprocess.run(
        configured.migrate.argv, env=configured.environment, cwd=place.folder, check=False
    )
    return ExitCode.OK if done.returncode == 0 else ExitCode.FAILED


def version() -> ExitCode:
    """Print the version."""
    print(f"lockstep {VERSION}")
    return ExitCode.OK
