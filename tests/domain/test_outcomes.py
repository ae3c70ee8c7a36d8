"""Effect of each reason for an end on the job."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pydantic import ValidationError

from lockstep.domain import limits
from lockstep.domain.life.lifecycle import TERMINAL, TRANSITIONS, Intent, JobState
from lockstep.domain.life.outcomes import RULES, Outcome, Reason, RetryClass
from lockstep.domain.life.retrying import AttemptEnd, AttemptHistory, JobDecision, judge
from lockstep.domain.spec.job import JobSpec, Retry

# The result of the first attempt with retries left, of the last with none left, and the charge.
# Written by hand from the expectation of a user.
TABLE: dict[str, tuple[str, str, bool]] = {
    "succeeded": ("succeed", "succeed", False),
    "cancelled": ("cancel", "cancel", False),
    "timed_out": ("fail", "fail", True),
    "paused": ("pause", "pause", False),
    "requeued": ("requeue", "requeue", False),
    "shutdown": ("requeue", "requeue", False),
    "preempted": ("requeue", "requeue", False),
    "user_error": ("fail", "fail", True),
    "bad_spec": ("fail", "fail", True),
    "code_unavailable": ("requeue", "fail", True),
    "out_of_memory": ("fail", "fail", False),
    "host_out_of_memory": ("requeue", "fail", True),
    "killed": ("requeue", "fail", True),
    "non_finite": ("fail", "fail", True),
    "diverged": ("requeue", "fail", True),
    "stall": ("requeue", "fail", True),
    "exit_stall": ("fail", "fail", True),
    "network": ("requeue", "fail", True),
    "port_in_use": ("requeue", "fail", True),
    "storage": ("requeue", "fail", True),
    "launch_failed": ("requeue", "fail", True),
    "lost": ("requeue", "fail", True),
    "cut_off": ("requeue", "requeue", False),
    "unanswered": ("requeue", "requeue", False),
    "version": ("requeue", "requeue", False),
}


def test_the_table_has_every_reason() -> None:
    assert set(TABLE) == {reason.value for reason in Reason}
    assert set(RULES) == set(Reason)


def ended(name: str, **details: Any) -> Outcome:
    return Outcome.of(Reason(name), "it ended", **details)


def verdict(
    name: str, before: AttemptHistory | None = None, *, retries_max: int = 3, **ending: Any
) -> JobDecision:
    known: dict[str, Any] = {
        "number": 1,
        "ran_seconds": 0.0,
        "reached": 0,
        "retry": Retry(max=retries_max),
        **ending,
    }
    return judge(ended(name), before or AttemptHistory(), AttemptEnd(**known))


@pytest.mark.parametrize("name", TABLE)
def test_a_job_with_retries_left(name: str) -> None:
    step, _, charged = TABLE[name]
    found = verdict(name)
    assert (found.transition, found.charged) == (step, charged)


@pytest.mark.parametrize("name", TABLE)
def test_a_job_without_retries_left(name: str) -> None:
    _, step, charged = TABLE[name]
    found = verdict(name, AttemptHistory(charged=3))
    assert (found.transition, found.charged) == (step, charged)


@pytest.mark.parametrize("name", sorted(set(TABLE) - {"succeeded"}))
def test_a_requested_cancel_wins_over_every_end_but_success(name: str) -> None:
    found = verdict(name, intent=Intent.CANCEL)
    assert (found.transition, found.charged) == ("cancel", False)


@pytest.mark.parametrize("name", TABLE)
def test_a_requested_pause_wins_over_each_retry_and_nothing_else(name: str) -> None:
    step = TABLE[name][0]
    found = verdict(name, intent=Intent.PAUSE).transition
    assert found == ("pause" if step == "requeue" else step)


def test_a_job_that_was_resumed_while_it_was_paused_is_queued_again() -> None:
    assert verdict("paused", intent=Intent.REQUEUE).transition == "requeue"


def test_a_cancel_does_not_undo_a_success() -> None:
    assert verdict("succeeded", intent=Intent.CANCEL).transition == "succeed"


def test_retry_max_counts_retries_after_the_first_attempt() -> None:
    steps = [verdict("lost", AttemptHistory(charged=n), retries_max=2).transition for n in range(4)]
    assert steps == ["requeue", "requeue", "fail", "fail"]


def test_a_job_without_retries_survives_a_restart_of_the_service() -> None:
    assert verdict("lost", retries_max=0).transition == "fail"
    assert verdict("shutdown", retries_max=0).transition == "requeue"


@pytest.mark.parametrize("reason", Reason)
def test_a_verdict_is_a_step_that_a_running_job_can_take(reason: Reason) -> None:
    for charged in (0, 99):
        for cancel in (False, True):
            found = verdict(
                reason.value,
                AttemptHistory(charged=charged),
                intent=Intent.CANCEL if cancel else None,
            )
            assert JobState.RUNNING in TRANSITIONS[found.transition].sources


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
    known = set(schema["properties"]).union(
        *(definition["properties"] for definition in schema["$defs"].values())
    )
    for name in names:
        assert set(name.split(".")) <= known, name


def test_only_possible_faults_of_the_node_move_the_retry() -> None:
    elsewhere = {
        reason.value for reason, rule in RULES.items() if rule.retry is RetryClass.RETRY_ELSEWHERE
    }
    assert elsewhere == {
        "host_out_of_memory",
        "diverged",
        "port_in_use",
        "storage",
        "launch_failed",
        "lost",
        "unanswered",
        "version",
    }


def test_an_outcome_carries_its_reasons_advice_and_survives_json() -> None:
    outcome = Outcome.of(
        Reason.KILLED, "rank 1 was ended by SIGKILL", rank=1, signal="SIGKILL", last_step=7
    )
    assert outcome.advice == RULES[Reason.KILLED].advice
    assert Outcome.model_validate_json(outcome.model_dump_json()) == outcome


def test_an_outcome_with_an_unknown_reason_is_refused() -> None:
    with pytest.raises(ValidationError):
        Outcome.model_validate({"reason": "gremlins", "message": "x"})


def test_possible_faults_of_the_node_are_retried_elsewhere() -> None:
    blamed = {reason for reason, rule in RULES.items() if rule.blames_node}
    assert blamed == {Reason.STORAGE, Reason.LAUNCH_FAILED, Reason.LOST, Reason.UNANSWERED}
    assert all(RULES[reason].retry is RetryClass.RETRY_ELSEWHERE for reason in blamed)
    # A node of an older version works well otherwise.
    assert RULES[Reason.VERSION].retry is RetryClass.RETRY_ELSEWHERE


def test_a_text_of_an_outcome_beyond_its_limit_is_cut() -> None:
    most = limits.OUTCOME_TEXT_BYTES_MAX
    whole = "é" * (most // 2)
    texts = dict.fromkeys(("message", "exception", "node", "signal", "advice"), whole)
    kept = Outcome.model_validate({"reason": "killed", **texts})
    assert all(getattr(kept, name) == whole for name in texts)
    cut = Outcome.model_validate({"reason": "killed", **dict.fromkeys(texts, f"{whole}!")})
    assert all(getattr(cut, name) == "é" * (most // 2 - 2) + "…" for name in texts)


@pytest.mark.parametrize(
    ("name", "most"),
    [("traceback", limits.TRACEBACK_CHARS_MAX), ("log_excerpt", limits.EXCERPT_CHARS_MAX)],
)
def test_the_end_of_a_traceback_and_an_excerpt_is_kept(name: str, most: int) -> None:
    found = Outcome.model_validate({"reason": "killed", "message": "", name: "a" + "b" * most})
    assert getattr(found, name) == "b" * most
    whole = Outcome.model_validate({"reason": "killed", "message": "", name: "a" * most})
    assert getattr(whole, name) == "a" * most
