"""Nodes that are drained, quarantined and resumed over HTTP."""

from __future__ import annotations

import time
from datetime import datetime

import pytest
from sqlalchemy import update

from lockstep.broker.messages import WakeScheduler
from lockstep.domain.life.outcomes import Reason
from lockstep.storage.attempts import nodes
from lockstep.storage.db.tables import NodeRow
from tests.api.conftest import SCRIPT, Api, problem
from tests.storage import scenes


def test_a_drained_node_gets_no_more_work_and_a_resumed_one_does(api: Api) -> None:
    scenes.add_node(api.database)
    answer = api.http.post("/v1/nodes/n1/drain")
    assert (answer.status_code, answer.json()["state"]) == (200, "draining")
    assert scenes.place(api.database, scenes.submit(api.database)) is None
    answer = api.http.post("/v1/nodes/n1/resume")
    assert (answer.status_code, answer.json()["state"]) == (200, "ready")
    assert api.notifications.sent == [WakeScheduler()]
    assert scenes.place(api.database, scenes.submit(api.database)) is not None


def test_a_drain_has_a_reason_and_a_person_until_the_node_is_resumed(api: Api) -> None:
    scenes.add_node(api.database)
    node = api.http.post("/v1/nodes/n1/drain", params={"reason": " new power supply "}).json()
    assert (node["reason"], node["drained_by"]) == ("new power supply", "ada")
    assert abs(datetime.fromisoformat(node["since"]).timestamp() - time.time()) < 60
    assert api.http.get("/v1/nodes").json()["items"] == [node]
    with api.database.jobs() as session:
        nodes.quarantine(session, "n1", "it failed 2 jobs")
    [node] = api.http.get("/v1/nodes").json()["items"]
    assert (node["reason"], node["drained_by"]) == ("it failed 2 jobs", None)
    for change in ("resume", "drain"):
        node = api.http.post(f"/v1/nodes/n1/{change}").json()
        assert node["reason"] is None
        assert (node["since"] is None) is (node["drained_by"] is None) is (change == "resume")
    refused = api.http.post("/v1/nodes/n1/drain", params={"reason": "x" * 201})
    problem(refused, 422, "invalid")


def test_a_free_device_has_the_time_since_which_no_job_holds_it(api: Api) -> None:
    def since() -> list[str | None]:
        [node] = api.http.get("/v1/nodes").json()["items"]
        return [device["free_since"] for device in node["devices"]]

    claim = scenes.run(api.database)
    tag = api.http.get("/v1/nodes").headers["ETag"]
    assert since() == [None] * 4
    scenes.end(api.database, claim, Reason.SUCCEEDED)
    assert since() == [None] * 4
    scenes.release(api.database, claim)
    *used, third, fourth = since()
    assert (third, fourth) == (None, None)
    for each in used:
        assert each is not None
        assert abs(datetime.fromisoformat(each).timestamp() - time.time()) < 60
    assert api.http.get("/v1/nodes", headers={"If-None-Match": tag}).status_code == 200


def test_a_quarantined_node_has_a_reason_until_it_is_resumed(api: Api) -> None:
    scenes.add_node(api.database)
    with api.database.jobs() as session:
        nodes.set_draining(session, "n1", draining=True)
        nodes.quarantine(session, "n1", "it failed 2 jobs")
    [node] = api.http.get("/v1/nodes").json()["items"]
    assert (node["state"], node["reason"]) == ("quarantined", "it failed 2 jobs")
    node = api.http.post("/v1/nodes/n1/resume").json()
    assert (node["state"], node["reason"]) == ("ready", None)


def test_the_list_has_what_nodes_offer_and_changes_with_it(api: Api) -> None:
    def listed(offers: list[str], tag: str = "") -> tuple[list[str], str]:
        with api.database.jobs() as session:
            nodes.register(session, "n1", [], version="1", boot_id="b", offers=offers)
        answer = api.http.get("/v1/nodes", headers={"If-None-Match": tag})
        assert answer.status_code == 200
        return answer.json()["items"][0]["offers"], answer.headers["ETag"]

    found, tag = listed(["data:x"])
    assert found == ["data:x"]
    assert listed(["data:x", "rack:a"], tag)[0] == ["data:x", "rack:a"]


def test_a_submit_and_a_plan_warn_of_what_no_registered_node_offers(api: Api) -> None:
    with api.database.jobs() as session:
        found = [nodes.DeviceInfo(0, "cpu", "cpu")]
        nodes.register(session, "n1", found, version="1", boot_id="b", offers=["rack:a"])
    for needs, warnings in (
        (["rack:a"], []),
        (["data:x", "rack:a"], ["no node that is registered offers data:x"]),
    ):
        spec = {**SCRIPT, "resources": {"needs": needs}}
        plan = api.http.post("/v1/jobs/plan", json=spec).json()
        assert plan["warnings"] == warnings
        assert (plan["placement"], (plan["queue"] or {}).get("code")) == (
            ([], "needs") if warnings else (["n1"], None)
        )
        answer = api.submit(spec)
        assert answer.status_code == 201
        assert (answer.json()["reason"] in warnings) is bool(warnings)


@pytest.mark.parametrize("change", ["drain", "resume"])
def test_a_node_that_is_not_there_is_named(api: Api, change: str) -> None:
    problem(api.http.post(f"/v1/nodes/n9/{change}"), 404, "not_found")
    problem(api.http.delete("/v1/nodes/n9"), 404, "not_found")


def test_a_lost_node_is_removed_until_its_agent_returns(api: Api) -> None:
    claim = scenes.run(api.database)
    lost = update(NodeRow).values(seen_at=NodeRow.seen_at - 1_000.0, draining=True)
    for why, step in (
        ("n1 sent a heartbeat", lambda session: session.execute(lost)),
        (f"an attempt of job {claim.job_id} has not ended on node n1", lambda _: None),
    ):
        assert why in problem(api.http.delete("/v1/nodes/n1"), 409, "conflict")["detail"]
        with api.database.jobs() as session:
            step(session)
    scenes.end(api.database, claim, Reason.USER_ERROR)
    assert "n1" in problem(api.http.delete(f"/v1/jobs/{claim.job_id}"), 409, "conflict")["detail"]
    assert api.http.delete("/v1/nodes/n1").status_code == 204
    assert api.http.get("/v1/nodes").json()["items"] == []
    for change in ("POST /v1/nodes/n1/resume", "DELETE /v1/nodes/n1"):
        problem(api.http.request(*change.split()), 404, "not_found")
    assert api.submit({**SCRIPT, "resources": {"gpus": 64}}).status_code == 201  # as without nodes
    audit = api.http.get("/v1/audit", params={"action": "node.remove"}).json()["items"]
    assert [row["target"] for row in audit] == ["n1"]
    assert api.http.delete(f"/v1/jobs/{claim.job_id}").status_code == 204
    scenes.add_node(api.database)
    [node] = api.http.get("/v1/nodes").json()["items"]
    assert (node["state"], node["devices_free"]) == ("ready", 4)


def test_a_node_is_leaving_until_its_next_heartbeat(api: Api) -> None:
    def state() -> str:
        (node,) = api.http.get("/v1/nodes").json()["items"]
        found: str = node["state"]
        return found

    api.register("n1")
    assert state() == "ready"
    with api.database.jobs() as session:
        nodes.leave(session, "n1")
    assert state() == "leaving"
    with api.database.jobs() as session:
        nodes.touch(session, "n1")  # all that an agent of the previous version writes
    assert state() == "ready"
    with api.database.jobs() as session:
        nodes.leave(session, "n1")
    api.register("n1")
    assert state() == "ready"
