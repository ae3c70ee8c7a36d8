"""Drill: one fault, injected into a small job of its own on a running service, and its result.

1. Check that the service runs on this machine and that a job of two ranks could start.
2. Run a small job undisturbed, to its end.
3. Run it again. Once it has a checkpoint and has gone beyond it, end one process with SIGKILL.
4. Watch until the service has detected the fault and recovered.
5. Wait for the end and compare: each step once, no process left, the weights bitwise equal.

The drill ends only processes that it started, and the one program that the fault names.

Not here: the search for processes (``client.local.machine``), and the evaluation
(``client.drills.report``).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lockstep.client.drills.observations import DrillObservations, Steps
from lockstep.client.drills.report import (
    LABEL,
    LOSS,
    PROGRAMS,
    WENT_ON,
    DrillReport,
    Fault,
    Role,
    document,
    problems,
)
from lockstep.client.errors import ClientError, TimedOutError, UnavailableError, UnreachableError
from lockstep.client.files import weights
from lockstep.client.files.checkpoints import fetch
from lockstep.client.local.machine import kill
from lockstep.domain import limits
from lockstep.domain.life.lifecycle import TERMINAL, JobState
from lockstep.domain.views import Health, JobView
from lockstep.system import processes
from lockstep.system.processes import ProcessStat

if TYPE_CHECKING:
    from lockstep.client.api import Client
    from lockstep.client.local.machine import Machine

POLL_SECONDS: Final = 0.05
"""Resolution of measured times: about one request to the server."""
PATIENCE_SECONDS: Final = 60.0
"""Patience with an api that restarts, where its absence is not measured."""


def others(client: Client, own: Collection[str] = ()) -> list[JobView]:
    """Jobs that are placed or run and are not the drill's own."""
    found = client.jobs(
        states=[JobState.STARTING, JobState.RUNNING], limit=limits.PAGE_SIZE_MAX
    ).items
    return [job for job in found if job.id not in own]


