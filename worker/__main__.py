"""The command ``python -m lockstep.worker``: one node agent (``worker.settings``).

Not here: anything it does (``worker.service``).
"""

from __future__ import annotations

import sys

from pydantic import ValidationError

from lockstep.domain.errors import LockstepError
from lockstep.storage.control import settings_list
from lockstep.system import logs
from lockstep.worker import service
from lockstep.worker.settings import AgentSettings


def main() -> None:
    """Read the settings, then run until SIGTERM; with ``settings``, list them."""
    if sys.argv[1:] == ["settings"]:
        print(settings_list.document(AgentSettings))  # noqa: T201 -- output of a command
        return
    try:
        settings = AgentSettings()
    except ValidationError as error:
        settings_list.refuse("agent", error)
    logs.configure(settings.log_format, "stderr")
    try:
        service.run(settings)
    except LockstepError as error:
        print(f"agent: {error.message}; {error.next_step}", file=sys.stderr)  # noqa: T201 -- for the user who starts it
        sys.exit(2)


if __name__ == "__main__":
    main()
