"""The process that works out a forecast beside a run: reads a request, writes an answer. See ``engine.memory.aside``."""

from __future__ import annotations

import os
import pickle
import sys


def main(parent: int) -> None:
    """Answer the one request on stdin."""
    # Whatever the person's code prints must not get into the answer.
    with os.fdopen(os.dup(1), "w") as answers:
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.nice(19)

        # Imported late: importing torch is most of the work, and is to run at the lowest priority too.
        from engine.fetching import die_with_parent
        from engine.memory.aside import answer

        die_with_parent(parent)
        answers.write(answer(pickle.load(sys.stdin.buffer)))  # noqa: S301 - our own parent wrote it


if __name__ == "__main__":
    main(int(sys.argv[1]))
