"""``config``: the effective server and token, their origin, and the user's own file.

Not here: the order in which places are asked (``client.config``).
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import App, Parameter

from lockstep.cli.common import Connection, Output, say
from lockstep.cli.text import output as out
from lockstep.client.config import KNOWN, read_file, user_config_file
from lockstep.client.errors import ClientError, ExitCode, UsageError

app = App(
    name="config",
    help="Show or set the server address and the token.",
    help_epilogue="",
    help_format="plaintext",
)

Setting = Literal["url", "token", "token_file"]
TOKEN_BYTES_MAX: Final = 64 * 1024
"""Of stdin, where a token is read from there."""


@app.command
def list_(*, output: Output = Output(), connection: Connection = Connection()) -> ExitCode:
    """Show the address and the token that a command would use, with their sources."""
    server = connection.server()
    shown = "(set)" if server.token is not None else "-"
    form = output.format
    if form == "json":
        found = {"url": server.url, "url_from": server.origin, "token_from": server.token_origin}
        print(json.dumps(found, indent=2))
    elif form == "name":
        print(server.url)
    else:
        rows = [
            ["url", server.url, server.origin],
            ["token", shown, server.token_origin or server.withheld or "-"],
        ]
        out.print_table(["SETTING", "VALUE", "FROM"], rows)
    return ExitCode.OK


@app.command
def get(name: Setting, /) -> ExitCode:
    """Print one setting of your own file; exit code 1 where it has none.

    Parameters
    ----------
    name
        url, token or token_file.
    """
    file = user_config_file()
    value = read_file(file).get(name) if file.is_file() else None
    if value is None:
        raise ClientError(
            f"{file} sets no {name}",
            next_step=(
                f"lockstep config set {name} VALUE; lockstep config list shows the settings in use"
            ),
        )
    print(value)
    return ExitCode.OK


@app.command
def set_(name: Setting, value: Annotated[str, Parameter(allow_leading_hyphen=True)], /) -> ExitCode:
    """Keep a setting in your own file, which is made readable to you alone.

    Parameters
    ----------
    name
        url, token or token_file.
    value
        - reads it from stdin: others on this machine can read a command line, which a token must
          not be in.
    """
    if value == "-":
        value = sys.stdin.read(TOKEN_BYTES_MAX).strip()
    if not value or not value.isprintable():
        raise UsageError(
            f"config set {name}: the value is empty or contains a control character, such as a "
            f"line break"
        )
    if name == "url" and not value.startswith(("http://", "https://")):
        raise UsageError(
            f"config set url: {value!r} is no address", next_step="write http://HOST:PORT"
        )
    say(f"{name} is kept in {keep({name: value})}")
    return ExitCode.OK


@app.command
def unset(name: Setting, /) -> ExitCode:
    """Take a setting out of your own file.

    Parameters
    ----------
    name
        url, token or token_file.
    """
    file = user_config_file()
    if file.is_file() and name in read_file(file):
        say(f"{name} was removed from {keep({name: None})}")
    else:
        say(f"{file} sets no {name}")
    return ExitCode.OK


@app.command
def path() -> ExitCode:
    """Print where your own file is, whether or not it is there."""
    print(user_config_file())
    return ExitCode.OK


def keep(settings: Mapping[str, str | None]) -> Path:
    """Store settings in the user's own file, or remove those that are None; return the file.

    Raises
    ------
    UsageError
        As :func:`with_setting`.
    """
    file = user_config_file()
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    for name, value in settings.items():
        text = with_setting(text, name, value)
    _write(file, text)
    return file


def with_setting(text: str, name: str, value: str | None) -> str:
    """A configuration's text with one setting changed, or without it.

    Everything else stays as it was written.

    Raises
    ------
    UsageError
        If the text is written in a way that cannot be changed line by line.
    """
    pattern = re.compile(rf"^[ \t]*{name}[ \t]*=.*\n?", re.MULTILINE)
    # JSON's form of a printable text is also TOML's.
    line = "" if value is None else f"{name} = {json.dumps(value, ensure_ascii=False)}\n"
    if pattern.search(text):
        changed = pattern.sub(lambda _: line, text, count=1)
    else:
        changed = text + ("\n" if text and not text.endswith("\n") else "") + line
    try:
        content = tomllib.loads(changed)
        if content.get(name) == value and not content.keys() - set(KNOWN):
            return changed
    except tomllib.TOMLDecodeError:
        pass
    raise UsageError(
        f"{name} cannot be changed, because the file has another layout than expected",
        next_step=f"edit {user_config_file()} by hand",
    )


def _write(file: Path, text: str) -> None:
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = file.with_suffix(".new")
        # Closed to others before anything is in it: it may hold a token.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
        temporary.replace(file)
    except OSError as error:
        raise ClientError(f"{file} cannot be written: {error.strerror}") from None
