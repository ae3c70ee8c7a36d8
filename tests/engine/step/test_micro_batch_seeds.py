"""Random draws of a model in training are seeded by step, rank and micro-batch."""

from __future__ import annotations

from pathlib import Path

from tests.engine.drawing import STEPS, draws
from tests.harness.ranks import Pool


def test_no_two_micro_batches_of_a_run_draw_the_same(pool: Pool, tmp_path: Path) -> None:
    drawn = [draw for rank in pool.run(draws, tmp_path, world_size=2) for draw in rank]
    assert len(set(drawn)) == len(drawn) == 2 * 2 * STEPS
