"""Commands that only read: formats, exit codes, and messages."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lockstep.client.errors import ExitCode
from lockstep.client.local.home import Home, RunFile
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.queue_views import QueuePlace
from lockstep.domain.rights import ProjectRole
from lockstep.domain.training.memory import MemoryForecast
from lockstep.domain.views import EventView, JobView, LogLine, NodeView, Page
from tests.client import examples
from tests.client.server import RESET, Answer, Asked, ReplayServer, problem
from tests.client.terminal import CommandLine

JOB = f"/v1/jobs/{examples.ID}"


def test_ps_shows_live_jobs_and_all_on_demand(lockstep: CommandLine, server: ReplayServer) -> None:
    running = examples.job(JobState.RUNNING, progress=examples.progress(50))
    server.on("GET", "/v1/jobs", examples.listed(items=[running]))
    said = lockstep("ps")
    assert (said.code, said.err) == (0, "")
    heading, row = said.out.splitlines()
    assert heading.split()[:3] == ["ID", "NAME", "STATE"]
    assert row.split()[:5] == [examples.ID[-8:], "tiny", "running", "50/200", "2.5000"]
    assert server.asked[-1].query["state"] == ["queued", "starting", "running", "paused"]
    lockstep("ps", "-a")
    assert "state" not in server.asked[-1].query
    lockstep("ps", "--state", "failed", "--state", "cancelled")
    assert server.asked[-1].query["state"] == ["failed", "cancelled"]
    lockstep("ps", "--search", "gpt", "--project", "vision", "--owner", "ada", "--node", "gpu-a")
    asked = server.asked[-1].query
    assert {name: asked[name] for name in ("search", "project", "owner", "node")} == {
        "search": ["gpt"], "project": ["vision"], "owner": ["ada"], "node": ["gpu-a"],
    }  # fmt: skip


def test_ps_passes_filter_and_order_on(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs", examples.listed(items=[examples.job()], next_cursor="n"))
    said = lockstep("ps", "--filter", "gpus>4 lr<1e-3", "--sort=-gpus", "-n", "1")
    assert said.err == "only the first 1 are shown: -n shows more\n"
    query = server.asked[-1].query
    assert (query["filter"], query["sort"]) == (["gpus>4 lr<1e-3"], ["-gpus"])


def test_an_empty_list_has_no_data_and_a_hint(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs", examples.listed(items=[]))
    said = lockstep("ps")
    assert (said.code, said.out) == (0, "")
    assert "lockstep ps -a" in said.err


def test_ps_reads_as_many_pages_as_it_shows(lockstep: CommandLine, server: ReplayServer) -> None:
    page = examples.listed(items=[examples.job()], next_cursor="n")
    server.on("GET", "/v1/jobs", page)
    said = lockstep("ps", "-n", "2", "-o", "name")
    assert said.out == f"{examples.ID}\n" * 2
    asked = server.requests("GET", "/v1/jobs")
    assert [each.query.get("cursor") for each in asked] == [None, ["n"]]


def test_in_a_team_a_list_without_a_filter_has_the_own_jobs(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    member = {"nlp": ProjectRole.VIEWER, "vision": ProjectRole.MEMBER}
    server.on("GET", "/v1/session", examples.caller(is_alone=False, projects=member))
    server.on("GET", "/v1/jobs", examples.listed(items=[]))
    said = lockstep("ps")
    assert "no job of ada is queued or running" in said.err
    assert "--owner '*' lists those of all people" in said.err
    assert "only jobs of ada" in lockstep("ps", "-o", "json").err
    for options in (["--owner", "*"], ["--search", "gpt"], ["--project", "nlp"]):
        assert "only jobs of" not in lockstep("ps", *options).err
    asked = server.requests("GET", "/v1/jobs")
    assert [each.query.get("owner") for each in asked] == [["ada"], ["ada"], ["*"], None, None]
    viewer = {"nlp": ProjectRole.VIEWER}
    server.on("GET", "/v1/session", examples.caller(is_alone=False, projects=viewer))
    assert "only jobs of" not in lockstep("ps").err


def test_json_is_the_apis_own_objects(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs", examples.listed(items=[examples.succeeded()]))
    server.on("GET", "/v1/jobs/last", examples.succeeded())
    assert [JobView.model_validate(each) for each in json.loads(lockstep("ps", "--json").out)] == [
        examples.succeeded()
    ]
    assert (
        JobView.model_validate_json(lockstep("show", "last", "-o", "json").out)
        == examples.succeeded()
    )


def test_no_colour_and_no_cut_in_a_pipe(lockstep: CommandLine, server: ReplayServer) -> None:
    long = "waits for " + "x" * 300
    server.on("GET", "/v1/jobs", examples.listed(items=[examples.job(reason=long)]))
    said = lockstep("ps", "-o", "wide")
    assert long in said.out
    assert "\x1b" not in said.out


def test_show_prints_plan_outcome_and_events(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.failed())
    server.on("GET", f"{JOB}/events", examples.events())
    server.on("GET", f"{JOB}/checkpoints", examples.checkpoints())
    said = lockstep("show", "tiny")
    assert said.code == 0
    for words in (
        "64 = 2 ranks × 8 samples × 4 accumulation steps",
        "user_error: rank 1 raised ValueError",
        "1 on node-1",
        "ValueError: the data is bad",
        "fix the code",
        "step 17 of 200 (8 %)",
        "/store/jobs/x/1/step-00000200",
        "placed on node-1",
    ):
        assert words in said.out


def test_show_prints_the_predicted_memory(lockstep: CommandLine, server: ReplayServer) -> None:
    parts = dict.fromkeys(MemoryForecast.parts(), 0) | {"weights": 2**30, "optimizer": 2**31}
    plan = examples.PLAN.model_copy(update={"memory": MemoryForecast.model_validate(parts)})
    server.on("GET", "/v1/jobs/tiny", examples.job(JobState.RUNNING, plan=plan))
    server.on("GET", f"{JOB}/events", examples.events())
    server.on("GET", f"{JOB}/checkpoints", examples.checkpoints())
    assert "about 3.0 GiB per rank (optimizer 2.0, weights 1.0)" in lockstep("show", "tiny").out


def test_show_prints_the_expected_start_and_the_owner(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    start = datetime(2026, 11, 23, 14, 35, tzinfo=UTC)
    place = QueuePlace(position=2, reason="waits for 2 more free devices", estimated_start=start)
    server.on("GET", "/v1/jobs/tiny", examples.job(queue=place, owner="ada"))
    server.on("GET", f"{JOB}/events", examples.events())
    server.on("GET", f"{JOB}/checkpoints", examples.checkpoints())
    said = lockstep("show", "tiny").out
    assert f"position 2, about {start.astimezone():%a %H:%M}: waits for 2 more free devices" in said
    assert " by ada" in said


def test_logs_have_their_rank_in_front(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    server.on("GET", f"{JOB}/logs", examples.log_page("hello", "[bold]not markup[/bold]"))
    assert lockstep("logs", "tiny").out == "[rank 0] hello\n[rank 1] [bold]not markup[/bold]\n"
    assert lockstep("logs", "tiny", "--raw").out == "hello\n[bold]not markup[/bold]\n"
    lines = lockstep("logs", "tiny", "--json").out.splitlines()
    assert [LogLine.model_validate_json(line).text for line in lines] == [
        "hello",
        "[bold]not markup[/bold]",
    ]
    lockstep("logs", "tiny", "--rank", "1", "--tail", "5", "--search", "x y", "--stream", "stderr")
    query = server.asked[-1].query
    assert {name: query[name] for name in ("rank", "tail", "search", "stream")} == {
        "rank": ["1"],
        "tail": ["5"],
        "search": ["x y"],
        "stream": ["stderr"],
    }


def test_nodes_shows_the_jobs_on_each_device(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/nodes", Page[NodeView](items=[examples.node()]))
    row = lockstep("nodes").out.splitlines()[1]
    assert "2 × cpu" in row
    assert examples.ID[-8:] in row
    assert len(lockstep("nodes", "-o", "wide").out.splitlines()) == 3
    assert lockstep("nodes", "-o", "name").out == "node-1\n"


def test_nodes_shows_first_what_the_settings_of_a_node_offer(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    offers = ["data:x", "kind:cpu", "python:3.12", "rack:a"]
    found = examples.node().model_copy(update={"offers": offers})
    server.on("GET", "/v1/nodes", Page[NodeView](items=[found]))
    assert "data:x, rack:a, kind:cpu and 1 more" in lockstep("nodes").out


def test_nodes_shows_devices_that_jobs_of_other_projects_hold(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    node = examples.node()
    foreign = [node.devices[0], node.devices[1].model_copy(update={"held": True})]
    server.on(
        "GET",
        "/v1/nodes",
        Page[NodeView](items=[node.model_copy(update={"devices": foreign, "devices_free": 0})]),
    )
    assert f"{examples.ID[-8:]}, others" in lockstep("nodes").out
    assert "of another project" in lockstep("nodes", "-o", "wide").out
    server.on("GET", "/v1/jobs", examples.listed(items=[]))
    said = lockstep("top", "--once").out
    assert "2 of 2 devices busy" in said
    assert "■■" in said


def test_a_quarantined_node_is_shown_with_reason_and_command(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    bad = examples.node().model_copy(update={"state": "quarantined", "reason": "it failed 2 jobs"})
    server.on("GET", "/v1/nodes", Page[NodeView](items=[bad]))
    for form in ("table", "wide"):
        said = lockstep("nodes", "-o", form)
        assert "quarantined" in said.out
        assert "it failed 2 jobs" in said.out
        assert "lockstep nodes resume node-1" in said.err


@pytest.mark.parametrize(("command", "state"), [("drain", "draining"), ("resume", "ready")])
def test_a_node_is_drained_and_resumed_by_name(
    lockstep: CommandLine, server: ReplayServer, command: str, state: str
) -> None:
    changed = examples.node().model_copy(update={"state": state})
    server.on("POST", f"/v1/nodes/node-1/{command}", changed)
    said = lockstep("nodes", command, "node-1")
    assert said.out == ""
    assert f"node-1 is {state}" in said.err
    if command == "drain":
        lockstep("nodes", "drain", "node-1", "--reason", "new fan")
        assert server.asked[-1].query == {"reason": ["new fan"]}


def test_a_node_is_removed_by_name(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("DELETE", "/v1/nodes/node-1", Answer(204))
    said = lockstep("nodes", "rm", "node-1")
    assert (said.code, said.out, said.err) == (0, "", "node-1 is removed\n")


def test_a_priority_is_given_to_each_job(lockstep: CommandLine, server: ReplayServer) -> None:
    for reference in ("a", "b"):
        server.on("GET", f"/v1/jobs/{reference}", examples.job())
    server.on("PATCH", JOB, examples.job())
    assert lockstep("priority", "80", "a", "b").code == 0
    assert [asked.json() for asked in server.requests("PATCH", JOB)] == [{"priority": 80}] * 2


@pytest.mark.parametrize(
    ("job", "code"),
    [(examples.succeeded(), 0), (examples.failed(), 1), (examples.job(JobState.CANCELLED), 6)],
)
def test_wait_ends_as_the_job_did(
    lockstep: CommandLine, server: ReplayServer, job: JobView, code: int
) -> None:
    server.on("GET", "/v1/jobs/tiny", job)
    said = lockstep("wait", "tiny")
    assert (said.code, said.out) == (code, f"{job.state}\n")


def test_wait_ends_with_124_when_time_is_up(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.job())
    said = lockstep("wait", "tiny", "--timeout", "0.01")
    assert (said.code, said.out) == (124, "")
    assert "the job continues" in said.err


def test_cancel_names_every_job_and_its_state(lockstep: CommandLine, server: ReplayServer) -> None:
    running = examples.job(JobState.RUNNING, intent="cancel")
    for name in "ab":
        server.on("GET", f"/v1/jobs/{name}", examples.job())
    server.on("POST", f"{JOB}/cancel", examples.job(JobState.CANCELLED), running)
    said = lockstep("cancel", "a", "b")
    assert said.code == 0
    assert [line.split("  ")[-1] for line in said.out.splitlines()] == [
        "cancelled",
        "running (cancelling)",
    ]


def test_events_are_listed_oldest_first(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.job())
    server.on("GET", f"{JOB}/events", examples.events())
    assert [line.split()[3] for line in lockstep("events", "tiny").out.splitlines()[1:]] == [
        "submitted",
        "placed",
    ]
    assert "order" not in server.asked[-1].query


def test_the_last_events_of_many_can_be_requested(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.job())
    newest_first = Page[EventView](items=examples.events().items[::-1], next_cursor="1")
    server.on("GET", f"{JOB}/events", newest_first)
    said = lockstep("events", "tiny", "--tail", "2")
    assert [line.split()[3] for line in said.out.splitlines()[1:]] == ["submitted", "placed"]
    assert server.asked[-1].query == {"order": ["newest"], "limit": ["2"]}
    assert lockstep("events", "tiny", "--tail", "0").code == ExitCode.USAGE


def test_show_prints_the_newest_events_and_a_command_for_older_ones(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.job())
    server.on("GET", f"{JOB}/checkpoints", examples.checkpoints())
    [event, _] = examples.events().items
    story = [
        event.model_copy(update={"id": number, "message": f"number {number}."})
        for number in range(60, 0, -1)
    ]
    server.on("GET", f"{JOB}/events", Page[EventView](items=story, next_cursor="1"))
    said = lockstep("show", "tiny")
    assert "number 60." in said.out
    assert "number 11." in said.out
    assert "number 10." not in said.out
    assert f"lockstep events {examples.ID[-8:]}" in said.err


def test_a_supervised_service_that_is_being_started_again_is_waited_for(
    server: ReplayServer, lockstep: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCKSTEP_URL")
    monkeypatch.setattr("lockstep.client.api.PATIENCE_SECONDS", 0.0)
    server.on("GET", "/v1/jobs", RESET, examples.listed(items=[]))
    home = Home(tmp_path / "home")
    home.create()
    home.write_run_file(RunFile(url=server.url, pid=1, started=0.0, token_file="none"))
    assert lockstep("ps").code == 5
    server.on("GET", "/v1/jobs", RESET, examples.listed(items=[]))
    with home.locked():
        assert lockstep("ps").code == 0


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (
            problem(
                404, "not_found", "there is no job gone", next_step="lockstep ps -a lists them"
            ),
            3,
        ),
        (problem(401, "unauthenticated", "the token is not known"), 4),
        (problem(409, "conflict", "it has ended"), 1),
    ],
)
def test_a_refusal_is_one_line_with_its_exit_code(
    lockstep: CommandLine, server: ReplayServer, answer: object, code: int
) -> None:
    server.on("GET", "/v1/jobs/gone", answer)
    said = lockstep("show", "gone")
    assert (said.code, said.out) == (code, "")
    assert said.err.startswith("lockstep: ")
    assert "Traceback" not in said.err
    assert "Traceback" in lockstep("show", "gone", "--debug").err


def test_no_job_is_named_as_another_address(lockstep: CommandLine, server: ReplayServer) -> None:
    said = lockstep("show", "plan")
    assert said.code == 3
    assert said.err.splitlines()[0] == "lockstep: there is no job 'plan'"
    assert server.asked == []


def test_no_server_is_exit_code_5(lockstep: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockstep.client.api.PATIENCE_SECONDS", 0.0)
    said = lockstep("ps", "--url", "http://127.0.0.1:9")
    assert (said.code, said.out) == (5, "")
    assert said.err.startswith("lockstep: http://127.0.0.1:9 does not answer: connection refused")


@pytest.mark.parametrize(
    "words",
    [
        ["sumbit", "x"],
        ["ps", "--nope"],
        ["show"],
        ["cancel"],
        ["rm"],
        ["rm", "tiny"],
        ["ps", "--state", "gone"],
        ["ps", "--label", "x"],
        ["submit", "nofile.yaml"],
        ["ps", "--url", ""],
        ["ps", "--limit", "0"],
        ["ps", "--token", ""],
        ["ps", "--token", "two words"],
        ["up", "--port", "99999"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(lockstep: CommandLine, words: list[str]) -> None:
    said = lockstep(*words)
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("lockstep: ")
    assert "defect" not in said.err


@pytest.mark.parametrize(
    ("words", "option", "shown"),
    [
        ("--url X ps", "--url", "ps --url X"),
        ("--url=X nodes drain n1", "--url", "nodes drain n1 --url=X"),
        ("-o json ps --limit 2", "-o", "ps --limit 2 -o json"),
        ("--token secret ps", "--token", "ps --token ..."),
    ],
)
def test_an_option_before_the_command_gets_advice(
    lockstep: CommandLine, words: str, option: str, shown: str
) -> None:
    said = lockstep(*words.split())
    assert said == (
        2,
        "",
        f"lockstep: the option {option} is before the command\n"
        f"          write it after the command: lockstep {shown}\n",
    )


def test_a_server_that_accepts_and_stays_silent_is_named_and_waited_for(
    lockstep: CommandLine, server: ReplayServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockstep.client.silence.SILENCE_SECONDS", 0.2)
    server.on("GET", "/v1/jobs", examples.listed(items=[examples.job()], next_cursor=None))
    answer, said_so = server.answer, threading.Event()

    def silent(asked: Asked) -> Answer:
        assert said_so.wait(30)  # an answer comes only after the line was written
        return answer(asked)

    def say(line: str) -> None:
        lines.append(line)
        said_so.set()

    lines: list[str] = []
    monkeypatch.setattr(server, "answer", silent)
    monkeypatch.setattr("lockstep.cli.common.say", say)
    assert lockstep("ps", "--owner", "*", "-o", "name").out == f"{examples.ID}\n"
    assert lines == [f"waiting for {server.url}: no answer to GET /v1/jobs for 0.2 s"]


@pytest.mark.parametrize(
    "command", ["submit", "plan", "ps", "show", "logs", "metrics", "events", "wait", "cancel", "rm"]
)
def test_every_command_explains_itself(lockstep: CommandLine, command: str) -> None:
    said = lockstep(command, "--help")
    assert said.code == 0
    assert f"Usage: lockstep {command}" in said.out


def test_the_help_of_a_command_is_longer_than_its_summary(lockstep: CommandLine) -> None:
    assert "124: not in time" in " ".join(lockstep("wait", "--help").out.split())
    assert "124: not in time" not in lockstep("--help").out


def test_a_reader_that_has_seen_enough_is_no_error(server: ReplayServer) -> None:
    lines = [f"line {number} {'x' * 100}" for number in range(4000)]
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    server.on("GET", f"{JOB}/logs", examples.log_page(*lines))
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"'{sys.executable}' -m lockstep logs tiny --url {server.url} | head -1; echo "
            f"${{PIPESTATUS[0]}}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[1] == "0"
    assert done.stderr == ""


def test_resume_continues_an_ended_job_by_a_new_one(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    made = examples.job(JobState.QUEUED, id="0" * 8 + examples.ID[8:])
    server.on("GET", JOB, examples.job(JobState.FAILED))
    server.on("POST", f"{JOB}/clone", made)
    said = lockstep("resume", examples.ID, "--set", "train.steps=400", "-o", "name")
    assert (said.code, said.out) == (0, f"{made.id}\n")
    (asked,) = server.requests("POST", f"{JOB}/clone")
    assert asked.json() == {"set": {"/train/steps": 400, "/continues": examples.ID}}
    said = lockstep("resume", examples.ID, "--set", "train.batch.size=1")
    assert said.code == ExitCode.USAGE
    assert "train.batch.size cannot change in a job that continues" in said.err


def test_resume_queues_a_paused_job_again(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", JOB, examples.job(JobState.PAUSED))
    server.on("POST", f"{JOB}/resume", examples.job(JobState.QUEUED))
    assert lockstep("resume", examples.ID).code == 0
    said = lockstep("resume", examples.ID, "--set", "retry.max=1")
    assert "--set is for a job that has ended; tiny is paused" in said.err
