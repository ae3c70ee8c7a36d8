"""The command ``python -m lockstep.engine.launcher FOLDER``.

Not here: anything it does (``engine.launcher.run``).
"""

from __future__ import annotations

import sys

from lockstep.engine.launcher.run import main

if __name__ == "__main__":
    main(sys.argv[1:])
