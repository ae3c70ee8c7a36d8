"""Run a program that must not outlive its parent.

``python tethered.py PARENT_PID PROGRAM ARGUMENT…``.

Asks the kernel to send SIGKILL when the parent's thread that started this process ends, then
becomes the program. The wish survives ``exec``. Done here and not in a ``preexec_fn``, which is not
safe in a process with threads. Where the kernel cannot do it (not Linux) the program simply runs.

Runs as a file with ``-I -S``, so that it costs milliseconds; nothing may be imported here but the
standard library.

Not here: starting it, and ending it in order (``client.local.supervisor``).
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent and become the program."""
    parent, program, *arguments = sys.argv[1:]
    if sys.platform == "linux":
        import ctypes

        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
            sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
        # The parent may have ended before the call; the kernel would then send no signal.
        if os.getppid() != int(parent):
            sys.exit(1)
    os.execvp(program, [program, *arguments])  # noqa: S606 - the argv comes from our own table


if __name__ == "__main__":
    main()
