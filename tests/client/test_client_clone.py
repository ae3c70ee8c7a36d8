"""``clone``: what is sent, and how a refusal is put."""

from __future__ import annotations

from domain.lifecycle import JobState
from tests.client import examples
from tests.client.server import ReplayServer, problem
from tests.client.terminal import CommandLine

CLONE = f"/v1/jobs/{examples.ID}/clone"
NEW = "01990000-0000-7000-8000-00000000beef"


def test_a_clone_sends_the_changes_alone_and_names_the_new_job(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    server.on("POST", CLONE, examples.job(id=NEW))
    said = lockstep("clone", "tiny", "--set", "train.optimizer.lr=1e-4", "--set", "labels.a/b=[1, x]", "-d")
    assert (said.code, said.out) == (0, f"{NEW}\n")
    (asked,) = server.requests("POST", CLONE)
    assert asked.json() == {"set": {"/train/optimizer/lr": 1e-4, "/labels/a~1b": [1, "x"]}}
    assert asked.headers["idempotency-key"]


def test_a_clone_is_followed_to_its_end(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    server.on("POST", CLONE, examples.job(id=NEW))
    server.on("GET", f"/v1/jobs/{NEW}", examples.job(JobState.CANCELLED, id=NEW))
    said = lockstep("clone", "tiny", "-o", "name")
    assert (said.code, said.out) == (6, f"{NEW}\n")


def test_a_refusal_names_the_set_that_was_wrong(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    wrong = [
        {"pointer": "/train/steps", "message": "expected 1 or more, got 0", "next_step": ""},
        {"pointer": "/resources/gpus", "message": "too many", "next_step": ""},
    ]
    server.on("POST", CLONE, problem(422, "invalid", "2 values are wrong", errors=wrong))
    said = lockstep("clone", "tiny", "--set", "train.steps=0", "-d")
    assert (said.code, said.out) == (1, "")
    first, second = said.err.splitlines()[:2]
    assert first == "lockstep: --set train.steps=0: train.steps: expected 1 or more, got 0"
    assert second.strip() == "the spec of tiny: resources.gpus: too many"


def test_a_setting_without_a_place_is_a_wrong_command_line(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    for setting in ("train", "=3", "a..b=1"):
        assert lockstep("clone", "tiny", "--set", setting).code == 2
    assert server.requests("POST", CLONE) == []
