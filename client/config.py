"""Where the command finds its server: flags > ``LOCKSTEP_*`` > ``lockstep.toml`` > user config > the service on this machine.

``lockstep.toml`` is looked for in this folder and upward; it and the user's own config may hold ``url``, ``token`` and
``token_file``. The address decides which token is used: one from the same place, or one that was given more explicitly.
So a ``lockstep.toml`` in somebody else's repository does not get the token of the service on this machine, or of the
user's config, for its own address; nor may it name a token file outside its folder.

Not here: changing the user's config (``client.cli.config``), and what the programs of the service are told
(``client.local.settings``).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from client.errors import UnreachableError, UsageError
from client.local.home import Home

PROJECT_FILE: Final = "lockstep.toml"
KNOWN: Final = ("url", "token", "token_file")


@dataclass(frozen=True)
class Server:
    """Which server to talk to."""

    url: str
    token: str | None
    origin: str
    """Where the address was found, for messages."""
    token_origin: str | None = field(default=None, compare=False)
    """Where the token was found."""


@dataclass(frozen=True)
class _Place:
    """What one place says. Any of it may be missing."""

    origin: str
    url: str | None
    token: str | None


def find_server(
    *,
    url: str | None,
    token: str | None,
    environment: Mapping[str, str],
    folder: Path,
    home: Home | None = None,
    user_config: Path | None = None,
) -> Server:
    """The server that flags, environment, files and the local service name, in this order.

    Parameters
    ----------
    url, token : str or None
        From the command line.
    environment : mapping
    folder : Path
        Where the search for ``lockstep.toml`` begins.
    home : Home, optional
        Of the local service; by default the one that the environment names.
    user_config : Path, optional
        By default ``config.toml`` in the user's configuration folder.

    Raises
    ------
    UnreachableError
        If no place names an address.
    UsageError
        If a file cannot be read.
    """
    places = [
        _Place("--url", url, token),
        _Place("LOCKSTEP_URL", environment.get("LOCKSTEP_URL") or None, environment.get("LOCKSTEP_TOKEN") or None),
    ]
    if project := _search_upward(folder):
        places.append(_from_file(project, tokens_inside=project.parent))
    own = user_config or user_config_file()
    if own.is_file():
        places.append(_from_file(own))
    local = home or Home.of(environment)
    if running := local.running():
        places.append(_Place(str(local.run_file), running.url, _token_in(Path(running.token_file))))
    for number, place in enumerate(places):
        if place.url is not None:
            giver = _token_giver(place, places, number)
            token, token_origin = (giver.token, giver.origin) if giver is not None else (None, None)
            return Server(place.url, token, place.origin, token_origin)
    raise UnreachableError(
        "no server is known, and none runs on this machine",
        next_step="start one on this machine with `lockstep up`, or name one with --url or LOCKSTEP_URL",
    )


def _token_giver(chosen: _Place, places: list[_Place], number: int) -> _Place | None:
    """Who gave the most explicit token for this address, or for none in particular before it."""
    for place in places[: number + 1]:
        if place.token is not None:
            return place
    # A later place may hold the token of the very same server.
    for place in places[number + 1 :]:
        if place.token is not None and place.url is not None and _same(place.url, chosen.url):
            return place
    return None


def _same(one: str, other: str | None) -> bool:
    return other is not None and one.rstrip("/") == other.rstrip("/")


def _search_upward(folder: Path) -> Path | None:
    for here in (folder, *folder.parents):
        if (here / PROJECT_FILE).is_file():
            return here / PROJECT_FILE
    return None


def user_config_file() -> Path:
    """The user's own configuration, whether or not it is there."""
    import platformdirs

    return Path(platformdirs.user_config_dir("lockstep", appauthor=False)) / "config.toml"


def read_file(file: Path) -> dict[str, str]:
    """The settings in a file.

    Raises
    ------
    UsageError
        If it cannot be read, or holds something else.
    """
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file}: cannot be read as TOML: {error}") from None
    for name, value in content.items():
        if name not in KNOWN:
            raise UsageError(f"{file}: there is no setting {name!r}; known: {', '.join(KNOWN)}")
        if not isinstance(value, str):
            raise UsageError(f"{file}: {name} is a text, got {value!r}")
    return content


def _from_file(file: Path, tokens_inside: Path | None = None) -> _Place:
    content = read_file(file)
    token = content.get("token")
    if token is None and "token_file" in content:
        named = file.parent / Path(content["token_file"]).expanduser()
        if tokens_inside is not None and not named.resolve().is_relative_to(tokens_inside.resolve()):
            raise UsageError(
                f"{file}: token_file names {named}, outside this project: that token would go to the project's address",
                next_step="put it into your own config, or into LOCKSTEP_TOKEN",
            )
        token = _token_in(named)
        if token is None:
            raise UsageError(f"{file}: token_file names {named}, which cannot be read")
    return _Place(str(file), content.get("url"), token)


def _token_in(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None
