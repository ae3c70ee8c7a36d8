"""Orders of ``lockstep verify`` to the engine of one of its runs, in an environment variable.

``kill:STEP`` ends every rank by SIGKILL after that step of a fresh run. ``ulp`` starts the weights
one unit in the last place away. ``resume`` resumes from the checkpoint in ``init/``, which the
agent has fetched for ``train.init_from``: another job's run, continued in this job's layout.

Not here: carrying it out (``engine.verify.hooks``).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lockstep.domain.job_environment import VERIFY

ULP: Final = "ulp"
RESUME: Final = "resume"
_KILL: Final = re.compile(r"kill:([1-9][0-9]*)")


class VerifyOrder(NamedTuple):
    """The order; by default there is none."""

    kill_after: int = 0
    """Step of a fresh run after which every rank is killed; 0 for none."""
    ulp: bool = False
    resume: bool = False


NONE: Final = VerifyOrder()
"""No order: the run of a user."""


def kill_after(step: int) -> str:
    """The order to kill every rank after ``step``."""
    return f"kill:{step}"


def read_order(text: str) -> VerifyOrder:
    """The order in the variable's text.

    Raises
    ------
    ValueError
        If it is none of them.
    """
    killed = _KILL.fullmatch(text)
    if text and killed is None and text not in (ULP, RESUME):
        raise ValueError(f"{VERIFY}: expected {ULP}, {RESUME} or kill:STEP, got {text!r}")
    return VerifyOrder(int(killed[1]) if killed else 0, text == ULP, text == RESUME)
