"""``python -m lockstep.api``: serve. ``python -m lockstep.api migrate``: bring the databases to this version's schema, and say what was done.

Not here: the command a person types (``lockstep``), which starts this.
"""

from __future__ import annotations

import sys

from lockstep.api import server

if __name__ == "__main__":
    sys.exit(server.main(sys.argv[1:]))
