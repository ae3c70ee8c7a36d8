"""The file that a job starts: a submit is refused if the file is certainly missing."""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.api.jobs import archives
from lockstep.api.jobs.entry_files import missing_entry
from lockstep.domain.spec.reading import read_spec
from tests.api.conftest import SCRIPT, TRAIN, Api, problem
from tests.harness.builders import code, digest, link, member, packed

FILES = ("train.py", "sub/tool.py", "run.sh", "pkg/__init__.py", "pkg/fit.py", "pkg/ext.cp311.so")
ARCHIVE = packed(
    *(member(name) for name in (*FILES, "data.bin")),
    link("conf", "sub"),
    link("again.py", "train.py"),
)


def put(api: Api, archive: bytes) -> str:
    address = f"/v1/uploads/{digest(archive)}"
    assert api.http.put(
        address, content=archive, headers={"Content-Type": "application/gzip"}
    ).is_success
    return digest(archive)


def script(command: list[str], sha256: str | None) -> dict[str, Any]:
    made = {**SCRIPT, "script": {"command": command}}
    return made if sha256 is None else {**made, "code": {"upload": sha256}}


@pytest.mark.parametrize(
    ("command", "index"),
    [
        ("other.py --lr 1", 0),
        ("./sub/train.py", 0),
        ("sub/run.sh", 0),
        ("python other.py", 1),
        ("python3.11 -u -O sub//other.py", 3),
        ("/usr/bin/python other.py", 1),
        ("env LR=1 python other.py", 3),
        ("uv run python other.py", 3),
        ("bash -eu other.sh", 2),
        ("sh sub/run.sh a", 1),
        ("torchrun --standalone --nproc-per-node 2 other.py conf.py", 4),
        ("torchrun --nproc-per-node=2 other.py", 2),
        ("python -m torch.distributed.run --nnodes 1 other.py", 5),
        ("-m pkg.missing", 1),
        ("python -m pkg.missing --x", 2),
    ],
)
def test_a_file_that_is_not_in_the_code_is_refused(
    unchanged_api: Api, command: str, index: int
) -> None:
    words = command.split()
    sha256 = put(unchanged_api, ARCHIVE)
    for address in ("/v1/jobs", "/v1/jobs/plan"):
        answer = unchanged_api.http.post(address, json=script(words, sha256))
        (found,) = problem(answer, 422, "invalid")["errors"]
        assert found["pointer"] == f"/script/command/{index}"
        assert found[
            "message"
        ] == f"the job's code has no {words[index]}, got {words[index]!r}" or (
            found["message"] == f"the job's code has no {words[index]}"
        )
        assert found["next_step"]


@pytest.mark.parametrize(
    "command",
    [
        "train.py",
        "./train.py",
        "sub/../other.py",
        "conf/anything.py",
        "again.py",
        "/srv/other.py",
        "other",
        "run.sh",  # a program in PATH
        "env other.py",
        "env -C /srv python other.py",
        "poetry run python other.py",
        "python -X dev other.py",
        "python -c import(other.py)",
        "python other",
        "bash -c other.sh",
        "bash -o pipefail other.sh",
        "torchrun --standalone other conf.py",
        "torchrun --no-python other.py",
        "torchrun -m pkg.missing other.py",
        "mpirun -wdir /srv python other.py",
        "-m other",
        "-m sub.missing",  # without __init__.py, Python would prefer an installed `sub`
        "-m pkg.fit",
        "python -m pkg.ext",
        "python -m installed.module",
        "python -m torch.distributed.run train.py",
    ],
)
def test_existing_and_uncertain_files_are_not_refused(command: str) -> None:
    names = [*FILES, "conf", "again.py"]
    assert not list(missing_entry(read_spec(script(command.split(), None)), names))


def test_without_code_no_relative_file_is_there(unchanged_api: Api) -> None:
    (found,) = problem(unchanged_api.submit(script(["train.py"], None)), 422, "invalid")["errors"]
    assert found["pointer"] == "/script/command/0"
    assert "the job has no code with train.py" in found["message"]
    assert "lockstep submit FILE --code DIR" in found["next_step"]
    assert unchanged_api.submit(script(["/srv/train.py"], None)).status_code == 201


def test_a_task_whose_file_is_not_in_the_code_is_refused(unchanged_api: Api) -> None:
    def submit(task: str) -> Any:
        train = {**TRAIN["train"], "task": task}
        sent = {**TRAIN, "train": train, "code": {"upload": put(unchanged_api, ARCHIVE)}}
        return unchanged_api.submit(sent)

    (found,) = problem(submit("tool.py:Task"), 422, "invalid")["errors"]
    assert found["pointer"] == "/train/task"
    assert "the job's code has no tool.py" in found["message"]
    assert found["next_step"] == "write sub/tool.py"
    assert submit("sub/tool.py:Task").status_code == 201


def test_code_with_unknown_files_is_not_checked(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "CODE_FILE_CHARS_MAX", 5)
    spec = script(["other.py"], put(api, code(["a.py", "b.py"])))
    assert api.submit(spec).status_code == 201
    assert api.submit({**spec, "code": {"path": "/srv"}}).status_code == 201
