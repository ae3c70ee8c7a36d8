"""Order of the moves of stages, by a simulation of their messages."""

from __future__ import annotations

from itertools import product

import pytest

from lockstep.domain.training.pipeline import Move, bubble, enough, moves

CASES = list(product((1, 2, 3, 4, 7), (1, 2, 3, 4)))


@pytest.mark.parametrize(("count", "stages"), CASES)
def test_no_stage_waits_for_a_message_that_is_not_sent(count: int, stages: int) -> None:
    waiting = [list(moves(count, stages, stage)) for stage in range(stages)]
    done: set[tuple[int, Move]] = set()
    rounds = 0
    while any(waiting):
        ready = [
            stage
            for stage, left in enumerate(waiting)
            if left and all((other, left[0]) in done for other in needs(left[0], stage, stages))
        ]
        assert ready, "every stage waits"
        done |= {(stage, waiting[stage].pop(0)) for stage in ready}
        rounds += 1
    assert rounds == 2 * (count + stages - 1), "no longer than the bubble"


def needs(move: Move, stage: int, stages: int) -> list[int]:
    """Return the stages that must have made the same move before."""
    other = stage + 1 if move.backward else stage - 1
    return [other] if 0 <= other < stages else []


@pytest.mark.parametrize(("count", "stages"), CASES)
def test_each_stage_runs_each_micro_batch_once_in_their_order(count: int, stages: int) -> None:
    for stage in range(stages):
        made = list(moves(count, stages, stage))
        for backward in (False, True):
            order = [each.micro_batch for each in made if each.backward == backward]
            assert order == list(range(count))
        kept = most = 0
        for move in made:
            kept += -1 if move.backward else 1
            most = max(most, kept)
        assert most == min(count, stages - stage)


def test_the_bubble_is_a_part_of_the_step() -> None:
    assert bubble(1, 1) == 0
    assert bubble(12, 4) == pytest.approx(0.2)
    assert [enough(stages) for stages in (1, 2, 4)] == [0, 4, 12]
