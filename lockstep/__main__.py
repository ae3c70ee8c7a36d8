"""Entry point of ``lockstep`` and ``python -m lockstep``.

``--version`` is answered here, before any heavy import: scripts call it often.

Not here: the commands (``cli.app``).
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
from typing import Final

GARBAGE_THRESHOLD: Final = 100_000
"""Objects between two searches for garbage. Importing makes many objects and no garbage, and at
Python's own 700 a tenth of a short command's time goes into looking through them."""

INTERRUPTED: Final = 130
"""As ``client.errors.ExitCode``, which is not imported yet."""


def main() -> None:
    """Run the command line and end the process with its exit code."""
    interrupted = signal.getsignal(signal.SIGINT)
    is_heeded = interrupted is signal.default_int_handler
    if is_heeded:
        # Python prints an exception that an import was interrupted by, or drops it and goes on.
        signal.signal(signal.SIGINT, _leave)
    gc.set_threshold(GARBAGE_THRESHOLD)
    words = sys.argv[1:]
    if words in (["--version"], ["version"]):
        from lockstep.domain.version import VERSION

        print(f"lockstep {VERSION}")
        sys.exit(0)
    from lockstep.cli.app import load, run

    with contextlib.suppress(Exception):  # run() names a defect
        load(words)
    code = INTERRUPTED
    with contextlib.suppress(KeyboardInterrupt):
        signal.signal(signal.SIGINT, interrupted)
        code = run(words)
    if is_heeded:
        signal.signal(signal.SIGINT, _leave)
    sys.exit(code)


def _leave(_signal: int, _frame: object) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
