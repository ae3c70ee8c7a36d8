"""Selection of the outcome of a gang from the outcomes of its nodes."""

from __future__ import annotations

import pytest

from lockstep.domain.life.gang import GangMember, decide, is_cause, is_consequence
from lockstep.domain.life.outcomes import Outcome, Reason

STOPS = {Reason.CANCELLED, Reason.TIMED_OUT, Reason.SHUTDOWN, Reason.PREEMPTED}
STOPS |= {Reason.PAUSED, Reason.REQUEUED}
WAITING = {Reason.SUCCEEDED, Reason.NETWORK, *STOPS}


def part(
    node_rank: int, reason: Reason | None, at: float | None = 0.0, **details: object
) -> GangMember:
    outcome = (
        None
        if reason is None
        else Outcome.of(reason, f"{reason} on {node_rank}", node=f"n{node_rank}", **details)
    )
    return GangMember(node_rank, None if reason is None else at, outcome)


@pytest.mark.parametrize("reason", list(Reason))
def test_the_only_node_of_a_gang_decides_the_outcome(reason: Reason) -> None:
    alone = part(0, reason)
    assert decide([alone], None) == alone.outcome


@pytest.mark.parametrize("reason", list(Reason))
def test_an_outcome_is_a_cause_unless_others_must_be_waited_for(reason: Reason) -> None:
    assert is_cause(Outcome.of(reason, "", rank=1)) == (reason not in WAITING)


@pytest.mark.parametrize("other", [None, *sorted(Reason)])
def test_a_known_cause_is_the_outcome_once_no_node_has_ranks(other: Reason | None) -> None:
    cause = Outcome.of(Reason.KILLED, "killed", node="n1")
    parts = [part(0, other, at=1.0), part(1, Reason.KILLED, at=9.0)]
    assert decide(parts, cause) == (None if other is None else cause)
    unclaimed = GangMember(2, None, None, claimed=False)
    assert decide([parts[1], unclaimed], cause) == cause


def test_if_all_nodes_lost_their_peers_the_first_report_counts() -> None:
    decided = decide([part(0, Reason.NETWORK, at=2.0), part(1, Reason.NETWORK, at=1.0)], None)
    assert decided is not None
    assert decided.node == "n1"


@pytest.mark.parametrize("stop", sorted(STOPS))
def test_a_stop_wins_over_connections_that_broke_by_it(stop: Reason) -> None:
    for other in (Reason.NETWORK, Reason.SUCCEEDED):
        decided = decide([part(0, other, at=1.0), part(1, stop, at=2.0)], None)
        assert decided is not None
        assert decided.reason is stop


def test_node_rank_0_reports_success_for_all() -> None:
    decided = decide(
        [part(1, Reason.SUCCEEDED, at=1.0), part(0, Reason.SUCCEEDED, at=2.0, last_step=9)], None
    )
    assert decided is not None
    assert (decided.reason, decided.last_step, decided.message) == (
        Reason.SUCCEEDED, 9, "all ranks on 2 nodes succeeded",
    )  # fmt: skip


def test_a_part_that_was_ended_by_others_gives_no_outcome() -> None:
    decided = decide([GangMember(0, 1.0, None), part(1, Reason.NETWORK, at=2.0)], None)
    assert decided is not None
    assert decided.reason is Reason.NETWORK


def test_a_stall_is_a_cause_only_if_it_names_a_rank() -> None:
    assert is_cause(Outcome.of(Reason.STALL, "rank 3 hangs", rank=3))
    assert is_consequence(Outcome.of(Reason.STALL, "all of them wait"))


@pytest.mark.parametrize("reason", sorted(WAITING))
def test_the_gang_waits_for_an_unclaimed_part_unless_it_is_stopped(reason: Reason) -> None:
    decided = decide([part(0, reason), GangMember(1, None, None, claimed=False)], None)
    assert (decided is None) == (reason not in STOPS)
