"""Entry point of ``python -m lockstep.api``.

Without arguments it serves the API. ``migrate`` upgrades the databases to this version's schema and
prints the result. ``settings`` prints its settings as JSON. ``welcome NAME`` makes a person an
admin of the service.

Not here: the ``lockstep`` command, which starts this program.
"""

from __future__ import annotations

import sys

from lockstep.api import server
from lockstep.system.processes import keep_files_private

if __name__ == "__main__":
    keep_files_private()
    sys.exit(server.main(sys.argv[1:]))