class Drill:
    """One drill, from the first job to the report.

    Parameters
    ----------
    client : Client
        Of the service on this machine.
    machine : Machine
    fault : str
    steps : int
        Optimizer steps of each of the two jobs.
    within_seconds : float
        Limit for the detection and for the recovery, each.
    wait_seconds : float
        Limit of each job, including its time in the queue, before it is cancelled.
    sparing : bool
        Refuse faults of the service's programs while other users' jobs run.
    say : callable
        Receives one line per phase.
    """

    def __init__(
        self,
        client: Client,
        machine: Machine,
        fault: Fault,
        *,
        steps: int,
        within_seconds: float,
        wait_seconds: float,
        sparing: bool,
        say: Callable[[str], None],
    ):
        self._client = client
        self._machine = machine
        self._fault = fault
        self._steps = steps
        self._within_seconds = within_seconds
        self._wait_seconds = wait_seconds
        self._sparing = sparing
        self._say = say
        self._own: list[str] = []
        """Jobs that were submitted and have not been seen to end."""

    def run(self) -> DrillReport:
        """Carry it out. Jobs that it leaves behind when it fails are cancelled."""
        self._client.transport.patience_seconds = PATIENCE_SECONDS
        try:
            return self._run()
        except BaseException:
            self._client.transport.patience_seconds = PATIENCE_SECONDS
            for job_id in self._own:
                with suppress(ClientError):
                    self._client.cancel(job_id)
            raise

    def _run(self) -> DrillReport:
        plan = self._client.plan(document(self._fault, "undisturbed", self._steps))
        if not plan.placement:
            why = f": {plan.queue.reason}" if plan.queue is not None else ""
            raise ClientError(
                f"the drill's job needs two free devices on one node and would wait{why}",
                next_step=(
                    "lockstep nodes shows the jobs that use them; without GPUs, run: lockstep up "
                    "--cpu-slots 2"
                ),
            )
        if self._fault in PROGRAMS:
            self._machine.program(
                PROGRAMS[self._fault]
            )  # Found now, or refused before anything is started.
        calm = self._submit("undisturbed")
        self._ended(calm)
        hit = self._submit("disturbed")
        at_step = self._ready(hit)
        ranks = list(self._machine.ranks(hit).values())
        victim, killed = self._victim(hit)
        if self._sparing and self._fault in PROGRAMS and (found := others(self._client, self._own)):
            raise ClientError(
                f"{found[0].name} ({found[0].id}) has started, so no process was killed",
                next_step="wait until it ends, or pass --yes",
            )
        kill(victim)
        began = time.monotonic()
        self._say(f"killed {killed} (process {victim.key.pid}) after step {at_step}")
        seen = self._watch(hit, victim, ranks, began)
        ended = self._ended(hit)
        return self._report(calm, ended, f"{killed} (process {victim.key.pid})", at_step, seen)

    # Jobs

    def _submit(self, role: Role) -> str:
        job = self._client.submit(document(self._fault, role, self._steps))
        self._own.append(job.id)
        self._say(f"{role}: {job.name} ({job.id})")
        return job.id

    def _ended(self, job_id: str) -> JobView:
        job = self._client.wait(job_id, self._wait_seconds)
        self._own.remove(job_id)
        if job.state is not JobState.SUCCEEDED:
            why = (
                f"{job.outcome.reason}: {job.outcome.message}"
                if job.outcome is not None
                else job.state
            )
            raise ClientError(
                f"{job.name} ended as {job.state} ({why})", next_step=f"lockstep show {job.id}"
            )
        return job

    def _ready(self, job_id: str) -> int:
        """Wait until the job has a checkpoint and is beyond it; the step it is at."""
        deadline = time.monotonic() + self._wait_seconds
        while True:
            job = self._client.job(job_id)
            if job.state in TERMINAL:
                raise ClientError(
                    f"{job.name} ended ({job.state}) before the fault was injected",
                    next_step=f"raise --steps above {self._steps}",
                )
            if job.state is JobState.RUNNING and job.progress is not None:
                saved = max((one.step for one in self._client.checkpoints(job_id)), default=None)
                if saved is not None and job.progress.step > saved:
                    return job.progress.step
            if time.monotonic() > deadline:
                raise TimedOutError(
                    f"{job.name} did not reach its first checkpoint in {self._wait_seconds:g} s"
                )
            time.sleep(POLL_SECONDS)

    def _victim(self, job_id: str) -> tuple[ProcessStat, str]:
        """Return the process to kill, and its name for messages."""
        if self._fault in PROGRAMS:
            return self._machine.program(PROGRAMS[self._fault]), f"the {self._fault}"
        ranks = self._machine.ranks(job_id)
        launcher = self._machine.launcher(job_id)
        if launcher is None or not ranks:
            job = self._client.job(job_id)
            where = ", ".join(job.attempt.nodes) if job.attempt is not None else "no node"
            raise ClientError(
                f"{job.name} ({job.state}) has no processes on this machine; it was placed on "
                f"{where}",
                next_step="drain the other nodes, or run the drill there",
            )
        if self._fault == "launcher":
            return launcher, f"the launcher of {job_id}"
        rank = max(ranks)
        return ranks[rank], f"rank {rank} of {job_id}"

    # The fault

    def _watch(
        self, job_id: str, victim: ProcessStat, ranks: list[ProcessStat], began: float
    ) -> DrillObservations:
        """Poll until the fault was detected and the service recovered, or until the time limit."""
        seen = DrillObservations()
        self._client.transport.patience_seconds = 0
        probe = self._submit_probe()
        # Read after the kill: later points come from the new agent.
        step = self._step(job_id)
        while time.monotonic() - began < self._within_seconds:
            if (
                seen.gone is None
                and self._fault not in PROGRAMS
                and not any(processes.is_alive(rank.key) for rank in ranks)
            ):
                seen.gone = time.monotonic() - began
            if seen.noticed is None and self._noticed(job_id, victim):
                seen.noticed = time.monotonic() - began
            if (
                seen.noticed is not None
                and seen.recovered is None
                and self._recovered(job_id, victim, step, probe)
            ):
                seen.recovered = time.monotonic() - began
            if seen.recovered is not None and (seen.gone is not None or self._fault in PROGRAMS):
                break
            time.sleep(POLL_SECONDS)
        self._client.transport.patience_seconds = PATIENCE_SECONDS
        if probe is not None:
            with suppress(ClientError):  # It may have ended meanwhile.
                self._client.cancel(probe)
            self._own.remove(probe)
        return seen

    def _submit_probe(self) -> str | None:
        """A job that only the next pass of a scheduler can take note of."""
        if self._fault != "scheduler":
            return None
        script = {"kind": "script", "resources": {"gpus": 1}, "script": {"command": ["true"]}}
        labels = {LABEL: self._fault, "drill-role": "probe"}
        job = self._client.submit({"name": "drill-scheduler-probe", **script, "labels": labels})
        self._own.append(job.id)
        return job.id

    def _step(self, job_id: str) -> int:
        job = self._look(job_id)
        return job.progress.step if job is not None and job.progress is not None else 0

    def _look(self, job_id: str) -> JobView | None:
        """The job; None while the api does not answer."""
        try:
            return self._client.job(job_id)
        except (UnreachableError, UnavailableError):
            return None

    def _noticed(self, job_id: str, victim: ProcessStat) -> bool:
        if self._fault in PROGRAMS:
            return self._machine.replaced(PROGRAMS[self._fault], victim) is not False
        job = self._look(job_id)
        return job is not None and (job.state is not JobState.RUNNING or _number(job) > 1)

    def _recovered(self, job_id: str, victim: ProcessStat, step: int, probe: str | None) -> bool:
        if self._fault in PROGRAMS and not self._machine.replaced(PROGRAMS[self._fault], victim):
            return False
        if self._fault == "api":
            return self._healthy()
        if self._fault == "broker":
            return self._machine.broker_answers()
        job = self._look(probe or job_id)
        if job is None:
            return False
        if probe is not None:
            return job.queue is not None or job.state is not JobState.QUEUED
        if job.state in TERMINAL:
            return True
        if self._fault == "agent":
            return job.progress is not None and job.progress.step > step
        return _number(job) > 1 and self._trains_again(job_id)

    def _healthy(self) -> bool:
        try:
            return self._client.transport.get("/readyz", Health).status != "unavailable"
        except (UnreachableError, UnavailableError):
            return False

    def _trains_again(self, job_id: str) -> bool:
        """Return whether a later attempt has completed a step."""
        found = self._client.metrics(
            job_id, names=[LOSS], attempts="all", max_points=limits.SERIES_POINTS_MAX
        )
        return any(series.attempt > 1 and series.count for series in found.series)

    # Result

    def _report(
        self, calm: str, ended: JobView, killed: str, at_step: int, seen: DrillObservations
    ) -> DrillReport:
        before, after = self._read_steps(calm), self._read_steps(ended.id)
        left = self._left_over(ended.id)
        with tempfile.TemporaryDirectory(prefix="lockstep-drill-") as folder:
            one, other = (
                self._weights(job_id, Path(folder) / job_id) for job_id in (calm, ended.id)
            )
        report = DrillReport(
            fault=self._fault,
            held=False,
            problems=[],
            killed=killed,
            at_step=at_step,
            gone_seconds=seen.gone,
            noticed_seconds=seen.noticed,
            recovered_seconds=seen.recovered,
            went_on=WENT_ON[self._fault],
            attempts=_number(ended),
            steps=self._steps,
            steps_lost=self._steps - len(set(after.shown)),
            steps_doubled=len(after.shown) - len(set(after.shown)),
            steps_again=after.stored - len(after.shown),
            pause_seconds=after.pause_seconds,
            undisturbed_pause_seconds=before.pause_seconds,
            processes_left=left,
            tensors=len(one),
            numbers=sum(tensor.numbers for tensor in one.values()),
            different=weights.differences(one, other),
            undisturbed=calm,
            disturbed=ended.id,
        )
        found = problems(report, within_seconds=self._within_seconds)
        return report.model_copy(update={"held": not found, "problems": found})

    def _read_steps(self, job_id: str) -> Steps:
        most = limits.SERIES_POINTS_MAX
        shown = self._client.metrics(
            job_id, names=[LOSS], attempts="current", max_points=most
        ).series
        stored = self._client.metrics(job_id, names=[LOSS], attempts="all", max_points=most).series
        times = [
            at
            for _, at in sorted(
                pair for one in shown for pair in zip(one.step, one.time, strict=True)
            )
        ]
        return Steps(
            shown=[step for one in shown for step in one.step],
            stored=sum(one.count for one in stored),
            pause_seconds=max((later - sooner for sooner, later in pairwise(times)), default=0.0),
        )

    def _left_over(self, job_id: str) -> int:
        """Processes of the job that are there although it has ended.

        Those that are just going are waited for.
        """
        deadline = time.monotonic() + self._within_seconds
        while (found := self._machine.of_job(job_id)) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        return len(found)

    def _weights(self, job_id: str, folder: Path) -> dict[str, weights.Tensor]:
        checkpoint = self._client.checkpoint(job_id, "last")
        fetched = fetch(
            self._client, job_id, checkpoint, folder, model_only=True, say=lambda _: None
        )
        return weights.tensors(fetched / "model.safetensors")


def _number(job: JobView) -> int:
    return job.attempt.number if job.attempt is not None else 0
