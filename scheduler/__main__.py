"""``python -m lockstep.scheduler``: one scheduler, with its settings from ``LOCKSTEP_*``.

Not here: the program itself (``scheduler.service``).
"""

from __future__ import annotations

import sys

from pydantic import ValidationError

from lockstep.domain.errors import LockstepError
from lockstep.scheduler.service import run
from lockstep.scheduler.settings import SchedulerSettings
from lockstep.storage.control import settings_list
from lockstep.system import logs
from lockstep.system.processes import keep_files_private


def main() -> None:
    """Read the environment, then serve; with ``settings``, list the settings."""
    if sys.argv[1:] == ["settings"]:
        print(settings_list.document(SchedulerSettings))  # noqa: T201 -- output of a command
        return
    try:
        settings = SchedulerSettings()
    except ValidationError as error:
        settings_list.refuse("scheduler", error)
    logs.configure(
        settings.log_format, "stdout", quiet=("celery.worker.strategy", "celery.app.trace")
    )
    keep_files_private()
    try:
        run(settings)
    except LockstepError as error:
        print(f"scheduler: {error.message}; {error.next_step}", file=sys.stderr)  # noqa: T201 -- for the user who starts it
        sys.exit(2)


if __name__ == "__main__":
    main()
