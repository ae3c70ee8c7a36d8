"""Report of a drill and its violated expectations.

Not here: the injection of the fault (``client.drills.running``), and the output
(``cli.service.drill``).
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel

Fault = Literal["rank", "launcher", "agent", "scheduler", "api", "broker"]
Role = Literal["undisturbed", "disturbed"]
PROGRAMS: Final[dict[str, str]] = {
    "agent": "worker",
    "scheduler": "scheduler",
    "api": "api",
    "broker": "broker",
}
"""Faults that hit the whole service → the program's name under ``lockstep up``."""
LABEL: Final = "drill"
LOSS: Final = "train/loss"
WENT_ON: Final[dict[Fault, str]] = {
    "rank": "a new attempt completed a step",
    "launcher": "a new attempt completed a step",
    "agent": "a restarted agent reported a new step",
    "scheduler": "a restarted scheduler processed a job submitted after the kill",
    "api": "a restarted api was ready",
    "broker": "a restarted broker answered",
}
"""Sign of recovery after each fault."""


class DrillReport(BaseModel, frozen=True, use_attribute_docstrings=True):
    """Result of a drill. Times are seconds from the SIGKILL; null: not observed."""

    fault: Fault
    held: bool
    """True if every expectation held; ``problems`` is then empty."""
    problems: list[str]
    killed: str
    at_step: int
    gone_seconds: float | None
    """Until no rank of the attempt was left; only where the fault ends the attempt."""
    noticed_seconds: float | None
    recovered_seconds: float | None
    went_on: str
    """Event that ends ``recovered_seconds``."""
    attempts: int
    steps: int
    steps_lost: int
    steps_doubled: int
    steps_again: int
    """Trained a second time, from the checkpoint on; the series show them once."""
    pause_seconds: float
    """The longest time between two steps of the disturbed run, by the ranks' own clock."""
    undisturbed_pause_seconds: float
    processes_left: int
    tensors: int
    numbers: int
    """In the final weights."""
    different: list[str]
    """Tensors that are not bitwise equal to the undisturbed run's."""
    undisturbed: str
    """Id of the job."""
    disturbed: str


def document(fault: Fault, role: Role, steps: int) -> dict[str, Any]:
    """The job of a drill: two ranks, a small language model on text of every machine."""
    return {
        "name": f"drill-{fault}-{role}",
        "kind": "train",
        "resources": {"gpus": 2},
        "train": {
            "task": "causal_lm",
            "task_args": {
                "context": 32,
                "layers": 2,
                "heads": 2,
                "width": 64,
                "max_bytes": 200_000,
            },
            "batch": {"size": 32, "micro_size": 4},
            "steps": steps,
            "optimizer": {"name": "adamw", "lr": 1.0e-3},
            "checkpoint": {"every_steps": max(1, steps // 12), "keep_last": 2},
            "deterministic": True,
        },
        "labels": {LABEL: fault, "drill-role": role},
    }


def problems(report: DrillReport, *, within_seconds: float) -> list[str]:
    """Violated expectations, one sentence each."""
    found = []
    for what, seconds in (
        ("noticed", report.noticed_seconds),
        ("recovered from", report.recovered_seconds),
    ):
        if seconds is None:
            found.append(f"the fault was not {what} within {within_seconds:g} s")
    attempts = 1 if report.fault in PROGRAMS else 2
    if report.attempts != attempts:
        found.append(f"attempts: {report.attempts}, expected {attempts}")
    if report.fault not in PROGRAMS and report.gone_seconds is None:
        found.append(f"ranks of the ended attempt were still running after {within_seconds:g} s")
    if report.steps_lost:
        found.append(f"steps of {report.steps} that are missing from {LOSS}: {report.steps_lost}")
    if report.steps_doubled:
        found.append(f"steps that are in {LOSS} twice: {report.steps_doubled}")
    if report.fault in PROGRAMS and report.steps_again:
        found.append(f"steps that were repeated although no rank was killed: {report.steps_again}")
    if report.processes_left:
        found.append(f"processes left running after the job's end: {report.processes_left}")
    if report.different or not report.tensors:
        named = ", ".join(report.different[:5]) or "none was found"
        found.append(
            f"tensors of {report.tensors} in the final weights that differ: "
            f"{len(report.different)} ({named})"
        )
    return found
