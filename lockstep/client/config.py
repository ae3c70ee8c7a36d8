"""Resolution of the server and its token.

Order: flags, ``LOCKSTEP_*``, ``lockstep.toml``, user config, the service on this machine.

``lockstep.toml`` is searched in the working folder and its parents; it and the user config may hold
``url``, ``token`` and ``token_file``. The token comes from the source of the address, or from one
with a higher priority. ``LOCKSTEP_TOKEN`` belongs to ``LOCKSTEP_URL``; without that, to the
addresses of the user config and of the local service. A ``lockstep.toml`` in a foreign repository
therefore receives no token of the user for its own address, and it may not name a token file
outside its folder.

Not here: changes of the user config (``cli.service.config``), and settings of the service's
programs (``client.local.settings``).
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from lockstep.client.errors import UnreachableError, UsageError
from lockstep.client.local.home import Home

PROJECT_FILE: Final = "lockstep.toml"
KNOWN: Final = ("url", "token", "token_file")


@dataclass(frozen=True)
class Server:
    """Server, token, and their sources."""

    url: str
    token: str | None
    origin: str
    """Source of the address, for messages."""
    token_origin: str | None = field(default=None, compare=False)
    """Source of the token."""
    withheld: str | None = field(default=None, compare=False)
    """Reason for not sending a token that exists, in one line."""


@dataclass(frozen=True)
class _Place:
    """Address and token of one place. Either may be missing."""

    origin: str
    url: str | None
    token: str | None
    token_origin: str | None = None
    """If it is another one than the address's."""
    is_own: bool = False
    """The user's own config, or the service on this machine: ``LOCKSTEP_TOKEN`` may be sent to its
    address."""


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
        _Place(
            "LOCKSTEP_URL",
            environment.get("LOCKSTEP_URL") or None,
            environment.get("LOCKSTEP_TOKEN") or None,
            token_origin="LOCKSTEP_TOKEN",  # noqa: S106 -- the variable's name
        ),
    ]
    if project := _search_upward(folder):
        places.append(_from_file(project, tokens_inside=project.parent))
    own = user_config or user_config_file()
    if own.is_file():
        places.append(replace(_from_file(own), is_own=True))
    local = home or Home.of(environment)
    if running := local.running():
        places.append(
            _Place(
                str(local.run_file), running.url, _token_in(Path(running.token_file)), is_own=True
            )
        )
    for number, place in enumerate(places):
        if place.url is not None:
            giver = _token_giver(place, places, number)
            if giver is None:
                return Server(place.url, None, place.origin, withheld=_why_withheld(place, places))
            return Server(place.url, giver.token, place.origin, giver.token_origin or giver.origin)
    raise UnreachableError(
        "no server is configured, and none runs on this machine",
        next_step=(
            "start one on this machine with `lockstep up`, or give its address with --url or "
            "LOCKSTEP_URL"
        ),
    )


def _token_giver(chosen: _Place, places: list[_Place], number: int) -> _Place | None:
    """Place with the most explicit token for the address of ``chosen``."""
    assert chosen.url is not None
    for index, place in enumerate(places):
        if place.token is None:
            continue
        if place.token_origin is not None:
            is_for_it = _is_for(place, chosen.url, places)
        else:
            # A later place may hold the token of the very same server.
            is_for_it = index <= number or _same(chosen.url, place.url)
        if is_for_it:
            return place
    return None


def _is_for(environment: _Place, url: str, places: list[_Place]) -> bool:
    """Decide if the environment's token may be sent to ``url``."""
    if environment.url is not None:
        return _same(url, environment.url)
    return any(_same(url, place.url) for place in places if place.is_own)


def _why_withheld(chosen: _Place, places: list[_Place]) -> str | None:
    """One line about the first token that is not for the address of ``chosen``.

    None where there is no token.
    """
    place = next((place for place in places if place.token is not None), None)
    if place is None:
        return None
    said = f"no token is sent to {chosen.url} (from {chosen.origin}): "
    if place.token_origin is None:
        return f"{said}the one in {place.origin} is for {place.url or 'another address'}"
    if place.url is not None:
        return f"{said}{place.token_origin} is for {place.url} ({place.origin}); give --token"
    return (
        f"{said}{place.token_origin} is for LOCKSTEP_URL or your own addresses; set LOCKSTEP_URL, "
        f"or run `lockstep config set url {chosen.url}` if you trust this address"
    )


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
            raise UsageError(
                f"{file}: unknown setting {name!r}; expected one of {', '.join(KNOWN)}"
            )
        if not isinstance(value, str):
            raise UsageError(f"{file}: {name}: expected a text, got {value!r}")
    return content


def _from_file(file: Path, tokens_inside: Path | None = None) -> _Place:
    content = read_file(file)
    token = content.get("token")
    if token is None and "token_file" in content:
        named = file.parent / Path(content["token_file"]).expanduser()
        if tokens_inside is not None and not named.resolve().is_relative_to(
            tokens_inside.resolve()
        ):
            raise UsageError(
                f"{file}: token_file names {named}, a file outside this project: its token "
                "would be sent to the project's address",
                next_step="move the setting to your own config, or use LOCKSTEP_TOKEN",
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
