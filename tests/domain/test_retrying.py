"""Decision on a retry from the earlier attempts of a job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.domain.life.outcomes import RULES, Outcome, Reason, RetryClass
from lockstep.domain.life.retrying import (
    ATTEMPTS_MAX,
    FRUITLESS_MAX,
    LONG_SECONDS,
    STUCK_NODES_MAX,
    AttemptEnd,
    AttemptHistory,
    JobDecision,
    judge,
)
from lockstep.domain.spec.job import Retry

AGAIN = sorted(
    reason
    for reason, rule in RULES.items()
    if rule.retry in (RetryClass.RETRY, RetryClass.RETRY_ELSEWHERE)
)
COUNTED = [reason for reason in AGAIN if RULES[reason].charged]
FREE = [reason for reason in AGAIN if not RULES[reason].charged]


class Job:
    """Job under the rules.

    Its attempts end one after the other, until there is no further retry.
    """

    def __init__(self, retries_max: int = 3, **retry: Any) -> None:
        self.retry = Retry(max=retries_max, **retry)
        self.record = AttemptHistory()
        self.attempts = 0
        self.last: JobDecision | None = None

    def end(
        self,
        reason: Reason,
        *,
        reached: int = 0,
        ran_seconds: float = 0.0,
        can_halve: bool = False,
        **details: Any,
    ) -> JobDecision:
        self.attempts += 1
        ending = AttemptEnd(self.attempts, ran_seconds, reached, self.retry, can_halve=can_halve)
        self.last = judge(Outcome.of(reason, "it ended", **details), self.record, ending)
        self.record = self.last.record
        return self.last

    def fail_until_it_ends(self, reason: Reason, **fields: Any) -> int:
        """Return the number of attempts until the end."""
        for count in range(1, 10 * ATTEMPTS_MAX):
            if self.end(reason, **fields).transition != "requeue":
                return count
        raise AssertionError("it goes on for ever")


# -- asked for
# --------------------------------------------------------------------------------------------------


def test_an_exit_code_of_the_spec_asks_for_a_counted_retry() -> None:
    job = Job(retries_max=1)
    again = job.end(Reason.USER_ERROR, exit_code=75)
    assert (again.transition, again.charged, again.explanation) == ("requeue", True, "retry 1 of 1")
    assert job.end(Reason.USER_ERROR, exit_code=75).transition == "fail"


def test_progress_resets_the_count_of_retries_that_were_asked_for() -> None:
    job = Job(retries_max=1)
    for step in range(1, 9):
        assert job.end(Reason.USER_ERROR, exit_code=75, reached=step).transition == "requeue"


def test_other_exit_codes_fail_unless_all_errors_are_retried() -> None:
    assert Job().end(Reason.USER_ERROR, exit_code=1).transition == "fail"
    assert Job(on_exit=()).end(Reason.USER_ERROR, exit_code=75).transition == "fail"
    assert Job(on_exit=(3, 4)).end(Reason.USER_ERROR, exit_code=4).transition == "requeue"
    for details in ({"exit_code": 1}, {"exception": "ValueError: label 12 of 10"}):
        assert Job(on_error=True).end(Reason.USER_ERROR, **details).transition == "requeue"
    assert Job(on_error=True).end(Reason.BAD_SPEC).transition == "fail"


def test_stops_by_users_use_nothing_up() -> None:
    job = Job(retries_max=1, total=3)
    job.end(Reason.KILLED)
    for _ in range(2 * FRUITLESS_MAX):
        assert job.end(Reason.PAUSED).transition == "pause"
        assert job.end(Reason.REQUEUED).transition == "requeue"
    assert (job.record.charged, job.record.fruitless) == (1, 1)
    job.end(Reason.PAUSED, reached=5)
    assert (job.record.charged, job.record.step) == (0, 5)


@pytest.mark.parametrize("reason", [Reason.SHUTDOWN, Reason.LOST, Reason.OUT_OF_MEMORY])
def test_the_total_limits_attempts_of_each_kind(reason: Reason) -> None:
    job = Job(retries_max=100, total=3)
    ends = [job.end(reason, reached=10 * number, can_halve=True) for number in range(1, 4)]
    assert [end.transition for end in ends] == ["requeue", "requeue", "fail"]
    assert ends[-1].note == "it had 3 attempts, and retry.total is 3"


# -- progress
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", COUNTED)
def test_progress_since_the_last_failure_starts_the_count_afresh(reason: Reason) -> None:
    job = Job(retries_max=1)
    for day in range(1, 8):
        assert job.end(reason, reached=100 * day).transition == "requeue"
        assert job.record.charged == 1
    assert job.end(reason, reached=700).transition == "fail"


def test_failing_between_the_same_two_checkpoints_uses_up_the_budget() -> None:
    job = Job(retries_max=3)
    assert job.fail_until_it_ends(Reason.KILLED, reached=50, last_step=60) == 4


def test_completed_steps_that_no_checkpoint_kept_are_no_progress() -> None:
    job = Job(retries_max=2)
    verdicts = [
        job.end(Reason.KILLED, reached=50, last_step=last).transition for last in (60, 70, 80)
    ]
    assert verdicts == ["requeue", "requeue", "fail"]


def test_each_retry_states_the_remaining_budget_and_why_it_was_reset() -> None:
    """``retry.max: 3`` and progress in attempt 2 give five attempts."""
    job = Job(retries_max=3)
    said = [job.end(Reason.KILLED, reached=reached).explanation for reached in (1, 2, 2, 2)]
    assert said == [
        "retry 1 of 3",
        "retry 1 of 3: the count is reset, because the job advanced from step 1 to step 2",
        "retry 2 of 3 without progress since step 2",
        "retry 3 of 3 without progress since step 2",
    ]
    last = job.end(Reason.KILLED, reached=2)
    assert (last.transition, last.explanation) == ("fail", "")
    assert last.note == (
        "4 attempts in a row got no further than step 2, and retry.max is 3; 1 of the 5 attempts "
        "is not counted, because progress resets the count and ends such as a preemption are "
        "excluded"
    )


def test_an_uncounted_retry_is_marked() -> None:
    job = Job(retries_max=0)
    assert job.end(Reason.SHUTDOWN).explanation == "not counted as a retry"
    assert job.end(Reason.KILLED).note.startswith(
        "an attempt got no further, and retry.max is 0; 1 of the 2 attempts"
    )


def test_progress_before_a_shutdown_counts_for_the_failure_after_it() -> None:
    job = Job(retries_max=1)
    assert job.end(Reason.KILLED, reached=50).transition == "requeue"
    assert job.end(Reason.SHUTDOWN, reached=90).transition == "requeue"
    assert job.end(Reason.KILLED, reached=90).transition == "requeue"
    assert job.end(Reason.KILLED, reached=90).transition == "fail"


def test_reaching_a_step_again_after_an_earlier_checkpoint_is_no_progress() -> None:
    job = Job(retries_max=2)
    steps = [job.end(Reason.KILLED, reached=reached).transition for reached in (100, 50, 100)]
    assert steps == ["requeue", "requeue", "fail"]


ends = st.tuples(
    st.sampled_from(AGAIN), st.integers(0, 5), st.sampled_from([0.0, 5.0, 2 * LONG_SECONDS])
)


@given(st.lists(ends, max_size=60), st.integers(0, 5))
def test_a_job_ends_exactly_when_so_many_counted_attempts_got_no_further(
    history: list[tuple[Reason, int, float]], retries_max: int
) -> None:
    """The budget in other words: the counted attempts since the furthest step was reached."""
    job = Job(retries_max)
    furthest, since, spinning = 0, 0, 0
    for reason, reached, ran_seconds in history:
        found = job.end(reason, reached=reached, ran_seconds=ran_seconds)
        since = (0 if reached > furthest else since) + RULES[reason].charged
        spinning = 1 if reached > furthest or ran_seconds >= LONG_SECONDS else spinning + 1
        furthest = max(furthest, reached)
        used_up = since > retries_max if RULES[reason].charged else spinning >= FRUITLESS_MAX
        assert (found.transition == "fail") == used_up
        assert bool(found.note) == used_up
        if used_up:
            return


@given(st.lists(st.tuples(st.sampled_from(FREE), st.integers(0, 3)), max_size=FRUITLESS_MAX - 1))
def test_uncounted_ends_never_use_up_the_budget(history: list[tuple[Reason, int]]) -> None:
    job = Job(retries_max=0)
    for reason, reached in history:
        assert job.end(reason, reached=reached).transition == "requeue"
    assert job.record.charged == 0


# -- spinning
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reason", FREE)
def test_a_job_that_ends_again_and_again_without_progress_is_given_up(reason: Reason) -> None:
    job = Job()
    assert job.fail_until_it_ends(reason) == FRUITLESS_MAX
    assert job.last is not None
    assert "attempts in a row" in job.last.note
    assert job.last.advice


def test_short_attempts_wait_longer_each_time() -> None:
    job = Job()
    assert [job.end(Reason.SHUTDOWN).failures for _ in range(4)] == [0, 1, 2, 3]
    assert job.end(Reason.KILLED).failures == 5
    assert job.end(Reason.KILLED, reached=1).failures == 1


def test_a_service_that_restarts_once_an_hour_never_ends_a_job() -> None:
    job = Job()
    assert all(
        job.end(Reason.SHUTDOWN, ran_seconds=3_600).transition == "requeue"
        for _ in range(ATTEMPTS_MAX - 1)
    )


@pytest.mark.parametrize("reason", AGAIN)
def test_retries_are_bounded_even_with_permanent_progress(reason: Reason) -> None:
    job = Job()
    for number in range(1, ATTEMPTS_MAX):
        assert job.end(reason, reached=number).transition == "requeue"
    assert job.end(reason, reached=ATTEMPTS_MAX).transition == "fail"


# -- the job's own fault
# -------------------------------------------------------------------------------------------


def test_three_failures_after_one_step_on_three_nodes_end_the_job() -> None:
    job = Job(retries_max=100)
    steps = [
        job.end(Reason.HOST_OUT_OF_MEMORY, node=node, last_step=7).transition
        for node in ("a", "b", "c")
    ]
    assert steps == ["requeue", "requeue", "fail"]
    assert job.last is not None
    assert "failed on 3 nodes (a, b, c) after the same step" in job.last.note
    assert "step 7" in job.last.advice


@pytest.mark.parametrize(
    "failures",
    [
        [("a", 7), ("b", 7), ("b", 7), ("a", 7)],  # two nodes
        [("a", 7), ("b", 7), ("c", 8), ("d", 7)],  # another step in between
        [("a", None), ("b", None), ("c", None)],  # no step was completed, so the cause is unknown
        [(None, 7), (None, 7), (None, 7)],
    ],
)
def test_other_failures_on_several_nodes_are_retried(
    failures: list[tuple[str | None, int | None]],
) -> None:
    job = Job(retries_max=100)
    for node, last_step in failures:
        assert job.end(Reason.LOST, node=node, last_step=last_step).transition == "requeue"


def test_a_shutdown_between_them_neither_counts_nor_hides_the_three_failures() -> None:
    job = Job(retries_max=100)
    for node in ("a", "b"):
        job.end(Reason.KILLED, node=node, last_step=7)
        assert job.end(Reason.SHUTDOWN, node="z", last_step=7).transition == "requeue"
    assert job.end(Reason.KILLED, node="c", last_step=7).transition == "fail"


def test_three_nodes_is_the_rule() -> None:
    assert STUCK_NODES_MAX == 3


# -- memory
# --------------------------------------------------------------------------------------------------


def test_out_of_memory_is_retried_uncharged_with_half_the_micro_batch() -> None:
    found = Job(retries_max=0).end(Reason.OUT_OF_MEMORY, can_halve=True)
    assert (found.transition, found.halve, found.charged) == ("requeue", True, False)


def test_lack_of_memory_at_one_sample_or_in_a_script_is_final() -> None:
    found = Job().end(Reason.OUT_OF_MEMORY, can_halve=False)
    assert (found.transition, found.halve) == ("fail", False)


@pytest.mark.parametrize("reason", sorted(set(Reason) - {Reason.OUT_OF_MEMORY}))
def test_only_lack_of_memory_halves_the_micro_batch(reason: Reason) -> None:
    assert not Job().end(reason, can_halve=True).halve
