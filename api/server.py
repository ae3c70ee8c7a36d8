"""Start of the program: settings, logging, schema; then the server.

An invalid setting ends the start with exit code 2 and one line that names the setting and the next
step. The application is imported last: the import takes about a second, which an invalid setting or
``migrate`` should not cost.

Not here: serving (``api.serving``).
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Sequence
from typing import Final

from pydantic import ValidationError

from lockstep.api import changes
from lockstep.api.settings import ApiSettings
from lockstep.domain.audit import Action
from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.spec.fields import NAME, PATTERNS
from lockstep.storage.control import settings_list
from lockstep.storage.db import migrate, schema
from lockstep.storage.db.database import Database
from lockstep.storage.people import users
from lockstep.storage.people.audit import Sender
from lockstep.system import logs

_USAGE: Final = "usage: python -m lockstep.api [migrate | settings | welcome NAME]"


def main(arguments: Sequence[str]) -> int:
    """Run one of the four commands and return the exit code."""
    if list(arguments) == ["settings"]:
        print(settings_list.document(ApiSettings))  # noqa: T201 -- output of a command
        return 0
    welcomed = arguments[1] if len(arguments) == 2 and arguments[0] == "welcome" else None
    if welcomed is None and list(arguments) not in ([], ["migrate"]):
        print(_USAGE, file=sys.stderr)  # noqa: T201 -- usage of a command
        return 2
    try:
        settings = ApiSettings()
        logs.configure(settings.log_format, "stderr", libraries=logging.WARNING)
        if welcomed is not None:
            return _welcome(settings, welcomed)
        return _migrate(settings) if arguments else _serve(settings)
    except ValidationError as error:
        settings_list.refuse("api", error)
    except LockstepError as error:
        print(f"api: {error.message}; {error.next_step}", file=sys.stderr)  # noqa: T201 -- no log yet
        return 2


def _migrate(settings: ApiSettings) -> int:
    urls = settings.database_url, settings.series_url
    try:
        behind = migrate.pending(*urls)
    except LockstepError:
        behind = [
            "jobs",
            "series",
        ]  # SQLite without its folder; any other error is raised again by the upgrade
    migrate.upgrade(*urls)
    for which in ("jobs", "series"):
        print(f"{which}: {'brought to this version' if which in behind else 'already up to date'}")  # noqa: T201 -- output of a command
    for role in migrate.superusers(*urls):
        warning = (
            f"warning: the role {role!r} is a superuser of its PostgreSQL server, and every job "
            "can read its password; give the programs an ordinary one: docs/containers.md"
        )
        print(warning, file=sys.stderr)  # noqa: T201 -- output of a command
    return 0


def _welcome(settings: ApiSettings, name: str) -> int:
    """Make a person an active admin of the service, and print an invitation code."""
    if not re.fullmatch(NAME, name):
        raise LockstepError(
            ErrorCode.INVALID, f"{name!r} is no name", next_step=f"a name has {PATTERNS[NAME]}"
        )
    database = Database(settings.database_url, settings.series_url)
    try:
        schema.require(database)
        sender = Sender("lockstep")
        with changes.of(database, sender, Action.USER_RESTORE, target=name) as change:
            code = users.restore(change.session, name)
    finally:
        database.close()
    print(code)  # noqa: T201 -- output of a command
    about = f"{name} is an admin; the code is valid once, for an hour: lockstep login --invitation"
    print(about, file=sys.stderr)  # noqa: T201 -- output of a command
    return 0


def _serve(settings: ApiSettings) -> int:
    if settings.migrate == "on":
        migrate.upgrade(settings.database_url, settings.series_url)
    from lockstep.api.serving import serve

    return serve(settings)
