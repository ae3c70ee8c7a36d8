"""Ranks that are forked from the launcher equal ranks that are started by exec, or are not
forked."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from safetensors.torch import load_file

from lockstep.domain.life import attempt as files
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.plan import plan_of
from lockstep.engine.launcher.start.forking import ForkedRank
from tests.harness import forks
from tests.harness.attempts import Attempt, assignment_of
from tests.harness.processes import alive, until

BY_EXEC = {"PYTHONHASHSEED": "0"}
"""Variable that the interpreter reads at its start: with it a rank cannot be forked."""
TASK = """
import json, os, signal, sys
from pathlib import Path

import torch
from torch import nn
from lockstep import Task

RANK = os.environ["RANK"]


def shown():
    entries = Path("/proc/self/environ").read_bytes().decode().split("\\0")
    return sorted(entry for entry in entries if entry.startswith(("LOCKSTEP_", "RANK=")))


class Seen(Task):
    def __init__(self):
        blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        seen = Path(f"seen{RANK}.json")
        if seen.exists():
            return  # in the process of the memory forecast
        seen.write_text(json.dumps({
            "environ": dict(os.environ), "shown": shown(), "argv": sys.argv, "path": sys.path[0], "cwd": os.getcwd(),
            "main": sys.modules["__main__"].__spec__.name, "threads": torch.get_num_threads(),
            "group": os.getpgid(0) == os.getpid(), "session": os.getsid(0) == os.getpid(),
            "files": sorted(os.readlink(f"/proc/self/fd/{n}") for n in (0, 1, 2)),
            "handlers": {s.name: str(signal.getsignal(s)) for s in signal.Signals}, "blocked": blocked,
        }))
        print("printed by", RANK)
        print("warned by", RANK, file=sys.stderr)

    def model(self):
        return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1)).double()

    def dataset(self, split):
        rows = torch.randn(40, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return [(row[:4], row[4]) for row in rows]

    def loss(self, model, batch):
        x, y = batch
        return ((model(x).squeeze(-1) - y) ** 2).sum()
"""


def prepared(
    attempt: Attempt, *, env: dict[str, str], ranks: int = 2, **assignment: Any
) -> Attempt:
    code = attempt.folder / files.CODE
    code.mkdir(parents=True)
    (code / "seen.py").write_text(TASK)
    train = {"task": "seen.py:Seen", "batch": {"size": 8, "micro_size": 2}, "steps": 4}
    document = {
        "name": "seen",
        "kind": "train",
        "code": {"upload": "0" * 64},
        "resources": {"gpus": ranks},
        "env": env,
        "train": train,
    }
    spec = read_spec(document)
    return attempt.assign(
        spec.model_dump(), ranks=ranks, plan=plan_of(spec), stop_grace_seconds=5.0, **assignment
    )


def ended(attempt: Attempt) -> list[dict[str, Any]]:
    """Return the observations of each rank, once the job has succeeded."""
    assert attempt.outcome().reason is Reason.SUCCEEDED, attempt.outcome()
    seen = sorted((attempt.folder / files.CODE).glob("seen*.json"))
    return [json.loads(file.read_text()) for file in seen]


def test_a_forked_rank_equals_an_executed_one(
    tmp_path: Path,
) -> None:
    seen, weights, printed = [], [], []
    for env in ({"MINE": "1"}, {"MINE": "1", **BY_EXEC}):
        folder = tmp_path / str(len(seen)) / "attempt"
        folder.mkdir(parents=True)
        attempt = prepared(Attempt(folder), env=env, ranks=1).start()
        try:
            ranks = ended(attempt)
        finally:
            attempt.end()
        log = (folder / files.LAUNCHER_LOG).read_text()
        assert ("started by exec instead of fork: the job sets PYTHONHASHSEED" in log) == bool(
            BY_EXEC.items() <= env.items()
        ), log
        for rank in ranks:
            assert rank["blocked"] == []
            # torch sets the folder of the cache itself, at its first use or before.
            for name in (*BY_EXEC, "TORCHINDUCTOR_CACHE_DIR"):
                rank["environ"].pop(name, None)
            assert rank["environ"].pop("MASTER_PORT").isdigit()
        seen.append(json.loads(json.dumps(ranks).replace(str(folder), "FOLDER")))
        printed.append(
            sorted(
                (record.rank, record.stream, record.text)
                for record in attempt.records()
                if "by" in record.text
            )
        )
        newest = max((folder / files.CHECKPOINTS).glob("step-*"))
        found = load_file(newest / "model.safetensors")
        weights.append({name: tensor.numpy().tobytes() for name, tensor in found.items()})
    forked, executed = seen
    assert len(forked) == 1
    assert forked == executed
    assert forked[0]["environ"]["MINE"] == "1"
    assert f"LOCKSTEP_JOB_ID={forked[0]['environ']['LOCKSTEP_JOB_ID']}" in forked[0]["shown"]
    assert forked[0]["main"] == "lockstep.engine.__main__"
    assert [stream for _, stream, _ in printed[0]].count("stdout") == 1
    assert printed[0] == printed[1]
    assert weights[0]
    assert weights[0] == weights[1]


def test_an_earlier_stop_prevents_the_start_of_forked_ranks(attempt: Attempt) -> None:
    prepared(attempt, env={})
    attempt.stop("cancelled", 5.0)
    attempt.start()
    outcome = attempt.outcome()
    assert outcome.reason is Reason.CANCELLED, outcome
    assert not (attempt.folder / files.RANKS).exists()
    assert not (attempt.folder / files.CODE / "seen0.json").exists()


@pytest.mark.parametrize("end", ["the other node is missing", "a stop", "the launcher is killed"])
def test_forked_ranks_end_with_the_wait_for_another_node(attempt: Attempt, end: str) -> None:
    prepared(attempt, env={}, node_count=2, world_size=4)
    if end == "the other node is missing":
        attempt.start(rendezvous_seconds=10.0)
    else:
        attempt.start()
    assert attempt.process is not None
    launcher = psutil.Process(attempt.process.pid)
    until(
        (attempt.folder / "launch/command.json").exists,
        seconds=60,
        what="the launcher is about to meet",
    )
    waiting = launcher.children()
    assert len(waiting) == 2
    if end == "the launcher is killed":
        launcher.kill()
    else:
        if end == "a stop":
            attempt.stop("cancelled", grace_seconds=60.0)
        expected = Reason.CANCELLED if end == "a stop" else Reason.NETWORK
        assert attempt.outcome(seconds=60).reason is expected
    until(lambda: not any(map(alive, waiting)), seconds=60, what="the forked ranks are gone")
    assert not (attempt.folder / files.RANKS).exists()


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_launcher_killed_before_its_ranks_start_leaves_none(tmp_path: Path, nodes: int) -> None:
    source = """
import os, sys, time
from pathlib import Path
from lockstep.domain.life.attempt import AssignmentFile
from lockstep.engine.launcher.start import forking
assignment = AssignmentFile.model_validate_json(sys.argv[1])
forked = forking.nursery_for(assignment, Path(sys.argv[2]))
print(*(rank.pid for rank in forked), flush=True)
time.sleep(600)
"""
    spec = {
        "name": "x",
        "kind": "train",
        "train": {
            "task": "causal_lm",
            "task_args": {"path": "x"},
            "batch": {"size": 2},
            "steps": 1,
        },
    }
    assignment = assignment_of(
        spec=spec, ranks_here=2, node_count=nodes, world_size=2 * nodes, devices=[0, 1]
    )
    command = [sys.executable, "-c", source, assignment.model_dump_json(), str(tmp_path)]
    launcher = forks.Forked(command, forks.ENGINE, stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    pids = [int(pid) for pid in launcher.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(alive, pids))
    launcher.kill()
    launcher.wait()
    launcher.stdout.close()
    until(lambda: not any(map(alive, pids)), seconds=60, what="the forked ranks are gone")


def test_the_wait_for_a_forked_rank_has_a_limit() -> None:
    program = subprocess.Popen(["sleep", "60"])
    rank = ForkedRank(program.pid, -1)
    with pytest.raises(subprocess.TimeoutExpired):
        rank.wait(0.05)
    program.kill()
    assert rank.wait(60) == -signal.SIGKILL
    program.wait()


REFUSALS = {
    "a variable that a library reads": (
        {"env": {"OMP_NUM_THREADS": "2"}},
        None,
        "the job sets OMP_NUM_THREADS",
    ),
    "a module of a name that is taken": ({}, "numpy.py", "the job's code has numpy"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_rank_that_would_differ_is_not_forked(case: str, tmp_path: Path) -> None:
    fields, file, reason = REFUSALS[case]
    if file is not None:
        (tmp_path / files.CODE).mkdir()
        (tmp_path / files.CODE / file).write_text("")
    spec = {
        "name": "x",
        "kind": "train",
        "env": fields.get("env", {}),
        "train": {
            "task": "causal_lm",
            "task_args": {"path": "x"},
            "batch": {"size": 8},
            "steps": 1,
        },
    }
    rest = {name: value for name, value in fields.items() if name != "env"}
    assignment = assignment_of(
        **{"spec": spec, "ranks_here": 2, "world_size": 2, "devices": [0, 1], **rest}
    )
    source = """
import logging, sys
from pathlib import Path
from lockstep.domain.life.attempt import AssignmentFile
from lockstep.engine.launcher.start import forking
logging.basicConfig()
print(forking.nursery_for(AssignmentFile.model_validate_json(sys.argv[1]), Path(sys.argv[2])))
"""
    command = [sys.executable, "-c", source, assignment.model_dump_json(), str(tmp_path)]
    ran = forks.run(command, forks.ENGINE, timeout=120)
    assert ran.stdout == "[]\n", ran.stderr
    assert reason in ran.stderr


def test_a_process_with_a_thread_is_not_forked() -> None:
    source = """
import threading
from lockstep.engine.launcher.start.forking import left_open
print(left_open())
threading.Thread(target=threading.Event().wait, daemon=True).start()
print(left_open())
"""
    ran = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, check=True, timeout=60
    )
    assert ran.stdout.splitlines() == ["None", "the imports started 1 more threads"]
