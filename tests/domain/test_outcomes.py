"""What each way of ending means for the job."""

from __future__ import annotations

import re

import pytest
from pydantic import ValidationError

from domain.lifecycle import STEPS, TERMINAL, JobState
from domain.outcomes import RULES, Outcome, Reason, RetryClass, judge
from domain.reading import read_spec
from domain.spec import JobSpec

# What happens after the first attempt with retries left, after the last with none left; whether it is charged.
# Written by hand from what a person would expect of each.
TABLE: dict[str, tuple[str, str, bool]] = {
    "succeeded": ("succeed", "succeed", False),
    "cancelled": ("cancel", "cancel", False),
    "timed_out": ("fail", "fail", True),
    "shutdown": ("requeue", "requeue", False),
    "preempted": ("requeue", "requeue", False),
    "user_error": ("fail", "fail", True),
    "bad_spec": ("fail", "fail", True),
    "code_unavailable": ("requeue", "fail", True),
    "out_of_memory": ("fail", "fail", True),
    "host_out_of_memory": ("requeue", "fail", True),
    "killed": ("requeue", "fail", True),
    "non_finite": ("fail", "fail", True),
    "diverged": ("requeue", "fail", True),
    "stall": ("requeue", "fail", True),
    "exit_stall": ("fail", "fail", True),
    "network": ("requeue", "fail", True),
    "storage": ("requeue", "fail", True),
    "launch_failed": ("requeue", "fail", True),
    "lost": ("requeue", "fail", True),
    "unanswered": ("requeue", "requeue", False),
}


def test_the_table_has_every_reason() -> None:
    assert set(TABLE) == {reason.value for reason in Reason}
    assert set(RULES) == set(Reason)


@pytest.mark.parametrize("name", TABLE)
def test_a_job_with_retries_left(name: str) -> None:
    step, _, charged = TABLE[name]
    assert judge(Reason(name), charged_attempts=0, retries_max=3, cancel_requested=False) == (step, charged)


@pytest.mark.parametrize("name", TABLE)
def test_a_job_without_retries_left(name: str) -> None:
    _, step, charged = TABLE[name]
    assert judge(Reason(name), charged_attempts=3, retries_max=3, cancel_requested=False) == (step, charged)


@pytest.mark.parametrize("name", sorted(set(TABLE) - {"succeeded"}))
def test_a_requested_cancel_wins_over_every_end_but_success(name: str) -> None:
    verdict = judge(Reason(name), charged_attempts=0, retries_max=3, cancel_requested=True)
    assert verdict == ("cancel", False)


def test_a_cancel_does_not_undo_a_success() -> None:
    assert judge(Reason.SUCCEEDED, charged_attempts=0, retries_max=3, cancel_requested=True).step == "succeed"


def test_retry_max_counts_retries_after_the_first_attempt() -> None:
    steps = [judge(Reason.LOST, charged_attempts=n, retries_max=2, cancel_requested=False).step for n in range(4)]
    assert steps == ["requeue", "requeue", "fail", "fail"]


def test_a_job_that_may_not_be_retried_still_survives_a_restart_of_the_service() -> None:
    assert judge(Reason.LOST, charged_attempts=0, retries_max=0, cancel_requested=False).step == "fail"
    assert judge(Reason.SHUTDOWN, charged_attempts=0, retries_max=0, cancel_requested=False).step == "requeue"


@pytest.mark.parametrize("reason", Reason)
def test_a_verdict_is_a_step_that_a_running_job_can_take(reason: Reason) -> None:
    for charged in (0, 99):
        for cancel in (False, True):
            verdict = judge(reason, charged_attempts=charged, retries_max=3, cancel_requested=cancel)
            assert JobState.RUNNING in STEPS[verdict.step].sources


@pytest.mark.parametrize("reason", Reason)
def test_a_rules_final_state_is_terminal(reason: Reason) -> None:
    assert JobState(RULES[reason].state) in TERMINAL


@pytest.mark.parametrize("reason", sorted(set(Reason) - {Reason.SUCCEEDED, Reason.CANCELLED}))
def test_every_failure_has_advice(reason: Reason) -> None:
    assert RULES[reason].advice.endswith(".")


@pytest.mark.parametrize("reason", Reason)
def test_a_field_that_advice_names_is_in_the_spec(reason: Reason) -> None:
    names = set(re.findall(r"[a-z]+_[a-z_]+|(?:[a-z_]+\.)+[a-z_]+", RULES[reason].advice))
    schema = JobSpec.model_json_schema()
    known = set(schema["properties"]).union(*(definition["properties"] for definition in schema["$defs"].values()))
    for name in names:
        assert set(name.split(".")) <= known, name


def test_only_what_the_node_may_be_guilty_of_is_tried_elsewhere() -> None:
    elsewhere = {reason.value for reason, rule in RULES.items() if rule.retry is RetryClass.RETRY_ELSEWHERE}
    assert elsewhere == {"host_out_of_memory", "diverged", "storage", "launch_failed", "lost", "unanswered"}


def test_an_outcome_carries_its_reasons_advice_and_survives_json() -> None:
    outcome = Outcome.of(Reason.KILLED, "rank 1 was ended by SIGKILL", rank=1, signal="SIGKILL", last_step=7)
    assert outcome.advice == RULES[Reason.KILLED].advice
    assert Outcome.model_validate_json(outcome.model_dump_json()) == outcome


def test_an_outcome_of_no_known_reason_is_refused() -> None:
    with pytest.raises(ValidationError):
        Outcome.model_validate({"reason": "gremlins", "message": "x"})


def test_the_advice_for_lack_of_memory_can_be_followed() -> None:
    # It says to lower train.batch.micro_size: the same batch must then still be accepted.
    document = {
        "name": "a",
        "kind": "train",
        "train": {"task": "causal_lm", "batch": {"size": 64, "micro_size": 1}, "steps": 1},
    }
    assert read_spec(document).train is not None
