"""Plans: from the same facts and the same function as the scheduler's, without any write."""

from __future__ import annotations

from lockstep.domain.life.outcomes import Reason
from tests.api.conftest import SCRIPT, TRAIN, Api


def test_a_plan_has_all_facts_and_writes_nothing(api: Api) -> None:
    api.register("node-a", devices=2)
    before = api.rows()
    answer = api.http.post("/v1/jobs/plan", json=TRAIN)
    plan = answer.json()
    assert answer.status_code == 200
    assert plan["plan"]["accumulation_steps"] == 4
    assert plan["sentence"] == "64 = 2 ranks × 8 samples × 4 accumulation steps"
    assert plan["spec"]["train"]["optimizer"]["betas"] == [0.9, 0.95]
    assert plan["placement"] == ["node-a"]
    assert (plan["queue"], plan["warnings"]) == (None, [])
    assert api.rows() == before
    assert not api.notifications.sent


def test_a_plan_behind_others_has_position_and_reason(api: Api) -> None:
    api.register("node-a", devices=2)
    api.job_id({**SCRIPT, "resources": {"gpus": 2}})
    plan = api.http.post("/v1/jobs/plan", json=TRAIN).json()
    assert plan["placement"] == []
    assert plan["queue"]["reason"]
    first = api.http.post("/v1/jobs/plan", json={**TRAIN, "priority": 90}).json()
    assert first["placement"] == ["node-a"]  # a higher priority is placed before the queued jobs


def test_a_plan_of_a_script_lists_the_retried_reasons(api: Api) -> None:
    """The rules of retries judge each reason. A reason of the engine's own loop is omitted."""
    retries = api.http.post("/v1/jobs/plan", json=SCRIPT).json()["retries"]
    assert {"killed", "host_out_of_memory", "network", "lost"} <= set(retries["again"])
    assert {"shutdown", "preempted"} <= set(retries["not_counted"])
    assert {"user_error", "bad_spec", "timed_out", "exit_stall"} <= set(retries["never"])
    assert retries["max"] == 3
    assert retries["sentences"][0].startswith("started again: at most 3 times in a row ")
    named = [*retries["again"], *retries["not_counted"], *retries["never"]]
    assert sorted(named) == sorted(
        {*Reason} - {"succeeded", "cancelled", "paused", "stall", "diverged", "non_finite"}
    )
    none = api.http.post("/v1/jobs/plan", json={**SCRIPT, "retry": {"max": 0}}).json()["retries"]
    assert none["again"] == []
    assert "killed" in none["never"]
    assert none["sentences"][0].startswith("started again: never after a failure")
    assert api.http.post("/v1/jobs/plan", json=TRAIN).json()["retries"] is None


def test_a_plan_without_nodes_is_unknown(api: Api) -> None:
    plan = api.http.post("/v1/jobs/plan", json=SCRIPT).json()
    assert plan["plan"] is None
    assert plan["queue"]["reason"] == "no node is registered yet"
    assert plan["warnings"] == ["no node is registered yet, so it is unknown whether the job fits"]
