"""Names that commands would misread, and modules as commands of a script."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lockstep.domain.archive_tree import ArchiveTree, UnsafeMemberError
from lockstep.domain.errors import LockstepError
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.spec.stored import read_stored_spec
from lockstep.engine.launcher.environment import command_of
from tests.harness.attempts import assignment_of
from tests.harness.builders import link


def _spec(name: str = "job", *command: str, gpus: int = 1) -> dict[str, Any]:
    script = {"command": list(command or ("train.py",))}
    return {"name": name, "kind": "script", "script": script, "resources": {"gpus": gpus}}


@pytest.mark.parametrize("name", ["last", "plan", "deadbeef", "0190", "019ac5d2-1f7a", "c0-ffee"])
def test_an_ambiguous_name_is_refused_and_a_stored_one_stays_readable(name: str) -> None:
    with pytest.raises(LockstepError, match=f"{name!r} cannot name a job") as refused:
        read_spec(_spec(name))
    assert refused.value.fields[0].pointer == "/name"
    assert read_stored_spec(_spec(name)).name == name


@pytest.mark.parametrize("name", ["abc", "lasting", "gpt-2", "plan-b", "deadbeef-x"])
def test_other_names_are_accepted(name: str) -> None:
    assert read_spec(_spec(name)).name == name


def test_a_module_is_run_as_after_torchrun() -> None:
    for option in ("-m", "--module"):
        spec = read_spec(_spec("job", option, "pkg.train", "--lr", "1"))
        command = command_of(assignment_of(spec=spec.model_dump()), Path("/nonexistent"))
        assert command.argv[1:] == ["-m", "pkg.train", "--lr", "1"]
    for wrong in (("-m",), ("-m", "a/b.py")):
        with pytest.raises(LockstepError, match="expected a module after -m"):
            read_spec(_spec("job", *wrong))
    with pytest.raises(LockstepError, match=r"torch\.distributed\.run would be started 2 times"):
        read_spec(_spec("job", "-m", "torch.distributed.run", "t.py", gpus=2))


def test_a_loop_of_links_in_an_archive_is_refused_by_name() -> None:
    tree = ArchiveTree()
    for name, target in ("ab", "ba"):
        tree.add(link(name, target)[0])
    with pytest.raises(UnsafeMemberError, match="member 'a' links to 'b', in a loop of links"):
        tree.check()
