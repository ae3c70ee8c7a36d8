"""Environment of a rank: its place in the gang, the variables of the job, its own code first, and
no secret.

Not here: the loop that uses it (``engine``).
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lockstep.domain import job_environment
from lockstep.domain.life.outcomes import Reason
from lockstep.engine.launcher.environment import rank_environment, scrub
from tests.harness.attempts import Attempt, assignment_of, script_spec
from tests.harness.processes import free_port

DUMP = (
    "import json, os, sys\nprint(json.dumps([dict(os.environ), os.getcwd(), sys.path, sys.argv]))"
)

SECRETS = {
    "LOCKSTEP_DATABASE_URL": "postgresql+psycopg://u:secret@db/jobs",
    "LOCKSTEP_BROKER_URL": "redis://:secret@broker",
    "LOCKSTEP_TOKEN": "secret",
    "DATABASE_URL": "secret",
    "CELERY_BROKER_URL": "secret",
    "PGPASSWORD": "secret",
    "AWS_SECRET_ACCESS_KEY": "secret",
    "SOMETHING_NEW": "secret",
    "PYTHONPATH": "/service/secret",
}


def _dump(attempt: Attempt, rank: int = 0) -> Any:
    assert attempt.outcome().reason is Reason.SUCCEEDED
    (line,) = attempt.lines(rank)
    return json.loads(line)


def test_the_environment_of_the_service_does_not_reach_a_rank(attempt: Attempt) -> None:
    environ, _, path, _ = _dump(attempt.script(DUMP).start(environ=SECRETS))
    assert not [name for name, value in environ.items() if "secret" in value]
    assert not [place for place in path if "secret" in place]
    ours = {name for name in environ if name.startswith("LOCKSTEP_")}
    assert ours == {
        "LOCKSTEP_METRICS",
        "LOCKSTEP_OUTPUT",
        "LOCKSTEP_TENSORBOARD",
        "LOCKSTEP_STOP",
        "LOCKSTEP_STACKS",
        "LOCKSTEP_EXCEPTION",
        "LOCKSTEP_JOB_ID",
        "LOCKSTEP_ATTEMPT",
    }


def test_a_rank_gets_its_gang_job_and_folder(attempt: Attempt) -> None:
    attempt.script(DUMP, "--lr", "3e-4 $x", ranks=2, env={"FLAVOUR": "sweet"}).start()
    environ, cwd, _, argv = _dump(attempt, rank=1)
    expected = {
        "RANK": "1",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "LOCKSTEP_JOB_ID": "0190-job",
        "LOCKSTEP_ATTEMPT": "2",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "LOCKSTEP_METRICS": str(attempt.folder / "spool" / "metrics.jsonl"),
        "LOCKSTEP_TENSORBOARD": str(attempt.folder / "tensorboard"),
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONUNBUFFERED": "1",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
        "FLAVOUR": "sweet",
    }
    assert {name: environ.get(name) for name in expected} == expected
    assert cwd == str(attempt.folder / "code")
    assert argv == ["train.py", "--lr", "3e-4 $x"]


@pytest.mark.parametrize("number", [1, 5])
def test_the_restart_count_is_the_number_of_attempts_before(number: int) -> None:
    environ = rank_environment(assignment_of(attempt_number=number), Path("/attempt"), cores=1)
    assert environ["TORCHELASTIC_RESTART_COUNT"] == str(number - 1)


def test_torchrun_started_once_makes_its_ranks_on_all_devices(attempt: Attempt) -> None:
    """``script.nproc_per_node: 1``, which the refusal of a launcher names."""
    source = "import os\nos.write(1, '{RANK}/{WORLD_SIZE}\\n'.format(**os.environ).encode())"
    words = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    attempt.script(source).command(sys.executable, *words, devices=[0, 1])
    assert attempt.start().outcome(seconds=120).reason is Reason.SUCCEEDED
    assert sorted(attempt.lines()) == ["0/2", "1/2"]


def test_a_rank_inherits_only_its_three_streams(attempt: Attempt) -> None:
    """The fourth belongs to the listing, and Python opens its file for stacks itself."""
    attempt.command("sh", "-c", "ls /proc/self/fd | wc -l").start().outcome()
    assert attempt.lines() == ["4"]


def test_the_handler_of_stacks_does_not_change_a_scripts_start(
    attempt: Attempt,
) -> None:
    own = attempt.folder / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import builtins\nbuiltins.SEEN = __file__")
    show = "import sys\nprint(SEEN, [place for place in sys.path if 'launcher' in place])"
    attempt.script(show, env={"PYTHONPATH": str(own)}).start().outcome()
    assert attempt.lines() == [f"{own}/sitecustomize.py []"]


def test_without_silence_reports_a_script_has_no_handler_of_stacks() -> None:
    spec = script_spec(("a.py",), ranks=1, env=None)
    spec["script"]["silence_seconds"] = None
    environ = rank_environment(assignment_of(spec=spec), Path("/attempt"), cores=1)
    assert "LOCKSTEP_STACKS" not in environ


def test_without_code_the_folder_of_the_attempt_is_the_working_folder(attempt: Attempt) -> None:
    attempt.command("sh", "-c", "pwd").start().outcome()
    assert attempt.lines() == [str(attempt.folder)]


@pytest.mark.parametrize("name", ["engine", "domain"])
def test_a_module_beside_a_script_precedes_installed_ones(attempt: Attempt, name: str) -> None:
    attempt.script(f"import {name}\nprint({name}.WHOSE)")
    (attempt.folder / "code" / f"{name}.py").write_text("WHOSE = 'mine'")
    assert attempt.start().outcome().reason is Reason.SUCCEEDED
    assert attempt.lines() == ["mine"]


def test_gpus_are_chosen_by_bus_number_and_threads_divided() -> None:
    assignment = assignment_of(ranks_here=2, devices=[5, 3], device_kind="cuda")
    environ = rank_environment(assignment, Path("/attempt"), cores=12)
    assert environ["CUDA_VISIBLE_DEVICES"] == "5,3"
    assert environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert environ["OMP_NUM_THREADS"] == "6"
    assert rank_environment(assignment, Path("/attempt"), cores=1)["OMP_NUM_THREADS"] == "1"
    assert rank_environment(assignment, Path("/attempt"), cores=128)["OMP_NUM_THREADS"] == "8"


def test_ranks_of_several_nodes_use_the_address_of_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "ib0")  # a value of the node's own environment is kept
    several = rank_environment(
        assignment_of(node_count=2, interface="eth1"), Path("/attempt"), cores=1
    )
    assert several["GLOO_SOCKET_IFNAME"] == "eth1"
    assert "NCCL_SOCKET_IFNAME" not in several
    own = assignment_of(node_count=2, interface="eth1", env={"GLOO_SOCKET_IFNAME": "eth2"})
    assert rank_environment(own, Path("/attempt"), cores=1)["GLOO_SOCKET_IFNAME"] == "eth2"


def test_ranks_of_one_node_use_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = assignment_of(interface="eth1", env={"NCCL_SOCKET_IFNAME": "ib0"})
    found = rank_environment(alone, Path("/attempt"), cores=1)
    assert (found["GLOO_SOCKET_IFNAME"], found["NCCL_SOCKET_IFNAME"]) == ("lo", "ib0")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth1")
    assert "GLOO_SOCKET_IFNAME" not in rank_environment(alone, Path("/attempt"), cores=1)


def test_the_thread_count_of_the_job_takes_precedence() -> None:
    assignment = assignment_of(env={"OMP_NUM_THREADS": "3"})
    assert rank_environment(assignment, Path("/attempt"), cores=12)["OMP_NUM_THREADS"] == "3"


@pytest.mark.parametrize("ranks", [[1], [1, 2]], ids=["one node", "two nodes"])
def test_the_variables_of_a_rank_are_those_of_the_documentation(
    attempt: Attempt, tmp_path: Path, ranks: list[int]
) -> None:
    """Real ranks on one node and on two: variables and table are the same set."""
    parts = [attempt, *(Attempt(tmp_path / "other") for _ in ranks[1:])]
    port = free_port()
    for node_rank, part in enumerate(parts):
        part.folder.mkdir(exist_ok=True)
        gang = {
            "node_rank": node_rank,
            "node_count": len(ranks),
            "world_size": sum(ranks),
            "rendezvous_port": port,
            "interface": "lo" if len(ranks) > 1 else None,
        }
        part.script(DUMP, ranks=ranks[node_rank], **gang)
        # With PYTHONPATH it is not forked, and each launcher of two nodes would import torch.
        skipped = "PYTHONPATH" if len(ranks) == 2 else ""
        part.start(environ={name: SECRETS[name] for name in SECRETS if name != skipped})
    try:
        found = {
            rank: json.loads(part.lines(rank)[0])[0]
            for part in parts
            if part.outcome(seconds=120).reason is Reason.SUCCEEDED
            for rank in part.ranks()
        }
    finally:
        for part in parts[1:]:
            part.end()
    kept = [re.compile(each.pattern) for each in job_environment.KEPT]
    of_the_node = {name for name in os.environ if any(pattern.fullmatch(name) for pattern in kept)}
    documented = {each.name for each in job_environment.SET}
    for environ in found.values():
        # Python itself sets LC_CTYPE.
        assert set(environ) - of_the_node - {"LC_CTYPE"} == documented - of_the_node
    numbers = (
        "RANK ROLE_RANK LOCAL_RANK GROUP_RANK "
        "LOCAL_WORLD_SIZE WORLD_SIZE ROLE_WORLD_SIZE GROUP_WORLD_SIZE"
    )
    expected = ["0 0 0 0 1 3 3 2", "1 1 0 1 2 3 3 2", "2 2 1 1 2 3 3 2"]
    assert [" ".join(found[rank][name] for name in numbers.split()) for rank in sorted(found)] == (
        expected if len(ranks) == 2 else ["0 0 0 0 1 1 1 1"]
    )
    assert len({environ["MASTER_PORT"] for environ in found.values()}) == 1


@pytest.mark.parametrize("variable", job_environment.SET, ids=lambda each: each.name)
def test_the_env_of_a_job_replaces_only_documented_variables(
    variable: job_environment.Variable,
) -> None:
    try:
        assignment = assignment_of(env={variable.name: "mine"}, node_count=2, interface="eth1")
    except ValidationError:
        assert not variable.can_be_replaced
        return
    found = rank_environment(assignment, Path("/attempt"), cores=1)
    assert (found[variable.name] == "mine") == variable.can_be_replaced


def test_scrubbing_keeps_the_variables_that_programs_need() -> None:
    environ = {
        **SECRETS,
        "PATH": "/bin",
        "HOME": "/home/a",
        "LC_ALL": "C.UTF-8",
        "https_proxy": "p",
        "NCCL_DEBUG": "INFO",
    }
    scrub(environ)
    expected = {"PATH", "HOME", "LC_ALL", "https_proxy", "NCCL_DEBUG", "CUDA_VISIBLE_DEVICES"}
    assert set(environ) == expected
