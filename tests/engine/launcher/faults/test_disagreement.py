"""Ranks that disagree about a collective are both named, each with its own call.

Not here: replicas that differ at the start (``tests.engine.step.test_replicas``), and ranks that
hang because they disagree without ``train.debug`` (``tests.engine.launcher.faults.test_stall``).
"""

from __future__ import annotations

import re

import pytest

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.launcher.evidence import disagreement
from tests.engine.launcher.faults.drills import Fault, all_gone, prepare, struck, why
from tests.harness.attempts import Attempt
from tests.harness.processes import until

pytestmark = pytest.mark.contract(34)

MISMATCH = (
    "RuntimeError: Detected mismatch between collectives on ranks. Rank 1 is running collective: "
    "CollectiveFingerPrint("
    "SequenceNumber=203, OpType=BROADCAST, TensorShape=[2, 3], TensorDtypes=Float, "
    "TensorDeviceTypes=TensorOptions(dtype="
    "float (default))), but Rank 0 is running collective: "
    "CollectiveFingerPrint(SequenceNumber=203, OpType=BARRIER)."
    "Collectives differ in the following aspects:   Op type: BROADCASTvs BARRIER"
)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        ("shape", "ALLREDUCE of [2]", "ALLREDUCE of [3]"),
        pytest.param("order", "ALLREDUCE of [2]", "BROADCAST of [2]", marks=pytest.mark.drill),
        pytest.param("number", "ALLREDUCE of [", "ALLREDUCE of [2]", marks=pytest.mark.drill),
    ],
)
def test_in_debug_mode_both_sides_of_a_disagreement_are_named(
    attempt: Attempt, kind: str, one: str, other: str
) -> None:
    prepare(attempt, Fault("forward", f"disagree in {kind}", rank=-1, at=5), debug=True).start()
    struck(attempt)
    until(lambda: all_gone(attempt), seconds=60, what="all processes are gone")
    outcome = attempt.outcome()
    assert outcome.reason is Reason.USER_ERROR, (outcome, why(attempt))
    sides = (
        f"the ranks disagree: rank 0 entered {re.escape(one)}.*, rank 1 entered {re.escape(other)}"
    )
    assert re.match(sides, outcome.message), outcome.message
    assert outcome.exception is not None
    assert "Detected mismatch between collectives" in outcome.exception
    assert outcome.last_step == 2


def test_a_disagreement_is_reported_in_the_order_of_ranks() -> None:
    assert disagreement(MISMATCH) == (
        "the ranks disagree: rank 0 entered BARRIER as collective 203, "
        "rank 1 entered BROADCAST of [2, 3] as collective 203"
    )


@pytest.mark.parametrize("text", [None, "", "RuntimeError: Rank 1 is running collective: lunch"])
def test_other_errors_are_not_a_disagreement(text: str | None) -> None:
    assert disagreement(text) is None
