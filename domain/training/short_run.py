"""Short form of a job: the same batch on other devices, for a few steps, with nothing beside them.

Not here: the commands that run such jobs (``cli.jobs.scaling``, ``cli.jobs.verify``).
"""

from __future__ import annotations

import copy
from math import prod
from typing import Any


def short_document(
    document: dict[str, Any], *, purpose: str, suffix: str, gpus: int, steps: int
) -> dict[str, Any]:
    """The spec of one short run.

    Parameters
    ----------
    document : dict
        The job's spec, of ``kind: train``.
    purpose : str
        Name of the label that marks the run; its value is the job's name.
    suffix : str
        Added to the job's name.
    gpus : int
        Devices of the run.
    steps : int
        Optimizer steps of the run.
    """
    short = copy.deepcopy(document)
    name = str(document.get("name", "job"))
    short["name"] = f"{name[:40]}-{suffix}"
    short["resources"] = {**(short.get("resources") or {}), "gpus": gpus}
    short["train"].pop("epochs", None)
    short["train"] |= {"steps": steps, "checkpoint": {}, "eval": {}, "log_every_steps": 1}
    parallel = short["train"].get("parallel")
    cut = [parallel.get(name) for name in ("tensor", "pipeline")] if parallel else []
    unit = prod(each for each in cut if isinstance(each, int) and each > 0)
    if gpus % unit:
        del short["train"]["parallel"]  # A whole model on each rank has the same numbers.
        unit = 1
    strategy = short["train"].get("strategy")
    shard = strategy.get("shard") if isinstance(strategy, dict) else None
    if isinstance(shard, int) and shard and (gpus // unit) % shard:
        del strategy["shard"]  # One copy on all ranks has the same numbers.
    short["labels"] = {**(short.get("labels") or {}), purpose: name[:255]}
    return short
