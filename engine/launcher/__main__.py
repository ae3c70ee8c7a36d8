"""Entry point of ``python -m lockstep.engine.launcher FOLDER`` (see ``engine.launcher.run``)."""

from __future__ import annotations

import sys

from lockstep.engine.launcher.run import main

if __name__ == "__main__":
    main(sys.argv[1:])
