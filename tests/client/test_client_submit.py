"""``submit`` and ``plan``: the request, the output, and the exit."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli.text.closing import time_shares
from lockstep.domain.life.lifecycle import AttemptState, JobState
from lockstep.domain.life.outcomes import Outcome, Reason
from lockstep.domain.life.retrying import retries_of_script
from lockstep.domain.spec.job import Retry
from lockstep.domain.views import JobView, PlanView, RetriesView, UploadView
from tests.client import examples
from tests.client.examples import YAML, job
from tests.client.server import Answer, ReplayServer, problem, view
from tests.client.terminal import CommandLine, Terminal

JOB = f"/v1/jobs/{examples.ID}"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "job.yaml").write_text(YAML)
    return tmp_path / "job.yaml"


@pytest.fixture
def accepting(server: ReplayServer, monkeypatch: pytest.MonkeyPatch) -> ReplayServer:
    """Return a server that accepts the job and runs it to its end."""
    monkeypatch.setattr(
        "lockstep.client.api.Client.wait.__kwdefaults__",
        {"each": lambda _: None, "poll_seconds": 0.001},
    )
    server.on("POST", "/v1/jobs/plan", examples.plan_view())
    server.on("POST", "/v1/jobs", view(job(), 201))
    server.on(
        "GET",
        JOB,
        job(),
        job(JobState.STARTING),
        job(JobState.RUNNING, progress=examples.progress(100)),
        examples.succeeded(),
    )
    server.on("GET", f"{JOB}/metrics", examples.run_metrics())
    server.on("GET", f"{JOB}/checkpoints", examples.checkpoints())
    server.on("GET", f"{JOB}/logs", examples.log_page("from the rank"))
    return server


def test_a_job_is_planned_submitted_followed_and_summed_up(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    accepting.on("GET", f"/v1/jobs/{examples.ID}/files", examples.files(12))
    said = lockstep("submit", str(spec))
    assert said.code == 0
    talk = said.err
    for words in (
        "64 = 2 ranks × 8 samples × 4 accumulation steps",
        "node-1, now",
        f"its page: {accepting.url}/jobs/{examples.ID}",
        "queued: waits for 2 free devices",
        "starting 2 ranks on node-1",
        "running",
        "step 100/200, loss 2.5000, 231 samples/s",
    ):
        assert words in talk, words
        talk = talk[talk.index(words) :]
    closing = {
        line.split("  ")[0]: line.split("  ", 1)[1].strip()
        for line in said.out.splitlines()
        if line
    }
    assert closing["state"] == "succeeded"
    assert closing["steps"] == "200 of 200"
    assert closing["train/loss"] == "5.5450 first, 2.4000 last"
    assert closing["took"] == "1 min 5 s"
    assert closing["time went to"] == "backward 50 % · forward 25 % · checkpoint 25 %"
    assert closing["checkpoint"] == "step 200, 3.0 MiB, /store/jobs/x/1/step-00000200"
    assert closing["files"] == "12 (12.0 MiB), lockstep files ls 456789ab"
    assert f"lockstep logs {examples.ID[-8:]}" in closing["see more"]
    assert closing["page"] == f"{accepting.url}/jobs/{examples.ID}"


@pytest.mark.parametrize(
    ("kind", "ranks", "says"),
    [
        ("train", 2, "all ranks are connected"),
        ("script", 2, "2 processes have started"),
        ("script", 1, "1 process has started"),
    ],
)
def test_only_several_ranks_of_a_train_job_report_a_rendezvous(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path, kind: str, ranks: int, says: str
) -> None:
    running = job(JobState.RUNNING, kind=kind, attempt=examples.attempt(world_size=ranks))
    accepting.on("GET", JOB, job(), running, examples.succeeded())
    said = lockstep("submit", str(spec)).err
    assert [line for line in said.splitlines() if line.startswith("running")] == [
        f"running: {says}"
    ]


def test_the_submitted_spec_is_the_file_with_its_settings(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    lockstep("submit", str(spec), "--set", "train.steps=5", "--set", "priority=60", "-d")
    sent = accepting.requests("POST", "/v1/jobs")[0].json()
    assert sent == {
        **examples.SPEC,
        "train": {**examples.SPEC["train"], "steps": 5},
        "priority": 60,
    }


def test_a_detached_submit_prints_the_id_alone(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    said = lockstep("submit", str(spec), "-d")
    assert (said.code, said.out) == (0, f"{examples.ID}\n")
    assert f"lockstep logs -f {examples.ID[-8:]}" in said.err
    assert accepting.requests("GET", JOB) == []


def test_a_quiet_submit_prints_only_the_id(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    said = lockstep("submit", str(spec), "-q")
    assert said == (0, f"{examples.ID}\n", "")


def test_json_is_the_ended_job(lockstep: CommandLine, accepting: ReplayServer, spec: Path) -> None:
    said = lockstep("submit", str(spec), "--json")
    assert JobView.model_validate_json(said.out) == examples.succeeded()
    assert JobView.model_validate_json(lockstep("submit", str(spec), "--json", "-d").out) == job()


def test_the_ranks_lines_are_shown_on_demand(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    assert "[rank 0] from the rank" in lockstep("submit", str(spec), "--logs").err
    assert "from the rank" not in lockstep("submit", str(spec)).err


def test_a_failed_job_shows_its_outcome_and_ends_with_1(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    accepting.on("GET", JOB, examples.failed())
    said = lockstep("submit", str(spec))
    assert said.code == 1
    for words in (
        "user_error: rank 1 raised ValueError",
        "1 on node-1",
        "ValueError: the data is bad",
        'File "task.py", line 7, in loss',
        "17",
        "fix the code",
    ):
        assert words in said.out


def test_a_cancelled_job_ends_with_6(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    accepting.on("GET", JOB, job(JobState.CANCELLED))
    assert lockstep("submit", str(spec)).code == 6


def test_a_retry_is_printed(lockstep: CommandLine, accepting: ReplayServer, spec: Path) -> None:
    killed = examples.attempt(outcome=Outcome.of(Reason.KILLED, "rank 1 was ended by SIGKILL"))
    accepting.on(
        "GET",
        JOB,
        job(JobState.RUNNING),
        job(JobState.QUEUED, attempt=killed),
        job(JobState.RUNNING, attempt=examples.attempt(2)),
        examples.succeeded(),
    )
    said = lockstep("submit", str(spec))
    assert "attempt 1 ended: rank 1 was ended by SIGKILL" in said.err
    assert "queued again" in said.err


def test_start_and_end_are_printed_once_although_the_attempt_is_ahead(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    early = examples.attempt(state=AttemptState.STARTING, running_at=None)
    accepting.on(
        "GET",
        JOB,
        job(JobState.STARTING, attempt=early),
        job(JobState.STARTING),
        job(JobState.RUNNING),
        job(
            JobState.RUNNING,
            attempt=examples.attempt(outcome=Outcome.of(Reason.SUCCEEDED, "all ended well")),
        ),
        examples.succeeded(),
    )
    told = lockstep("submit", str(spec)).err
    assert told.count("starting 2 ranks") == 1
    assert "attempt 1 ended" not in told


def test_a_wrong_spec_is_refused_before_anything_is_sent(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    spec.write_text(YAML.replace("steps:", "stepss:"))
    said = lockstep("submit", str(spec))
    assert said.code == 1
    assert f"{spec}:7: train.stepss: unknown field" in said.err
    assert accepting.asked == []


def test_a_refusal_of_the_server_is_placed_in_the_file(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    errors = [
        {
            "pointer": "/resources/gpus",
            "message": "2 are more than all nodes have",
            "next_step": "ask for 1",
        }
    ]
    accepting.on(
        "POST", "/v1/jobs/plan", problem(400, "invalid", "resources.gpus: …", errors=errors)
    )
    said = lockstep("submit", str(spec))
    assert said.code == 1
    assert (
        f"lockstep: {spec}:3: resources.gpus: 2 are more than all nodes have (ask for 1)"
        in said.err
    )
    assert accepting.requests("POST", "/v1/jobs") == []


def test_code_is_sent_once_under_its_digest_and_named_in_the_spec(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "task.py").write_text("x = 1\n")
    spec.write_text(YAML.replace("causal_lm", "task.py:Mine"))
    accepting.on(
        "PUT",
        "/v1/uploads/*",
        view(UploadView(sha256="0" * 64, bytes=1, files=1, created=True), 201),
    )
    said = lockstep("submit", str(spec), "--code", str(tmp_path / "code"), "-d")
    assert said.code == 0, said.err
    (put,) = [asked for asked in accepting.asked if asked.method == "PUT"]
    digest = hashlib.sha256(put.body).hexdigest()
    assert put.path == f"/v1/uploads/{digest}"
    assert accepting.requests("POST", "/v1/jobs")[0].json()["code"] == {"upload": digest}
    order = [asked.method for asked in accepting.asked]
    assert order == ["GET", "PUT", "POST", "POST"]


def test_excluded_files_of_code_are_printed_by_rule(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path, tmp_path: Path
) -> None:
    code = tmp_path / "code"
    for name in ("task.py", ".git/HEAD", "data/x", *(f"{number}.yaml" for number in range(5))):
        (code / name).parent.mkdir(exist_ok=True, parents=True)
        (code / name).write_text("x = 1\n")
    (code / ".gitignore").write_text("*.yaml\ndata/\n")
    spec.write_text(YAML.replace("causal_lm", "task.py:Mine"))
    accepting.on(
        "PUT",
        "/v1/uploads/*",
        view(UploadView(sha256="0" * 64, bytes=1, files=1, created=True), 201),
    )
    words = [str(spec), "--code", str(code)]
    short = [
        "left out, .gitignore line 1 (*.yaml): 0.yaml, 1.yaml, 2.yaml and 2 more",
        "left out, .gitignore line 2 (data/): data/",
        "left out, built-in rule: .git/",
        "--verbose lists all paths that are left out",
    ]
    for command in (["submit", "-d"], ["plan"], ["submit", "--dry-run"]):
        said = lockstep(command[0], *words, *command[1:])
        assert [line for line in said.err.splitlines() if "left out" in line] == short
    said = lockstep("submit", *words, "-d", "-v")
    assert (
        "left out, .gitignore line 1 (*.yaml): 0.yaml, 1.yaml, 2.yaml, 3.yaml, 4.yaml\n" in said.err
    )
    assert "left out" not in lockstep("submit", *words, "-d", "-q").err


def test_exit_code_1_is_a_wrong_spec_and_2_a_wrong_file(
    lockstep: CommandLine, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: [1\n")
    assert lockstep("submit", str(bad)).code == 1
    assert lockstep("submit", str(tmp_path / "none.yaml")).code == 2
    table = (Path(__file__).parents[2] / "docs/cli.md").read_text()
    assert "| 1 | the job failed, or its spec (bad YAML too) or the request was refused |" in table
    assert "| 2 | wrong use: an unknown option, a file that cannot be opened |" in table


def test_a_task_without_its_code_gets_advice_to_upload_it(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    spec.write_text(YAML.replace("causal_lm", "task.py:Mine"))
    said = lockstep("submit", str(spec))
    assert said.code == 1
    assert "--code DIR" in said.err


@pytest.mark.parametrize("words", [["plan"], ["submit", "--dry-run"]])
def test_a_plan_is_data_and_submits_nothing(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path, words: list[str]
) -> None:
    said = lockstep(words[0], str(spec), *words[1:])
    assert said.code == 0
    assert "  batch  64 = 2 ranks × 8 samples × 4 accumulation steps\n" in said.out
    assert "  where  node-1, now\n" in said.out
    assert "project" not in said.out
    view = examples.plan_view()
    elsewhere = view.model_copy(update={"spec": {**view.spec, "project": "nlp"}})
    accepting.on("POST", "/v1/jobs/plan", elsewhere, view)
    assert "  for    project nlp\n" in lockstep(words[0], str(spec), *words[1:]).out
    assert (
        PlanView.model_validate_json(lockstep(words[0], str(spec), *words[1:], "--json").out)
        == examples.plan_view()
    )
    assert accepting.requests("POST", "/v1/jobs") == []


def test_a_plan_of_a_script_lists_the_retried_reasons(
    lockstep: CommandLine, server: ReplayServer, spec: Path
) -> None:
    retries = RetriesView(
        again=[Reason.KILLED],
        not_counted=[Reason.PREEMPTED],
        never=[Reason.USER_ERROR],
        max=1,
        sentences=retries_of_script(Retry(max=1)).sentences(Retry(max=1)),
    )
    server.on("POST", "/v1/jobs/plan", examples.plan_view().model_copy(update={"retries": retries}))
    out = lockstep("plan", str(spec)).out
    assert "  retry  started again: at most once in a row without a later step" in out
    assert "  retry  not started again: after timed_out, user_error, bad_spec" in out


def test_a_spec_from_stdin(accepting: ReplayServer, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lockstep", "submit", "-", "-d", "-q", "--url", accepting.url],
        input=YAML,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{examples.ID}\n", "")


def test_fractions_of_thinned_series_are_estimated_from_stored_points() -> None:
    # 1000 steps of 1 s, of which 100 points arrived; 10 checkpoints of 5 s, which all arrived.
    found = [
        examples.series("time/step_seconds", [1.0] * 100, count=1000),
        examples.series("time/checkpoint_seconds", [5.0] * 10, count=10),
    ]
    assert time_shares(found) == [("checkpoint", pytest.approx(0.05))]


def test_a_job_without_timed_steps_has_no_fractions() -> None:
    assert time_shares([examples.series("train/loss", [1.0])]) == []


def test_on_a_terminal_submit_confirms_shows_a_bar_and_detaches(
    accepting: ReplayServer, spec: Path
) -> None:
    accepting.on("GET", JOB, job(), job(JobState.RUNNING, progress=examples.progress(100)))
    terminal = Terminal("submit", str(spec), "--url", accepting.url)
    try:
        terminal.read_until("submit? [Y/n]")
        assert accepting.requests("POST", "/v1/jobs") == []
        terminal.type("y\n")
        terminal.read_until("100/200")
        terminal.read_until("loss 2.5000")
        terminal.read_until("ETA 1 min 40 s")
        terminal.process.send_signal(signal.SIGINT)
        terminal.read_until(f"lockstep wait {examples.ID[-8:]}")
        assert terminal.process.wait(60) == 130
    finally:
        terminal.close()
    assert "Traceback" not in terminal.seen
    assert [asked.path for asked in accepting.asked if "cancel" in asked.path] == []


def test_on_a_terminal_no_means_no(accepting: ReplayServer, spec: Path) -> None:
    terminal = Terminal("submit", str(spec), "--url", accepting.url)
    try:
        terminal.read_until("submit? [Y/n]")
        terminal.type("n\n")
        terminal.read_until("nothing was submitted")
        assert terminal.process.wait(60) == 0
    finally:
        terminal.close()
    assert accepting.requests("POST", "/v1/jobs") == []


def test_the_document_is_json_for_any_spec_field(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    spec.write_text(YAML + 'labels: {team: "blue", note: "ü"}\ntimeout_seconds: 1e3\n')
    lockstep("submit", str(spec), "-d")
    sent = json.loads(accepting.requests("POST", "/v1/jobs")[0].body)
    assert sent["labels"] == {"team": "blue", "note": "ü"}
    assert sent["timeout_seconds"] == 1000.0


def test_a_broken_stream_of_lines_is_resumed_without_a_gap(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    def stream(*events: tuple[str, str, str]) -> Answer:
        body = "".join(
            f"event: {kind}\ndata: {data}\nid: {place}\n\n" for kind, data, place in events
        )
        return Answer(200, body.encode(), {"Content-Type": "text/event-stream"})

    accepting.on(
        "GET",
        f"{JOB}/logs",
        examples.log_page("one", complete=False),
        examples.log_page(start=1, complete=False),
    )
    accepting.on(
        "GET",
        f"{JOB}/logs/stream",
        stream(("lines", examples.log_page("two", start=1).model_dump_json(), "c1")),
        stream(
            ("lines", examples.log_page("three", start=2).model_dump_json(), "c3"),
            ("end", "{}", "c3"),
        ),
    )
    said = lockstep("submit", str(spec), "--logs")
    lines = [line.partition("] ")[2] for line in said.err.splitlines() if line.startswith("[rank")]
    assert (said.code, lines) == (0, ["one", "two", "three"])
    # All of them before the final table: the job's end waits for its last lines.
    assert len(accepting.requests("GET", f"{JOB}/logs/stream")) == 2


def test_a_failure_to_follow_lines_is_reported_and_submit_continues(
    lockstep: CommandLine, accepting: ReplayServer, spec: Path
) -> None:
    accepting.on("GET", f"{JOB}/logs", problem(403, "forbidden", "these are not yours"))
    said = lockstep("submit", str(spec), "--logs")
    assert said.code == 0
    assert "following its log failed: these are not yours" in said.err
