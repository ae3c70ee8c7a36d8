"""``lockstep scaling``: the specs of its jobs, and the remaining results after a refusal.

Not here: the sentences (``tests.domain.test_scaling``), and a run by the real service
(``tests.e2e.test_scaling``).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.cli.jobs.scaling import BUCKETS_MB, short_document
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.views import JobView
from tests.client import examples
from tests.client.server import Answer, ReplayServer, problem, view
from tests.client.terminal import CommandLine


def document(**strategy: Any) -> dict[str, Any]:
    return {**examples.SPEC, "train": {**examples.SPEC["train"], "strategy": strategy}}


def written(folder: Path, **strategy: Any) -> str:
    file = folder / "job.json"
    file.write_text(json.dumps(document(**strategy)))
    return str(file)


def serve(server: ReplayServer, *ends: JobView | Answer) -> None:
    """Serve one job for each of ``ends``, which is an outcome or a refusal.

    Each job that succeeded has steps of half a second.
    """
    jobs = [
        end.model_copy(update={"id": _id(at)}) if isinstance(end, JobView) else end
        for at, end in enumerate(ends)
    ]
    server.on(
        "POST", "/v1/jobs", *(job if isinstance(job, Answer) else view(job, 201) for job in jobs)
    )
    steps = examples.metrics(
        examples.series("time/forward_seconds", [0.1] * 5),
        examples.series("time/backward_seconds", [0.4] * 5),
    )
    for job in jobs:
        if isinstance(job, JobView):
            server.on("GET", f"/v1/jobs/{job.id}", job)
            server.on("GET", f"/v1/jobs/{job.id}/metrics", steps)


def _id(at: int) -> str:
    return f"{examples.ID[:-4]}{at:04d}"


TOO_MANY = problem(422, "invalid", "4 devices are asked for, and the largest node has 2")


def test_measured_rows_are_printed_before_a_later_refusal(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server, examples.succeeded(), examples.succeeded(), TOO_MANY)
    said = lockstep("scaling", written(tmp_path), "--gpus", "1,2,4")
    assert said.code == 1
    header, *rows = said.out.splitlines()
    assert header.split()[:2] == ["gpus", "step"]
    assert [row.split()[0] for row in rows[:2]] == ["1", "2"]
    assert "lockstep: 4 devices are asked for" in said.err


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_a_run_that_fails_leaves_the_others_rows(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path, state: JobState
) -> None:
    serve(server, examples.succeeded(), examples.job(state))
    said = lockstep("scaling", written(tmp_path), "-o", "json")
    assert said.code == 1
    assert [run["world_size"] for run in json.loads(said.out)["runs"]] == [1]
    assert f"the run on 2 devices ended as {state}" in said.err


def test_a_run_that_takes_too_long_is_cancelled_and_other_rows_remain(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server, examples.succeeded(), examples.job(JobState.RUNNING))
    server.on("POST", f"/v1/jobs/{_id(1)}/cancel", examples.job(JobState.RUNNING))
    said = lockstep("scaling", written(tmp_path), "--wait-seconds", "0")
    assert said.code == 124
    assert said.out.splitlines()[1].split()[0] == "1"
    assert "is still running after 0 s" in said.err
    assert "the job continues" not in said.err


def test_half_a_sweep_of_buckets_recommends_none(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server, examples.succeeded(), examples.succeeded(), examples.failed())
    said = lockstep("scaling", written(tmp_path), "--gpus", "2", "--buckets")
    assert said.code == 1
    assert "1 MB" in said.out
    assert "bucket_cap_mb" not in said.out


def test_without_any_row_there_is_no_table(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server, TOO_MANY)
    said = lockstep("scaling", written(tmp_path), "--gpus", "4")
    assert (said.code, said.out) == (1, "")


def test_a_sweep_without_buckets_is_refused_before_the_first_run(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    said = lockstep("scaling", written(tmp_path, name="manual"), "--buckets")
    assert said.code == 1
    assert said.err.startswith(
        "lockstep: --buckets: train.strategy.bucket_cap_mb: is a setting of ddp and zero1, and "
        "name is manual"
    )
    assert server.asked == []


@pytest.mark.parametrize(
    "start_step", [{}, {"powersgd_start_step": 2}, {"powersgd_start_step": 150}]
)
def test_a_short_run_compresses_as_the_long_one_does_later(start_step: dict[str, int]) -> None:
    found = read_spec(
        short_document(document(compression="powersgd", **start_step), 2, None, steps=1)
    )
    assert found.train is not None
    assert found.train.strategy.powersgd_starts == 0


@pytest.mark.parametrize("size", [None, *BUCKETS_MB])
def test_a_short_run_keeps_the_strategys_other_settings(size: float | None) -> None:
    found = read_spec(short_document(document(name="zero1", static_graph=True), 2, size, steps=6))
    assert found.train is not None
    assert found.train.strategy.static_graph
    assert found.train.strategy.bucket_cap_mb == size
