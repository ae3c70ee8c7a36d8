"""Table of transitions: rules for every job that also apply to later additions."""

from __future__ import annotations

import pytest

from lockstep.domain.life.lifecycle import TERMINAL, TRANSITIONS, JobState

Q, S, R, P = JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.PAUSED
OK, BAD, OFF = JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED

# Written by hand from the design: queued → starting → running → succeeded | failed | cancelled, and
# back; paused from each of the first three, and back to the queue.
LEGAL = {
    (Q, S), (S, R), (R, OK), (S, BAD), (R, BAD), (S, Q), (R, Q), (Q, OFF), (S, OFF), (R, OFF),
    (Q, P), (S, P), (R, P), (P, Q), (P, OFF),
}  # fmt: skip


def _changes() -> set[tuple[JobState, JobState]]:
    return {
        (source, transition.target)
        for transition in TRANSITIONS.values()
        for source in transition.sources
    }


def test_exactly_the_designs_changes_are_legal() -> None:
    assert _changes() == LEGAL


def test_a_terminal_state_has_no_way_out() -> None:
    assert {OK, BAD, OFF} == TERMINAL
    assert not {source for source, _ in _changes()} & TERMINAL


def test_every_state_can_be_reached_from_queued() -> None:
    reached = {Q}
    while more := {target for source, target in _changes() if source in reached} - reached:
        reached |= more
    assert reached == set(JobState)


def test_every_state_can_still_end() -> None:
    ending = set(TERMINAL)
    while more := {source for source, target in _changes() if target in ending} - ending:
        ending |= more
    assert ending == set(JobState)


def test_only_a_running_job_succeeds() -> None:
    assert {source for source, target in _changes() if target is OK} == {R}


def test_no_step_leaves_a_job_where_it_was() -> None:
    assert not {(source, target) for source, target in _changes() if source is target}


@pytest.mark.parametrize("name", TRANSITIONS)
def test_every_transition_has_a_cause(name: str) -> None:
    assert len(TRANSITIONS[name].cause.split()) >= 4
    assert TRANSITIONS[name].sources
