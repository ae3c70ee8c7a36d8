"""``domain.training.scaling`` agrees with the classes of the strategies.

Not here: the sentences (``tests.domain.test_scaling``).
"""

from __future__ import annotations

from lockstep.domain.training.scaling import COLLECTIVE_FORWARD
from lockstep.engine.strategies import STRATEGIES


def test_the_advice_lists_strategies_with_collectives_in_forward() -> None:
    assert {
        name for name, strategy in STRATEGIES.items() if strategy.collective_forward
    } == COLLECTIVE_FORWARD
