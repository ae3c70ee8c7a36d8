"""Where ``lockstep`` and ``python -m client`` begin.

``--version`` is answered here, before anything heavy is imported: scripts ask for it often.

Not here: the commands (``client.cli.app``).
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and end the process with its exit code."""
    words = sys.argv[1:]
    if words in (["--version"], ["version"]):
        from client.version import version

        print(f"lockstep {version()}")
        sys.exit(0)
    from client.cli.app import run

    sys.exit(run(words))


if __name__ == "__main__":
    main()
