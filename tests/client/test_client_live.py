"""``watch`` and ``top``: their pictures and their end, in a pipe and on a terminal."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.cli.text import output as out
from lockstep.cli.text.frames import (
    DeviceUsage,
    Line,
    Rate,
    cut,
    job_frame,
    service_frame,
    usage_names,
    usage_of,
)
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.views import JobView, LogLine, NodeView, Page
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine

JOB = f"/v1/jobs/{examples.ID}"
NOW = examples.T0 + timedelta(seconds=90)


def _text(frame: list[Line]) -> list[str]:
    return ["".join(line).rstrip() for line in frame]


def _frame(
    job: JobView,
    width: int = 120,
    height: int = 40,
    lines: list[LogLine] | None = None,
    **more: Any,
) -> list[str]:
    given = {"rate": None, "usage": DeviceUsage(), **more}
    return _text(job_frame(job, lines=lines or [], now=NOW, width=width, height=height, **given))


def test_a_picture_of_a_job_has_progress_and_speed() -> None:
    running = examples.job(JobState.RUNNING, progress=examples.progress(50))
    shown = "\n".join(_frame(running, rate=2.0, usage=DeviceUsage(87.4, 3 * 2**30)))
    for words in (
        "tiny  running",
        "50/200  25 %  2.0 steps/s",
        "2 min 30 s left",
        "train/loss 2.5",
        "GPU 87 %, 3.0 GiB",
    ):
        assert words in shown
    assert "1, 2 ranks on node-1" in shown


def test_a_waiting_job_has_a_reason_and_a_failed_one_its_outcome() -> None:
    assert "position 1: waits for 2 free devices" in "\n".join(_frame(examples.job()))
    assert "rank 1 raised ValueError" in "\n".join(_frame(examples.failed()))


def test_a_loss_that_is_no_number_stands_out() -> None:
    job = examples.job(JobState.RUNNING, progress=examples.progress(7, "NaN"))
    words = [
        word
        for line in job_frame(
            job, rate=None, usage=DeviceUsage(), lines=[], now=NOW, width=80, height=30
        )
        for word in line
    ]
    assert [word.style for word in words if word == "NaN"] == ["bold red"]


@given(st.integers(10, 200), st.integers(1, 60), st.integers(0, 80), st.text(max_size=300))
def test_a_picture_never_leaves_the_terminal(
    width: int, height: int, count: int, text: str
) -> None:
    lines = examples.log_page(*[text] * count).lines
    latest = {f"metric/{number}": float(number) for number in range(40)}
    progress = examples.progress(3).model_copy(update={"latest": latest})
    job = examples.job(JobState.RUNNING, progress=progress)
    shown = _frame(job, width, height, lines)
    assert len(shown) <= height
    assert max(out.columns_of(line) for line in shown) <= width
    assert not any("\x1b" in line or "\n" in line for line in shown)


def test_the_last_lines_of_the_log_fill_the_remaining_screen() -> None:
    lines = examples.log_page(*[f"line {number}" for number in range(50)]).lines
    shown = _frame(examples.job(JobState.RUNNING), height=12, lines=lines)
    assert len(shown) == 12
    assert shown[-1] == "[rank 1] line 49"


def test_a_rate_is_that_of_the_last_seconds_and_forgets_a_restart() -> None:
    rate = Rate()
    assert rate.look(0.0, 100) is None
    assert rate.look(10.0, 120) == 2.0
    for second in range(20, 101, 10):
        latest = rate.look(float(second), 120 + 10 * (second - 10))
    assert latest == pytest.approx(10.0)
    assert rate.look(101.0, 50) is None
    assert rate.look(111.0, 60) == 1.0


def test_usage_is_the_mean_over_the_ranks() -> None:
    names = usage_names(2)
    found = examples.metrics(
        *[
            examples.series(name, [1.0, 20.0 * (1 + number // 4)])
            for number, name in enumerate(names)
        ]
    )
    assert usage_of(found) == DeviceUsage(30.0, 30.0, 30.0, 30.0)
    assert usage_of(examples.metrics()).words() == ""
    assert (
        usage_of(examples.metrics(examples.series("system/rank0/cpu_percent", [50.0]))).words()
        == "CPU 50 %"
    )


def test_a_cut_line_is_marked_and_counts_wide_letters_twice() -> None:
    word = out.Word("語" * 10, "")
    assert "".join(cut([word], 20)) == "語" * 10
    assert "".join(cut([word], 10)) == "語" * 4 + "…"
    assert out.columns_of("".join(cut([out.Word("ab", ""), word], 5))) <= 5


def test_top_once_shows_nodes_and_jobs_in_the_order_of_their_turn(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    running = examples.job(JobState.RUNNING, progress=examples.progress(50))
    queue = [examples.job().queue.model_copy(update={"position": place}) for place in (2, 1)]  # type: ignore[union-attr]
    waiting = [
        examples.job(
            id=f"{examples.ID[:-1]}{place.position}", name=f"w{place.position}", queue=place
        )
        for place in queue
    ]
    server.on("GET", "/v1/nodes", Page[NodeView](items=[examples.node()]))
    server.on("GET", "/v1/jobs", examples.listed(items=[*waiting, running]))
    server.on(
        "GET",
        f"{JOB}/metrics",
        examples.metrics(examples.series("system/rank0/gpu_utilization_percent", [87.0])),
    )
    said = lockstep("top", "--once")
    assert said.code == 0
    assert "1 of 2 devices busy  1 running, 2 queued" in said.out
    assert "■□" in said.out
    names = [
        line.split()[1] for line in said.out.splitlines() if line.startswith(("456789", "45678"))
    ]
    assert names == ["tiny", "w1", "w2"]
    assert "GPU 87 %" in said.out
    assert server.requests("GET", f"{JOB}/metrics")[0].query["max_points"] == ["1"]


def test_a_long_list_of_jobs_is_cut_with_a_count() -> None:
    jobs = [examples.job(JobState.RUNNING)] * 30
    shown = _text(service_frame("u", [examples.node()], jobs, {}, now=NOW, width=100, height=20))
    assert len(shown) == 20
    missing = 31 - sum(line.startswith(("ID ", "456789ab")) for line in shown)
    assert shown[-1] == f"and {missing} more: lockstep ps lists them"


@pytest.mark.parametrize(
    ("job", "code"),
    [(examples.succeeded(), 0), (examples.failed(), 1), (examples.job(JobState.CANCELLED), 6)],
)
def test_watch_in_a_pipe_writes_lines_and_ends_as_the_job_did(
    lockstep: CommandLine, server: ReplayServer, job: JobView, code: int
) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.job())
    server.on("GET", JOB, examples.job(), job)
    server.on("GET", f"{JOB}/logs", examples.log_page("hello"))
    said = lockstep("watch", "tiny", "--every", "0.2")
    assert (said.code, said.out) == (code, f"{job.state}\n")
    assert "[rank 0] hello" in said.err


def test_watching_too_often_is_refused(lockstep: CommandLine) -> None:
    for command in (["watch", "tiny"], ["top"]):
        assert lockstep(*command, "--every", "0.01").code == 2
        assert lockstep(*command, "--every", "nan").code == 2


def test_watch_on_a_terminal_draws_the_job_until_it_ends(
    server: ReplayServer, lockstep: CommandLine
) -> None:
    running = examples.job(JobState.RUNNING, progress=examples.progress(50))
    server.on("GET", "/v1/jobs/tiny", running)
    server.on("GET", JOB, running, examples.succeeded())
    server.on("GET", f"{JOB}/logs", examples.log_page("hello"))
    server.on("GET", f"{JOB}/metrics", examples.metrics())
    ours, theirs = pty.openpty()
    try:
        argv = [sys.executable, "-m", "lockstep", "watch", "tiny", "--every", "0.2"]
        environment = {**os.environ, "COLUMNS": "80", "LINES": "24", "TERM": "xterm"}
        watching = subprocess.Popen(argv, stdout=theirs, stderr=subprocess.PIPE, env=environment)
        os.close(theirs)
        seen = b""
        while True:
            try:
                seen += (block := os.read(ours, 65536))
            except OSError:  # Linux reports this for a terminal that no process holds open
                break
            if not block:
                break
        assert watching.communicate(timeout=60)[1] == b""
    finally:
        os.close(ours)
    assert watching.returncode == 0
    drawn = seen.decode()
    assert "━" in drawn
    assert drawn.index("50/200") < drawn.index("200/200")
    assert "hello" in drawn
