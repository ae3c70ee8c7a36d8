"""``open`` and ``completion``: the dashboard in a browser, and completion in a shell.

Not here: the pages (the server), and the table of commands (``cli.app``).
"""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import Annotated, Final, Literal

from cyclopts import Parameter

from lockstep.cli.common import Connection, Flag, say
from lockstep.client import handover
from lockstep.client.errors import ExitCode

BROWSER_SECONDS: Final = 30.0
"""A browser that was not running yet needs some of it."""


def open_(
    job: str | None = None,
    /,
    *,
    print_: Annotated[Flag, Parameter(name="--print")] = False,
    with_code: Flag = False,
    connection: Connection = Connection(),
) -> ExitCode:
    """Open the server's pages in a browser, signed in.

    Where there is no browser, print their address.

    The browser receives a code that starts one session, within a minute. Neither the token of this
    command nor the code is on a command line. The session has the rights of that token and ends
    with it; its page keeps it for that tab only.

    Parameters
    ----------
    job
        Open this job's page: its id, a unique beginning or end of that, its name, or last.
    print_
        Print the address, open nothing.
    with_code
        Print an address that contains the code. Its first visitor within a minute is signed in as
        you.
    """
    server = connection.server()
    address = server.url.rstrip("/") + "/"
    if job is not None:
        with connection.client() as client:
            address += f"jobs/{client.job(job).id}"
    elif server.withheld is not None:
        say(server.withheld)
    signs_in = server.token is not None
    if with_code and signs_in:
        print(_with_code(address, connection))
    elif (
        print_
        or with_code
        or not _has_browser()
        or not (_opened_signed_in(address, connection) if signs_in else _opened(address))
    ):
        print(address)
        if signs_in:
            say(
                "the page asks for a sign-in; `lockstep open --with-code` prints an address that "
                "contains a code for it"
            )
    return ExitCode.OK


def _with_code(address: str, connection: Connection) -> str:
    with connection.client() as client:
        return handover.with_code(address, client.create_sign_in_code().code)


def _opened(address: str) -> bool:
    """Start a browser and report it. Return whether one was started."""
    started = webbrowser.open(address)
    if started:
        say(f"opened {address}")
    return started


def _opened_signed_in(address: str, connection: Connection) -> bool:
    """Start a browser, hand a code over to it and report it. Return whether one was started."""
    with handover.Handover(_with_code(address, connection)) as way:
        started = webbrowser.open(way.url)
        came = started and way.wait(BROWSER_SECONDS)
    if started:
        late = (
            f"a browser was started, but did not request the code within {BROWSER_SECONDS:.0f} "
            f"s; open {address}"
        )
        say(f"opened {address}" if came else late)
    return started


def _has_browser() -> bool:
    """Return whether a window can open; a text browser would take over this terminal."""
    named = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    return named or sys.platform in ("darwin", "win32")


def completion(shell: Literal["bash", "zsh", "fish"], /) -> ExitCode:
    """Print the completion script of a shell.

    bash: eval "$(lockstep completion bash)" in ~/.bashrc; zsh: lockstep completion zsh > a folder
    of $fpath/_lockstep; fish: lockstep completion fish > ~/.config/fish/completions/lockstep.fish

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    from lockstep.cli.app import make_app

    print(make_app().generate_completion(prog_name="lockstep", shell=shell))
    return ExitCode.OK
