"""The process that works out a forecast beside a run: reads a request, writes an answer.

See ``engine.memory.forecast_process``.
"""

from __future__ import annotations

import os
import pickle
import sys


def main(parent: int) -> None:
    """Answer the one request on stdin."""
    with os.fdopen(os.dup(1), "w") as answers:
        # Imported late: this import prints nothing, but the file descriptor of the answer must be
        # set first.
        from lockstep.engine.data.fetching import die_with_parent
        from lockstep.engine.memory.forecast_process import answer, be_quiet

        die_with_parent(parent)
        be_quiet()
        answers.write(answer(pickle.load(sys.stdin.buffer)))  # noqa: S301 - our own parent wrote it


if __name__ == "__main__":
    main(int(sys.argv[1]))
