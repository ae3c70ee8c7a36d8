"""``lockstep plan`` and the memory forecast: from the service, or computed from the job's code."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockstep.client import forecasts
from lockstep.domain.training.memory import MemoryForecast, PlannedMemory
from lockstep.domain.views import PlanView
from tests.client import examples
from tests.client.examples import YAML
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine
from tests.harness import forks

MEMORY = MemoryForecast.model_validate(dict.fromkeys(MemoryForecast.parts(), 2**20))
COMPUTING = PlannedMemory(state="computing", device_type="cpu", capacity_bytes=2**30, headroom=0.15)
KNOWN = COMPUTING.model_copy(
    update={
        "state": "known",
        "source": "task",
        "forecast": MEMORY,
        "micro_batch_size": 8,
        "micro_batch_size_max": 32,
    }
)
TASK = """
from torch import nn, ones
from lockstep import Task

class Mine(Task):
    def model(self):
        return nn.Linear(1024, 1024, bias=False)
    def dataset(self, split):
        print("words of the task's own")
        return [ones(1024)] * 8
    def loss(self, model, batch):
        return model(batch).sum()
"""


def view(memory: PlannedMemory | None, **train: object) -> PlanView:
    found = examples.plan_view()
    spec = found.spec if not train else {**found.spec, "train": {**found.spec["train"], **train}}
    return found.model_copy(update={"memory": memory, "spec": spec})


def test_a_plan_shows_the_forecast_its_source_and_the_device(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "lockstep.client.forecasts.awaited.__kwdefaults__",
        {"clock": lambda: 0.0, "pause": lambda _: None},
    )
    (tmp_path / "job.yaml").write_text(YAML)
    server.on("POST", "/v1/jobs/plan", view(COMPUTING), view(COMPUTING), view(KNOWN))
    said = lockstep("plan", str(tmp_path / "job.yaml"))
    assert said.code == 0
    assert "  memory about 7.0 MiB per rank (weights 1.0, buffers 1.0" in said.out
    assert "with micro-batches of 8, computed from the task\n" in said.out
    assert "  of     1.0 GiB on each cpu: micro-batches of up to 32 fit\n" in said.out
    assert len(server.requests("POST", "/v1/jobs/plan")) == 3


def test_a_forecast_that_does_not_come_is_awaited_for_a_limited_time() -> None:
    times = iter((0.0, 1.0, 10.0, 11.0, forecasts.ASK_SECONDS + 1.0))
    pauses: list[float] = []
    told: list[str] = []
    found = forecasts.awaited(
        lambda: view(COMPUTING), tell=told.append, clock=lambda: next(times), pause=pauses.append
    )
    assert found.memory == COMPUTING
    assert pauses == [forecasts.PAUSE_SECONDS] * 3
    assert told == ["waiting for the service's memory forecast (up to 300 s)"]


def test_a_task_of_the_user_is_computed_from_its_code(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(TASK)
    unknown = COMPUTING.model_copy(update={"state": "unknown", "why": "its code does not run here"})
    found = forecasts.with_code(view(unknown, task="mine.py:Mine", task_args={}), tmp_path).memory
    assert found is not None
    assert (found.state, found.source) == ("known", "code")
    assert found.forecast is not None
    assert found.forecast.weights == 4 * 1024 * 1024
    assert (found.device_type, found.capacity_bytes) == ("cpu", 2**30)
    assert found.micro_batch_size_max == 32


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork the process of a forecast where torch is imported, as the child of that process."""
    parent = str(forks.server(forks.ENGINE).pid)
    monkeypatch.setattr(
        "lockstep.domain.training.forecast_process.subprocess.Popen",
        lambda words, **more: forks.Forked([*words[:-1], parent], forks.ENGINE, **more),
    )


@pytest.mark.usefixtures("forked")
def test_code_without_forecast_has_a_reason_and_history_remains(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        TASK.replace("return nn.", "raise OSError('no weights'); nn.")
    )
    unknown = COMPUTING.model_copy(update={"state": "unknown", "why": "its code does not run here"})
    found = forecasts.with_code(view(unknown, task="mine.py:Mine", task_args={}), tmp_path).memory
    assert found is not None
    assert (found.state, found.why) == ("unknown", "OSError: no weights")
    history = KNOWN.model_copy(update={"source": "history", "job": "abc"})
    assert (
        forecasts.with_code(view(history, task="mine.py:Mine", task_args={}), tmp_path).memory
        == history
    )


@pytest.mark.parametrize("memory", [KNOWN, None])
def test_a_forecast_of_the_service_is_not_computed_again(
    memory: PlannedMemory | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(forecasts, "ForecastProcess", lambda: pytest.fail("it was"))
    assert forecasts.with_code(view(memory), tmp_path).memory == memory
