"""Commands that are launchers themselves: refused if several copies would start."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.domain.errors import ErrorCode, LockstepError
from lockstep.domain.spec.reading import read_spec

TRAIN = ["train.py", "--lr", "3e-4"]


def document(
    command: list[str], *, nproc_per_node: int | None = None, **resources: Any
) -> dict[str, Any]:
    script = {"command": command, "nproc_per_node": nproc_per_node}
    return {
        "name": "job",
        "kind": "script",
        "script": script,
        "resources": {"gpus": 2, **resources},
    }


@pytest.mark.parametrize(
    ("command", "name", "instead"),
    [
        (["torchrun", "--nproc-per-node", "2", *TRAIN], "torchrun", "[train.py, --lr, 3e-4]"),
        (
            ["torchrun", "--nproc_per_node=2", "--standalone", *TRAIN],
            "torchrun",
            "[train.py, --lr, 3e-4]",
        ),
        (
            ["/opt/env/bin/torchrun", "-m", "package.train", "--lr", "1"],
            "torchrun",
            "[python, -m, package.train, --lr, 1]",
        ),
        (
            ["python", "-m", "torch.distributed.run", *TRAIN],
            "torch.distributed.run",
            "[train.py, --lr, 3e-4]",
        ),
        (
            ["python3.11", "-u", "-m", "torch.distributed.launch", *TRAIN],
            "torch.distributed.launch",
            "[train.py",
        ),
        (
            ["accelerate", "launch", "--num_processes", "2", *TRAIN],
            "accelerate",
            "[train.py, --lr, 3e-4]",
        ),
        (["deepspeed", "--num_gpus=2", *TRAIN], "deepspeed", "[train.py, --lr, 3e-4]"),
        (["mpirun", "-np", "2", "./program"], "mpirun", "[the script, its arguments]"),
        (["env", "A=1", "torchrun", *TRAIN], "torchrun", "[train.py, --lr, 3e-4]"),
        (["uv", "run", "torchrun", *TRAIN], "torchrun", "[train.py, --lr, 3e-4]"),
    ],
)
def test_a_launcher_in_each_rank_is_refused_with_an_alternative(
    command: list[str], name: str, instead: str
) -> None:
    with pytest.raises(LockstepError) as caught:
        read_spec(document(command))
    assert caught.value.code is ErrorCode.INVALID
    (field,) = caught.value.fields
    assert field.pointer == "/script/command"
    assert field.message.startswith(f"{name} would be started 2 times")
    assert f"write command: {instead}" in field.next_step
    assert "script.nproc_per_node: 1" in field.next_step


def test_over_several_nodes_it_is_refused_even_once_per_node() -> None:
    command = ["torchrun", "--nproc-per-node", "2", *TRAIN]
    with pytest.raises(LockstepError) as caught:
        read_spec(document(command, nproc_per_node=1, gpus=4, nodes=2))
    assert "torchrun would be started 2 times" in caught.value.message
    assert "nproc_per_node" not in str(caught.value.next_step)


@pytest.mark.parametrize(
    "spec",
    [
        document(["torchrun", "--nproc-per-node", "2", *TRAIN], nproc_per_node=1),
        document(["torchrun", *TRAIN], gpus=1),
        document(TRAIN),
        document(["python", "-m", "package.torchrun"]),
        document(["train.py", "--launcher", "torchrun"]),
        document(["sh", "-c", "exec python train.py"]),
        document(["env"]),
        document(["uv", "run"]),
    ],
)
def test_a_command_that_starts_at_most_one_launcher_is_accepted(spec: dict[str, Any]) -> None:
    read_spec(spec)
