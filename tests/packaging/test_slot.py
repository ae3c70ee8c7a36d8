"""Slots of docker/slot.py: containers that share a volume use separate folders and names.

A replacement takes those of its predecessor.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.packaging.dockerfile import ROOT

SHOW = (
    "import os;"
    "print(os.environ['LOCKSTEP_NODE_DIR'], os.environ.get('LOCKSTEP_NODE_NAME'), flush=True);"
    "input()"
)


@contextmanager
def container(volume: Path, name: str | None) -> Iterator[tuple[str, str]]:
    """Yield folder below the volume and name of the node while the container runs."""
    given = {} if name is None else {"LOCKSTEP_NODE_NAME": name}
    argv = [sys.executable, "-I", "-S", str(ROOT / "docker" / "slot.py")]
    process = subprocess.Popen(
        [*argv, sys.executable, "-c", SHOW],
        env={"LOCKSTEP_NODE_DIR": str(volume), "TMPDIR": str(volume.parent), **given},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        folder, node = process.stdout.readline().split()
        assert Path(folder).is_dir()
        yield str(Path(folder).relative_to(volume)), node
        process.kill()


def test_containers_of_one_service_take_separate_slots(tmp_path: Path) -> None:
    with container(tmp_path, "x-cpu") as one, container(tmp_path, "x-cpu") as two:
        assert [one, two] == [("x-cpu-1", "x-cpu"), ("x-cpu-2", "x-cpu-2")]
        with container(tmp_path, "x-gpu") as other:
            assert other == ("x-gpu-1", "x-gpu")


def test_a_replacement_takes_the_slot_of_a_container_that_was_killed(tmp_path: Path) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        first.enter_context(container(tmp_path, "x"))
        assert stack.enter_context(container(tmp_path, "x")) == ("x-2", "x-2")
        first.close()
        assert stack.enter_context(container(tmp_path, "x")) == ("x-1", "x")


def test_without_a_name_the_agent_takes_its_default(tmp_path: Path) -> None:
    with container(tmp_path, None) as found:
        assert found == ("node-1", "None")


def test_a_missing_volume_is_named_and_the_health_check_reads_the_slot(
    tmp_path: Path,
) -> None:
    environment = {"LOCKSTEP_NODE_DIR": str(tmp_path / "v"), "TMPDIR": str(tmp_path)}

    def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, str(ROOT / "docker" / script), *words]
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)

    refused = run("slot.py", "true")
    assert (refused.returncode, str(tmp_path / "v") in refused.stderr) == (1, True)
    (tmp_path / "v").mkdir()
    assert run("slot.py", sys.executable, "-c", "").returncode == 0
    assert "v/node-1/.health is not there" in run("health.py", "agent").stderr
    (tmp_path / "v/node-1/.health").write_text("60")
    assert run("health.py", "agent").returncode == 0
