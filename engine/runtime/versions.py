"""Versions of the programs of ranks that train together.

Ranks of two versions of Lockstep may not run the same collectives, and those of two versions of
torch may not draw the same numbers. They would wait for each other, or train something else.
"""

from __future__ import annotations

import torch

from lockstep.domain.life.outcomes import Reason
from lockstep.domain.version import VERSION
from lockstep.engine.runtime.errors import EngineError
from lockstep.engine.runtime.ranks import Ranks


def require_one_version(ranks: Ranks) -> None:
    """Raise unless all ranks run one version of Lockstep and of torch. All ranks must call this.

    Builds of one version of torch, such as ``+cu126`` and ``+cu128``, may train together.

    Raises
    ------
    EngineError
        ``version``, on all ranks.
    """
    mine = {"Lockstep": VERSION, "torch": torch.__version__.partition("+")[0]}
    first, *others = ranks.gather(mine)
    for rank, found in enumerate(others, 1):
        for name, version in found.items():
            if version != first[name]:
                raise EngineError(
                    Reason.VERSION,
                    f"rank {rank} runs {name} {version}, and rank 0 runs {name} {first[name]}: all "
                    "ranks of a job need one version",
                )
