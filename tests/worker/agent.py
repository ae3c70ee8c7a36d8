"""The node agent as a process, with the launcher that its command line names."""

from __future__ import annotations

import sys

from lockstep.system import logs
from lockstep.worker import service
from lockstep.worker.settings import AgentSettings

if __name__ == "__main__":
    settings = AgentSettings()
    logs.configure(settings.log_format, "stderr")
    if sys.argv[1:]:
        service.run(settings, launcher_command=sys.argv[1:])
    else:
        service.run(settings)
