"""Entry point of ``lockstep`` and ``python -m lockstep``.

``--version`` is answered here, before any heavy import: scripts call it often.

Not here: the commands (``cli.app``).
"""

from __future__ import annotations

import gc
import sys
from typing import Final

GARBAGE_THRESHOLD: Final = 100_000
"""Objects between two searches for garbage. Importing makes many objects and no garbage, and at
Python's own 700 a tenth of a short command's time goes into looking through them."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    gc.set_threshold(GARBAGE_THRESHOLD)
    words = sys.argv[1:]
    if words in (["--version"], ["version"]):
        from lockstep.domain.version import VERSION

        print(f"lockstep {VERSION}")
        sys.exit(0)
    from lockstep.cli.app import run

    sys.exit(run(words))


if __name__ == "__main__":
    main()
