"""``clone``: its request, and its message after a refusal."""

from __future__ import annotations

from lockstep.domain.life.lifecycle import JobState
from tests.client import examples
from tests.client.server import ReplayServer, problem
from tests.client.terminal import CommandLine

CLONE = f"/v1/jobs/{examples.ID}/clone"
NEW = "01990000-0000-7000-8000-00000000beef"


def test_a_clone_sends_the_changes_alone_and_names_the_new_job(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    server.on("POST", CLONE, examples.job(id=NEW))
    said = lockstep(
        "clone", "tiny", "--set", "train.optimizer.lr=1e-4", "--set", "labels.a/b=[1, x]", "-d"
    )
    assert (said.code, said.out) == (0, f"{NEW}\n")
    (asked,) = server.requests("POST", CLONE)
    assert asked.json() == {"set": {"/train/optimizer/lr": 1e-4, "/labels/a~1b": [1, "x"]}}
    assert asked.headers["idempotency-key"]


def test_each_change_is_shown_with_the_old_and_the_new_value(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    words = ["train.py", "--lr", "0.1"]
    spec = {"name": "tiny", "kind": "script", "script": {"command": words}, "labels": {"a": "b"}}
    server.on("GET", "/v1/jobs/tiny", examples.job(JobState.SUCCEEDED, kind="script", spec=spec))
    server.on("POST", CLONE, examples.job(id=NEW))
    changes = [
        "script.command.2=--warmup",
        "labels={a: c}",
        "env.SEED='1'",
        "script.command.0=train.py",
    ]
    said = lockstep(
        "clone", "tiny", *(word for change in changes for word in ("--set", change)), "-d"
    )
    assert [line for line in said.err.splitlines() if line.startswith("set ")] == [
        'set script.command.2: "0.1" → "--warmup"; script.command is now ["train.py", "--lr", '
        '"--warmup"]',
        'set labels: {"a": "b"} → {"a": "c"}',
        'set env.SEED: not set → "1"',
        'set script.command.0: "train.py", unchanged',
    ]
    assert "set " not in lockstep("clone", "tiny", "--set", "labels.a=d", "-q", "-d").err


def test_an_unknown_entry_of_a_list_is_refused_with_the_known_ones(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    spec = {"name": "tiny", "kind": "script", "script": {"command": ["train.py", "--lr", "0.1"]}}
    server.on("GET", "/v1/jobs/tiny", examples.job(JobState.SUCCEEDED, kind="script", spec=spec))
    for name in ("15", "-1", "first"):
        said = lockstep("clone", "tiny", "--set", f"script.command.{name}=x")
        assert said.code == 2
        assert said.err.splitlines()[0] == (
            f"lockstep: --set script.command.{name}=x: script.command has no entry {name!r}: use "
            "an index from 0 to 2; to add an entry, set the whole list"
        )
    assert server.requests("POST", CLONE) == []


def test_a_clone_is_followed_to_its_end(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    server.on("POST", CLONE, examples.job(id=NEW))
    server.on("GET", f"/v1/jobs/{NEW}", examples.job(JobState.CANCELLED, id=NEW))
    said = lockstep("clone", "tiny", "-o", "name")
    assert (said.code, said.out) == (6, f"{NEW}\n")


def test_a_refusal_names_the_set_that_was_wrong(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    wrong = [
        {"pointer": "/train/steps", "message": "expected 1 or more, got 0", "next_step": ""},
        {"pointer": "/resources/gpus", "message": "too many", "next_step": ""},
    ]
    server.on("POST", CLONE, problem(422, "invalid", "2 values are wrong", errors=wrong))
    said = lockstep("clone", "tiny", "--set", "train.steps=0", "-d")
    assert (said.code, said.out) == (1, "")
    first, second = said.err.splitlines()[1:3]
    assert first == "lockstep: --set train.steps=0: train.steps: expected 1 or more, got 0"
    assert second.strip() == "the spec of tiny: resources.gpus: too many"


def test_a_setting_without_a_path_is_a_wrong_command_line(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    for setting in ("train", "=3", "a..b=1"):
        assert lockstep("clone", "tiny", "--set", setting).code == 2
    assert server.requests("POST", CLONE) == []
