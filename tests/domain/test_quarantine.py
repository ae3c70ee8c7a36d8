"""Conditions under which a node gets no more work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain.life.outcomes import RULES, Reason
from lockstep.domain.life.quarantine import NodeFailure, to_quarantine

TOGETHER = 300.0
LATER = 10 * TOGETHER
BLAMING = sorted(reason for reason, rule in RULES.items() if rule.blames_node)


def quarantined(*failures: tuple[str, str, Reason, float]) -> dict[str, str]:
    return to_quarantine([NodeFailure(*failure) for failure in failures], together_seconds=TOGETHER)


def test_a_node_that_fails_two_jobs_is_quarantined_with_both_named() -> None:
    found = quarantined(
        ("n", "job-1", Reason.STORAGE, 0.0), ("n", "job-2", Reason.LAUNCH_FAILED, 1.0)
    )
    assert list(found) == ["n"]
    assert "storage (job job-1), launch_failed (job job-2)" in found["n"]


def test_a_node_that_fails_one_job_again_and_again_is_not() -> None:
    assert (
        quarantined(("n", "job-1", Reason.STORAGE, 0.0), ("n", "job-1", Reason.LAUNCH_FAILED, 1.0))
        == {}
    )


def test_a_node_that_fell_silent_with_all_its_jobs_has_failed_once() -> None:
    lost = [("n", f"job-{number}", Reason.LOST, float(number)) for number in range(8)]
    assert quarantined(*lost) == {}
    assert list(quarantined(*lost, ("n", "job-9", Reason.LOST, LATER))) == ["n"]


@pytest.mark.parametrize("reason", BLAMING)
def test_nodes_that_fail_together_for_one_reason_are_not_quarantined(reason: Reason) -> None:
    """The store, the network or the service itself was unavailable."""
    wave = [
        (node, f"job-{node}-{number}", reason, 100.0 * number + offset)
        for number in range(3)
        for node, offset in (("a", 0.0), ("b", 20.0))
    ]
    assert quarantined(*wave) == {}


@pytest.mark.parametrize("reason", BLAMING)
def test_a_job_that_fails_nodes_one_after_the_other_blames_none(reason: Reason) -> None:
    killer = [(node, "killer", reason, LATER * number) for number, node in enumerate("abc")]
    assert quarantined(*killer) == {}
    assert quarantined(*killer, ("b", "other", Reason.LAUNCH_FAILED, 0.0)) == {}


def test_a_bad_node_is_found_beside_one_that_has_another_trouble() -> None:
    found = quarantined(
        ("bad", "job-1", Reason.LAUNCH_FAILED, 0.0),
        ("other", "job-3", Reason.STORAGE, 1.0),
        ("bad", "job-2", Reason.LAUNCH_FAILED, 2.0),
    )
    assert list(found) == ["bad"]


failure = st.builds(
    NodeFailure,
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["1", "2", "3"]),
    st.sampled_from(BLAMING),
    st.floats(0, LATER),
)


@given(st.lists(failure, max_size=12))
def test_two_jobs_that_failed_on_one_node_alone_quarantine_it(
    failures: list[NodeFailure],
) -> None:
    for node in to_quarantine(failures, together_seconds=TOGETHER):
        others = {(each.job_id, each.reason) for each in failures if each.node != node}
        alone = {
            each.job_id
            for each in failures
            if each.node == node and (each.job_id, each.reason) not in others
        }
        assert len(alone) >= 2


@given(st.permutations(range(4)))
def test_the_order_of_failures_does_not_matter(order: list[int]) -> None:
    failures = [
        NodeFailure("n", "1", Reason.LOST, 0.0),
        NodeFailure("n", "2", Reason.LOST, 1.0),
        NodeFailure("n", "3", Reason.STORAGE, 2.0),
        NodeFailure("m", "4", Reason.STORAGE, LATER),
    ]
    shuffled = [failures[index] for index in order]
    assert to_quarantine(shuffled, together_seconds=TOGETHER) == to_quarantine(
        failures, together_seconds=TOGETHER
    )
