"""Memory of each rank in a plan: computed, or measured in an earlier job of the same size."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from sqlalchemy import update

from lockstep.api.jobs.forecasts import (
    FAILURE_SECONDS,
    WAITING_MAX,
    ForecastProcess,
    Forecasts,
    request_of,
)
from lockstep.domain.rights import ProjectRole
from lockstep.domain.spec.train import Train
from lockstep.domain.training.memory import MemoryForecast
from lockstep.domain.training.predicted import ForecastAnswer, ForecastRequest
from lockstep.storage.attempts import attempts, events, nodes
from lockstep.storage.attempts.memories import Capacity
from lockstep.storage.attempts.nodes import DeviceInfo
from lockstep.storage.db.people_tables import UserRow
from lockstep.storage.people import projects, tokens
from tests.api.conftest import SCRIPT, TRAIN, Api
from tests.storage import scenes

PARTS = dict.fromkeys(MemoryForecast.parts(), 2**20)
MEMORY = MemoryForecast.model_validate(PARTS)
OWN: dict[str, Any] = {
    "code": {"path": "/code"},
    "train": {"task": "mine.py:Mine", "batch": {"size": 64, "micro_size": 8}, "steps": 20},
}


class Computes:
    """Stand-in for the process: it answers when it is allowed to, and records its requests."""

    def __init__(self) -> None:
        self.asked: list[ForecastRequest] = []
        self.may_answer = threading.Event()
        self.answer = ForecastAnswer(forecast=MEMORY, micro_batch_size=8, micro_batch_size_max=32)

    def __call__(self, request: ForecastRequest) -> ForecastAnswer:
        self.asked.append(request)
        assert self.may_answer.wait(60)
        return self.answer

    def close(self) -> None:
        self.may_answer.set()


@pytest.fixture
def computes() -> Computes:
    return Computes()


@pytest.fixture
def served(api: Api, computes: Computes) -> Api:
    """Return a service that computes forecasts and has a node."""
    register(api)
    use(api, Forecasts(api.database, computes, wait_seconds=60))
    computes.may_answer.set()
    return api


def use(api: Api, forecasts: Forecasts) -> None:
    parts = api.http.app.state.parts  # type: ignore[attr-defined]  # set by the app
    object.__setattr__(parts, "forecasts", forecasts)


def register(
    api: Api, name: str = "n1", type_: str = "cpu", memory_bytes: int | None = 2**30
) -> None:
    with api.database.jobs() as session:
        found = [DeviceInfo(index, "cpu", type_, memory_bytes) for index in range(4)]
        nodes.register(session, name, found, version="1", boot_id="b")


def planned(api: Api, spec: Any = TRAIN) -> Any:
    answer = api.http.post("/v1/jobs/plan", json=spec)
    assert answer.status_code == 200, answer.text
    return answer.json()["memory"]


def test_a_built_in_task_has_a_forecast_with_parts_and_limit(served: Api) -> None:
    found = planned(served)
    assert (found["state"], found["source"]) == ("known", "task")
    assert found["forecast"] == {**PARTS, "stages": [], "peak": 7 * 2**20}
    assert (found["micro_batch_size"], found["micro_batch_size_max"]) == (8, 32)
    assert (found["device_type"], found["capacity_bytes"]) == ("cpu", 2**30)


def test_a_long_forecast_does_not_delay_a_plan(api: Api, computes: Computes) -> None:
    register(api)
    use(api, Forecasts(api.database, computes, wait_seconds=0))
    assert planned(api)["state"] == "computing"
    use_same = api.http.app.state.parts.forecasts  # type: ignore[attr-defined]
    assert planned(api)["forecast"] is None
    computes.may_answer.set()
    use_same._wait_seconds = 60
    assert planned(api)["forecast"]["peak"] == 7 * 2**20
    assert len(computes.asked) == 1


def test_changes_without_effect_on_memory_start_no_forecast(
    served: Api, computes: Computes
) -> None:
    planned(served)
    train = TRAIN["train"]
    for changes in (
        {"steps": 7},
        {"seed": 3},
        {"optimizer": {"name": "adamw", "lr": 0.1}},
        {"task_args": {"path": "/x"}},
    ):
        planned(served, {**TRAIN, "train": train | changes})
    assert len(computes.asked) == 1
    planned(served, {**TRAIN, "train": train | {"precision": "bf16"}})
    assert len(computes.asked) == 2


def test_the_limit_of_a_rank_is_the_device_without_headroom(
    served: Api, computes: Computes
) -> None:
    planned(served, {**TRAIN, "train": TRAIN["train"] | {"memory_headroom": 0.5}})
    assert computes.asked[0].available_bytes == 2**29
    assert computes.asked[0].world_size == 2


def test_the_device_is_the_smallest_of_those_that_the_job_may_get(api: Api) -> None:
    register(api, "small", "A", 2**30)
    register(api, "large", "B", 2**33)
    one = {**TRAIN, "resources": {"gpus": 2, "gpu_type": "B"}}
    assert planned(api, one)["capacity_bytes"] == 2**33
    many = {**TRAIN, "resources": {"gpus": 2}}
    # On the node on which it would be placed now.
    assert planned(api, many)["device_type"] in {"A", "B"}


@pytest.mark.parametrize(
    "spec", [OWN, {"train": {**TRAIN["train"], "optimizer": {"name": "package.Optimizer"}}}]
)
def test_the_code_of_a_job_is_not_run_by_the_service(
    served: Api, computes: Computes, spec: dict[str, Any]
) -> None:
    found = planned(served, {**TRAIN, **spec})
    assert computes.asked == []
    assert found["state"] == "unknown"
    assert "lockstep plan --code DIR" in found["why"]


def test_a_script_has_no_forecast(served: Api) -> None:
    assert planned(served, SCRIPT) is None


def test_of_many_at_once_the_newest_are_computed(api: Api, computes: Computes) -> None:
    register(api)
    forecasts = Forecasts(api.database, computes, wait_seconds=0)
    use(api, forecasts)
    for layers in range(1, 11):
        train = TRAIN["train"] | {"task_args": {"layers": layers}}
        assert planned(api, {**TRAIN, "train": train})["state"] == "computing"
    computes.may_answer.set()
    forecasts._pool.shutdown()
    asked = [request.train.task_args["layers"] for request in computes.asked]
    # One may have started before the others arrived.
    assert asked[-WAITING_MAX:] == [9, 10]
    assert len(asked) <= WAITING_MAX + 1


def test_a_failure_is_repeated_after_a_while_and_an_answer_never(
    api: Api, computes: Computes
) -> None:
    register(api)
    times = [0.0]
    use(api, Forecasts(api.database, computes, wait_seconds=60, clock=lambda: times[0]))
    computes.may_answer.set()
    answer, computes.answer = computes.answer, ForecastAnswer(why="there is no such file")
    for times[0], asked in ((0.0, 1), (FAILURE_SECONDS, 1), (FAILURE_SECONDS + 1, 2)):
        assert planned(api)["why"] == "there is no such file"
        assert len(computes.asked) == asked
    computes.answer = answer
    for times[0] in (3 * FAILURE_SECONDS, 9 * FAILURE_SECONDS):
        assert planned(api)["state"] == "known"
        assert len(computes.asked) == 3


def test_a_service_that_ends_does_not_wait_for_a_forecast(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = ForecastProcess()
    forecasts = Forecasts(api.database, beside, wait_seconds=0)
    train = Train.model_validate({"task": "causal_lm", "batch": {"size": 64}, "steps": 1})
    assert forecasts._answer(request_of(train, 2, None)) is None
    (kept,) = forecasts._kept.values()
    while beside._process is None:
        assert not kept.future.done()
    forecasts.close()
    assert "exited with code -9" in (kept.future.result(60).why or "")


def ran(api: Api, *, measured: float | None = None, **changes: Any) -> str:
    """Return a job that ran on n1 and left its forecast."""
    claim = scenes.start(api.database, scenes.submit(api.database, **changes))
    plan = {
        "batch_size": 64,
        "micro_batch_size": 8,
        "accumulation_steps": 4,
        "world_size": 2,
        "memory": PARTS,
    }
    with api.database.jobs() as session:
        assert attempts.settle_plan(session, claim.assignment_id, claim.token, plan)
        if measured is not None:
            data = {"measured_bytes": measured}
            events.add(
                session,
                job_id=claim.job_id,
                attempt=1,
                kind="memory",
                message="m",
                actor="a",
                data=data,
            )
    return claim.job_id


def test_without_the_task_an_earlier_job_of_equal_size_counts(api: Api) -> None:
    register(api)
    job = ran(api, measured=5e6, **OWN)
    found = planned(api, {**TRAIN, **OWN})
    assert (found["state"], found["source"], found["job"]) == ("known", "history", job)
    assert found["forecast"]["peak"] == 7 * 2**20
    assert (found["measured_bytes"], found["micro_batch_size"]) == (5_000_000, 8)


def test_an_earlier_job_of_a_project_that_the_reader_may_not_read_does_not_count(api: Api) -> None:
    register(api)
    job, document = ran(api, **OWN, project="vision"), {**TRAIN, **OWN, "project": "nlp"}
    secret = "lockstep_a-token-of-a-member-of-nlp"
    with api.database.jobs() as session:
        projects.ensure(session, "nlp")
        tokens.ensure(session, secret, name="t", actor="bob")
        session.execute(update(UserRow).where(UserRow.name == "bob").values(role=None))
        projects.set_role(session, "nlp", "bob", ProjectRole.MEMBER)
    headers = {"Authorization": f"Bearer {secret}"}
    answer = api.http.post("/v1/jobs/plan", json=document, headers=headers)
    assert answer.json()["memory"]["source"] is None, answer.text
    assert job not in answer.text
    assert planned(api, document)["job"] == job


@pytest.mark.parametrize(
    "changes",
    [
        {"batch": {"size": 64, "micro_size": 16}},
        {"task_args": {"width": 3}},
        {"precision": "bf16"},
        {"strategy": {"name": "fsdp"}},
        {"optimizer": {"name": "sgd", "lr": 0.1}},
        {"activation_checkpointing": True},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_job_of_another_size_does_not_count(api: Api, changes: dict[str, Any]) -> None:
    register(api)
    ran(api, **OWN)
    assert planned(api, {**TRAIN, **OWN, "train": OWN["train"] | changes})["state"] == "unknown"


def test_jobs_on_other_devices_or_numbers_of_ranks_do_not_count(api: Api) -> None:
    register(api)
    ran(api, **OWN)
    register(api, "n2", "other")
    assert (
        planned(api, {**TRAIN, **OWN, "resources": {"gpus": 2, "gpu_type": "other"}})["state"]
        == "unknown"
    )
    assert planned(api, {**TRAIN, **OWN, "resources": {"gpus": 1}})["state"] == "unknown"


def test_the_process_answers_for_each_built_in_task_that_needs_no_files() -> None:
    train = Train.model_validate(
        {"task": "causal_lm", "batch": {"size": 64, "micro_size": "auto"}, "steps": 1}
    )
    found = ForecastProcess()(request_of(train, 2, Capacity("cpu", 2**28)))
    assert found.why is None
    assert found.forecast is not None
    # 4 blocks of 12 times 128 squared, two embeddings and the norms, in float32.
    assert found.forecast.weights == 4 * (4 * (12 * 128 * 128 + 2 * 128) + (256 + 128) * 128 + 128)
    assert found.micro_batch_size == found.micro_batch_size_max
    assert found.forecast.peak <= 0.85 * 2**28


def test_a_process_that_cannot_work_reports_the_reason() -> None:
    args = {"model": "/nowhere", "path": "x"}
    train = {
        "task": "hf_causal_lm",
        "task_args": args,
        "batch": {"size": 8, "micro_size": 8},
        "steps": 1,
    }
    found = ForecastProcess()(request_of(Train.model_validate(train), 1, None))
    assert found.forecast is None
    assert "/nowhere has no config.json" in (found.why or "")


def test_a_process_that_computes_too_long_is_ended_by_cpu_time() -> None:
    train = Train.model_validate(
        {"task": "causal_lm", "batch": {"size": 64, "micro_size": "auto"}, "steps": 1}
    )
    request = request_of(train, 2, None).model_copy(update={"cpu_limit_seconds": 1})
    found = ForecastProcess()(request)
    assert (found.forecast, found.why) == (None, "it took more than 1 s of CPU time")
