"""Report of a torchrun that a script runs itself, about the rank that failed first.

Its ranks are unknown to the launcher, which sees torchrun exit with 1. The report is the end of its
output; before it are the lines of its ranks, with a prefix once they have a process group.

Not here: ranks that the launcher started (``engine.launcher.evidence``).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lockstep.engine.launcher import tracebacks

_ROOT: Final = re.compile(
    r"^Root Cause \(first observed failure\):\n(?:.*\n)*?"
    r"\s+rank\s*: (\d+) \(.*\n"
    r"\s+exitcode\s*: (-?\d+) \(pid: \d+\).*\n(?:.*\n)*?={20,}$",
    re.MULTILINE,
)
_HEADER: Final = "Traceback (most recent call last):"


class RootCause(NamedTuple):
    """The first failure among torchrun's ranks."""

    rank: int
    code: int
    """Exit code, or the negative number of the signal."""
    output: str
    """The lines of the rank, or of all ranks where none has a prefix."""


def root_cause(tail: str) -> RootCause | None:
    """Return the first failure that a report at the end of ``tail`` names, or None."""
    found = _ROOT.search(tail)
    if found is None or not tracebacks.is_last(tail, found[0]):
        return None
    rank = int(found[1])
    prefix = re.compile(rf"\[rank{rank}\]: ?")
    lines = tail[: max(tail.rfind(_HEADER, 0, found.start()), 0)].splitlines()
    own = [prefix.sub("", line) for line in lines if prefix.match(line)]
    return RootCause(rank, int(found[2]), "\n".join(own or lines))
