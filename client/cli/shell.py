"""``open`` and ``completion``: the dashboard in a browser, and the words of this command in a shell.

Not here: what the pages show (the server), and which commands there are (``client.cli.app``).
"""

from __future__ import annotations

import os
import sys
import webbrowser
from typing import Literal

from client.cli.common import Connection, say
from client.errors import ExitCode


def open_(job: str | None = None, /, *, connection: Connection | None = None) -> ExitCode:
    """Open the server's pages in a browser; where there is none, print their address.

    Parameters
    ----------
    job
        Open this job's page: its id, a unique beginning or end of that, its name, or last.
    """
    options = connection or Connection()
    address = options.server().url.rstrip("/") + "/"
    if job is not None:
        with options.client() as client:
            address += f"#/jobs/{client.job(job).id}"
    if _has_browser() and webbrowser.open(address):
        say(f"opened {address}")
    else:
        print(address)
    return ExitCode.OK


def _has_browser() -> bool:
    """Whether a window can open; a browser inside this terminal would take it over."""
    named = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    return named or sys.platform in ("darwin", "win32")


def completion(shell: Literal["bash", "zsh", "fish"], /) -> ExitCode:
    """Print what a shell needs to complete this command's words.

    bash: eval "$(lockstep completion bash)" in ~/.bashrc; zsh: lockstep completion zsh > a folder of $fpath/_lockstep;
    fish: lockstep completion fish > ~/.config/fish/completions/lockstep.fish

    Parameters
    ----------
    shell
        bash, zsh or fish.
    """
    from client.cli.app import make_app

    print(make_app().generate_completion(prog_name="lockstep", shell=shell))
    return ExitCode.OK
