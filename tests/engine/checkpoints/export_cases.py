"""A run whose task adds files to the export, for ranks of ``tests.harness.ranks``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from lockstep.engine.loop.trainer import Trainer
from lockstep.engine.runtime.ranks import Ranks
from tests.engine.cases import planned
from tests.engine.toy import Toy, toy_task

OPTIONS: dict[str, Any] = {
    "batch": {"size": 12, "micro_size": 2},
    "steps": 2,
    "checkpoint": {"every_steps": 1},
}


def writing(ranks: Ranks, folder: Path, how: str) -> None:
    """Train a toy whose task writes files."""

    def export_files(_model: nn.Module, target: Path) -> None:
        (target / "labels.json").write_text('["cat", "dog"]')
        if how == "raises":
            raise ValueError("no labels")
        if how == "refused":
            (target / "state.json").write_text("")
            (target / "a name").write_text("")
            (target / "inner").mkdir()
            (target / "link").symlink_to("/etc/hostname")

    plan, spec = planned(OPTIONS, ranks.world_size)
    folder.mkdir(parents=True, exist_ok=True)
    task = toy_task(Toy(items=33), folder)
    task.export_files = export_files  # type: ignore[method-assign]
    Trainer(spec, plan, task, ranks, folder).run()
