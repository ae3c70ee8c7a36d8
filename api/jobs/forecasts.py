"""Memory forecasts of planned jobs: computed for built-in tasks, otherwise from earlier attempts.

A forecast needs torch and takes seconds; the api process has neither. A separate process computes
it (``python -m lockstep.engine.memory.job_forecast``): one at a time, with a deadline, a memory
limit and a low priority. Its result is cached by the fields that determine it. A plan waits briefly
for the forecast. Without a result by then it reports ``computing``, and the next plan of the same
job finds the result.

The code of a job is never run here: users may run their code on the nodes, but not in the service.
The command line computes such a forecast where the code is (``client.forecasts``).

Not here: the computation (``engine.memory``), devices and earlier attempts
(``storage.attempts.memories``).
"""

from __future__ import annotations

import importlib.util
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from typing import Any, Final, NamedTuple, Protocol

from lockstep.domain.rights import Within
from lockstep.domain.spec.job import JobSpec
from lockstep.domain.spec.train import Train
from lockstep.domain.training.forecast_process import ForecastProcess
from lockstep.domain.training.memory import MemoryForecast, PlannedMemory
from lockstep.domain.training.predicted import ForecastAnswer, ForecastRequest
from lockstep.storage.attempts import memories
from lockstep.storage.attempts.memories import Capacity
from lockstep.storage.db.database import Database

WAIT_SECONDS: Final = 1.0
"""Maximum wait of a plan for its forecast."""
PROCESS_CPU_SECONDS_MAX: Final = 60
"""Limit of the process's time on a processor. A limit of the time that passes would end forecasts
on a busy machine."""
PROCESS_BYTES_MAX: Final = 4 * 2**30
"""Memory limit of the process; torch with a model of fake tensors needs less than 1 GiB."""
KEPT_MAX: Final = 256
WAITING_MAX: Final = 2
"""Forecasts that wait for the process. Further ones displace the oldest, whose spec has probably
been edited since; otherwise its next plan requests it again."""
FAILURE_SECONDS: Final = 300.0
"""Delay before a request that gave no forecast is repeated."""


class Compute(Protocol):
    """Computation of a forecast."""

    def __call__(self, request: ForecastRequest) -> ForecastAnswer: ...

    def close(self) -> None:
        """Abort the running computation."""


class _CachedForecast(NamedTuple):
    future: Future[ForecastAnswer]
    asked_at: float


