"""Planning: what would happen, from the same facts and the same function as the scheduler's, and
nothing written."""

from __future__ import annotations

from tests.api.conftest import SCRIPT, TRAIN, Api


def test_a_plan_says_numbers_words_defaults_and_place_and_writes_nothing(api: Api) -> None:
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
    assert not api.bells.rung


def test_behind_others_it_says_its_turn_and_why_it_waits(api: Api) -> None:
    api.register("node-a", devices=2)
    api.job_id({**SCRIPT, "resources": {"gpus": 2}})
    plan = api.http.post("/v1/jobs/plan", json=TRAIN).json()
    assert plan["placement"] == []
    assert plan["queue"]["reason"]
    first = api.http.post("/v1/jobs/plan", json={**TRAIN, "priority": 90}).json()
    assert first["placement"] == ["node-a"]  # a higher priority goes ahead of what is queued


def test_with_no_node_it_says_that_it_cannot_know(api: Api) -> None:
    plan = api.http.post("/v1/jobs/plan", json=SCRIPT).json()
    assert plan["plan"] is None
    assert plan["queue"]["reason"] == "no node is registered yet"
    assert plan["warnings"] == ["no node is registered yet, so it is unknown whether the job fits"]
