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
    with_token: Flag = False,
    connection: Connection = Connection(),
) -> ExitCode:
    """Open the server's pages in a browser, signed in.

    Where there is no browser, print their address.

    The browser receives the token that this command would use. The token is on no command line and
    in no request to a server, and the page keeps it for that tab only. It is printed only on
    request.

    Parameters
    ----------
    job
        Open this job's page: its id, a unique beginning or end of that, its name, or last.
    print_
        Print the address, open nothing.
    with_token
        Print an address that contains the token. Every reader of it, here or in a scrollback, can
        sign in as you.
    """
    server = connection.server()
    address = server.url.rstrip("/") + "/"
    if job is not None:
        with connection.client() as client:
            address += f"jobs/{client.job(job).id}"
    elif server.withheld is not None:
        say(server.withheld)
    if with_token and server.token is not None:
        print(handover.with_token(address, server.token))
    elif print_ or with_token or not _has_browser() or not _opened(address, server.token):
        print(address)
        if server.token is not None:
            say(
                "the page asks for the token; `lockstep open --with-token` prints an address that "
                "contains it"
            )
    return ExitCode.OK


def _opened(address: str, token: str | None) -> bool:
    """Start a browser and report it. Return whether one was started."""
    if token is None:
        started = webbrowser.open(address)
        came = True
    else:
        with handover.Handover(handover.with_token(address, token)) as way:
            started = webbrowser.open(way.url)
            came = started and way.wait(BROWSER_SECONDS)
    if started:
        late = (
            f"a browser was started, but did not request the token within {BROWSER_SECONDS:.0f} "
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