class Forecasts:
    """Memory forecasts of this service, computed and cached.

    Parameters
    ----------
    database : Database
    compute : callable, optional
        Computes a forecast; None if torch is not installed.
    wait_seconds : float, optional
    clock : callable, optional
        Monotonic seconds.
    """

    def __init__(
        self,
        database: Database,
        compute: Compute | None = None,
        *,
        wait_seconds: float = WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._database, self._compute, self._wait_seconds = database, compute, wait_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, _CachedForecast] = OrderedDict()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="forecasts")

    def of(self, spec: JobSpec, *, nodes: list[str], among: Within) -> PlannedMemory | None:
        """Return the memory of a planned job, as far as it is known now; None for a script.

        Parameters
        ----------
        spec : JobSpec
        nodes : list of str
            Nodes on which the job would be placed now; empty if it would wait.
        among : Within
            Projects that the reader may read: only their earlier attempts are used.
        """
        if spec.train is None:
            return None
        with self._database.read_jobs() as session:
            device = memories.capacity(session, device_type=spec.resources.gpu_type, nodes=nodes)
        own = spec.train.runs_own_code
        found = (
            None
            if own or self._compute is None
            else self._computed(spec.train, spec.world_size(), device)
        )
        if found is None:
            why = (
                "the service runs no code of a custom task or optimizer; "
                "`lockstep plan --code DIR` computes it where torch is installed, or the first "
                "attempt does"
                if own
                else "the service has no torch; the first attempt computes it"
            )
            found = PlannedMemory(state="unknown", why=why)
        if found.state == "unknown":
            found = self._earlier(spec, device, among) or found
        return found.model_copy(update=_of_device(device, spec.train))

    def close(self) -> None:
        """Stop all computations."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._compute is not None:
            self._compute.close()

    def _computed(self, train: Train, world_size: int, device: Capacity | None) -> PlannedMemory:
        answer = self._answer(request_of(train, world_size, device))
        if answer is None:
            return PlannedMemory(state="computing")
        if answer.forecast is None:
            return PlannedMemory(state="unknown", why=answer.why)
        return PlannedMemory(
            state="known",
            source="task",
            forecast=answer.forecast,
            micro_batch_size=answer.micro_batch_size,
            micro_batch_size_max=answer.micro_batch_size_max,
        )

    def _answer(self, request: ForecastRequest) -> ForecastAnswer | None:
        """Return the answer, or None if it takes longer than the wait."""
        key = request.model_dump_json()
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or self._is_past(kept):
                assert self._compute is not None
                kept = self._kept[key] = _CachedForecast(
                    self._pool.submit(self._compute, request), self._clock()
                )
            self._kept.move_to_end(key)
            self._drop_oldest()
        try:
            return kept.future.result(self._wait_seconds)
        except (NotYetError, CancelledError):
            return None

    def _is_past(self, kept: _CachedForecast) -> bool:
        """Return whether an answer without a forecast is old enough for another request."""
        return (
            kept.future.done()
            and kept.future.result().forecast is None
            and self._clock() - kept.asked_at > FAILURE_SECONDS
        )

    def _drop_oldest(self) -> None:
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)[1].future.cancel()
        waiting = [
            key
            for key, (future, _) in self._kept.items()
            if not future.done() and not future.running()
        ]
        for key in waiting[:-WAITING_MAX]:
            # A computation that has started meanwhile is not cancelled and stays.
            if self._kept[key].future.cancel():
                del self._kept[key]

    def _earlier(
        self, spec: JobSpec, device: Capacity | None, among: Within
    ) -> PlannedMemory | None:
        if device is None:
            return None
        with self._database.read_jobs() as session:
            found = memories.earlier(
                session,
                spec.model_dump(mode="json"),
                world_size=spec.world_size(),
                device_type=device.device_type,
                among=among,
            )
        if found is None:
            return None
        return PlannedMemory(
            state="known",
            source="history",
            job=found.job_id,
            forecast=MemoryForecast.model_validate(found.memory),
            micro_batch_size=found.micro_batch_size,
            measured_bytes=None if found.measured_bytes is None else int(found.measured_bytes),
        )


def request_of(train: Train, world_size: int, device: Capacity | None) -> ForecastRequest:
    """Return the request for a built-in task.

    It contains only the fields that determine the memory, to share cached answers between jobs.
    """
    optimizer = train.optimizer.model_copy(
        update={"lr": type(train.optimizer).model_fields["lr"].default}
    )
    args = {
        name: value
        for name, value in train.task_args.items()
        if name not in _NOT_FOR_MEMORY.get(train.task, ())
    }
    lean = Train(
        task=train.task,
        task_args=args,
        batch=train.batch,
        steps=1,
        optimizer=optimizer,
        precision=train.precision,
        strategy=train.strategy,
        parallel=train.parallel,
        activation_checkpointing=train.activation_checkpointing,
    )
    available = None
    if device is not None and device.memory_bytes is not None:
        available = int(device.memory_bytes * (1 - train.memory_headroom))
    return ForecastRequest(
        train=lean,
        world_size=world_size,
        available_bytes=available,
        memory_limit_bytes=PROCESS_BYTES_MAX,
        cpu_limit_seconds=PROCESS_CPU_SECONDS_MAX,
    )


_NOT_FOR_MEMORY: Final = {
    "causal_lm": ("path", "glob", "max_bytes"),
    "image_classification": ("eval_fraction",),
}


def app_state() -> Compute | None:
    """Return the computation of this installation; None without torch.

    torch is searched for but not imported.
    """
    if importlib.util.find_spec("torch") is None:
        return None
    # The subprocess gets none of the service's settings and secrets.
    return ForecastProcess(
        {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
    )


def _of_device(device: Capacity | None, train: Train) -> dict[str, Any]:
    if device is None:
        return {}
    return {
        "device_type": device.device_type,
        "capacity_bytes": device.memory_bytes,
        "headroom": train.memory_headroom,
    }
