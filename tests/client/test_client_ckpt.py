"""``lockstep ckpt``: listing, download and verification, and the effect of a damaged file."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.domain.life.manifest import Manifest, ManifestFile
from lockstep.domain.views import CheckpointDetail, CheckpointFile, CheckpointView, Page
from tests.client import examples
from tests.client.server import Answer, ReplayServer, problem
from tests.client.terminal import CommandLine

JOB = "/v1/jobs/tiny/checkpoints"
STATE = bytes(range(256)) * 9_000
FILES = {"state.safetensors": STATE, "model.safetensors": b"weights", "spec.json": b"{}"}


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def manifest(files: dict[str, bytes]) -> bytes:
    described = {
        name: ManifestFile(bytes=len(each), sha256=digest(each)) for name, each in files.items()
    }
    return Manifest(step=200, files=described).model_dump_json().encode()


def view(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "step": 200,
        "attempt": 2,
        "bytes": 2_304_100,
        "sha256": "ab" * 32,
        "final": True,
        "value": 0.51234,
        "best": True,
        "created_at": examples.T0,
        "location": "/store/jobs/x/2/step-00000200",
    }
    return values | changes


def listed(files: dict[str, bytes]) -> list[CheckpointFile]:
    return [
        CheckpointFile(name=name, bytes=len(each), sha256=digest(each))
        for name, each in files.items()
    ]


def serve(
    server: ReplayServer, files: dict[str, bytes] = FILES, which: str = "last"
) -> dict[str, bytes]:
    """Return a checkpoint that can be downloaded."""
    everything = {**files, "manifest.json": manifest(files)}
    server.on("GET", f"{JOB}/{which}", CheckpointDetail(**view(), files=listed(everything)))
    for name, content in everything.items():
        server.on(
            "GET", f"{JOB}/200/files/{name}", Answer(200, content, {"ETag": f'"{digest(content)}"'})
        )
    return everything


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_ls_shows_the_value_and_which_is_best(lockstep: CommandLine, server: ReplayServer) -> None:
    rows = [
        CheckpointView(**view()),
        CheckpointView(**view(step=150, value=None, best=False, final=False)),
    ]
    server.on("GET", JOB, Page[CheckpointView](items=rows))
    said = lockstep("ckpt", "ls", "tiny")
    heading, first, second = said.out.splitlines()
    assert heading.split() == ["STEP", "SIZE", "VALUE", "ATTEMPT", "AGE"]
    assert first.split()[:6] == ["200", "2.2", "MiB", "0.5123", "best,", "final"]
    assert second.split()[:5] == ["150", "2.2", "MiB", "-", "2"]
    assert lockstep("ckpt", "ls", "tiny", "-o", "name").out == "200\n150\n"
    assert [
        CheckpointView.model_validate(each)
        for each in json.loads(lockstep("ckpt", "ls", "tiny", "--json").out)
    ] == rows
    assert "/store/jobs/x/2/step-00000200" in lockstep("ckpt", "ls", "tiny", "-o", "wide").out


def test_a_job_without_checkpoints_has_no_data_and_a_hint(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on("GET", JOB, Page[CheckpointView](items=[]))
    said = lockstep("ckpt", "ls", "tiny")
    assert (said.code, said.out) == (0, "")
    assert "checkpoint.every_steps" in said.err


@pytest.mark.parametrize(
    ("words", "which"),
    [((), "last"), (("--last",), "last"), (("--best",), "best"), (("--step", "200"), "200")],
)
def test_get_brings_a_checkpoint_whole_into_a_folder_of_its_own(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path, words: tuple[str, ...], which: str
) -> None:
    everything = serve(server, which=which)
    said = lockstep("ckpt", "get", "tiny", *words, "-C", "down")
    assert (said.code, said.out) == (0, "down/step-00000200\n"), said.err
    assert contents(tmp_path / "down/step-00000200") == everything
    assert "state.safetensors, 2,304,000 bytes" in said.err
    assert server.requests("GET", f"{JOB}/200/files/state.safetensors")[0].query["attempt"] == ["2"]
    assert [path.name for path in (tmp_path / "down").iterdir()] == ["step-00000200"]
    assert lockstep("ckpt", "verify", "down/step-00000200").code == 0


def test_get_model_only_downloads_files_of_other_programs(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server)
    assert lockstep("ckpt", "get", "tiny", "--model-only").code == 0
    assert contents(tmp_path / "step-00000200") == {
        "model.safetensors": b"weights",
        "spec.json": b"{}",
    }
    serve(server, {"state.safetensors": STATE})
    said = lockstep("ckpt", "get", "tiny", "--model-only", "-C", "other")
    assert said.code == 2
    assert "has no model.safetensors: only the last checkpoint of a run has it" in said.err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("task", "more", "missing"),
    [
        ("hf_causal_lm", {}, True),
        ("hf_causal_lm", {"config.json": b"{}"}, False),
        ("causal_lm", {}, False),
    ],
)
def test_get_model_only_reports_a_model_that_from_pretrained_cannot_load(
    lockstep: CommandLine,
    server: ReplayServer,
    tmp_path: Path,
    task: str,
    more: dict[str, bytes],
    missing: bool,
) -> None:
    files = {
        "model.safetensors": b"weights",
        "spec.json": json.dumps({"task": task}).encode(),
        **more,
    }
    serve(server, {"state.safetensors": STATE, **files})
    answer = lockstep("ckpt", "get", "tiny", "--model-only")
    assert (answer.code, answer.out) == (0, "step-00000200\n")
    assert contents(tmp_path / "step-00000200") == files
    assert (
        "step-00000200 has no config.json, so from_pretrained cannot load it" in answer.err
    ) is missing


def test_get_does_not_overwrite_files(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server)
    (tmp_path / "step-00000200").mkdir()
    said = lockstep("ckpt", "get", "tiny")
    assert said.code == 2
    assert "step-00000200 is there already" in said.err


def test_a_file_that_arrives_damaged_leaves_nothing(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server)
    changed = b"x" + STATE[1:]
    server.on(
        "GET",
        f"{JOB}/200/files/state.safetensors",
        Answer(200, changed, {"ETag": f'"{digest(STATE)}"'}),
    )
    said = lockstep("ckpt", "get", "tiny")
    assert said.code == 1
    assert "state.safetensors of step 200 is damaged" in said.err
    assert list(tmp_path.glob("*step*")) == []


def test_a_download_resumes_after_a_broken_connection(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    everything = serve(server)
    tag = f'"{digest(STATE)}"'
    server.on(
        "GET",
        f"{JOB}/200/files/state.safetensors",
        Answer(200, STATE, {"ETag": tag}, cut=1_500_000),
        Answer(206, STATE[1_500_000:], {"ETag": tag}, cut=300_000),
        Answer(503),
        Answer(206, STATE[1_800_000:], {"ETag": tag}),
    )
    said = lockstep("ckpt", "get", "tiny")
    assert said.code == 0, said.err
    assert contents(tmp_path / "step-00000200") == everything
    asked = server.requests("GET", f"{JOB}/200/files/state.safetensors")
    assert [each.headers.get("range") for each in asked] == [
        None,
        "bytes=1500000-",
        "bytes=1800000-",
        "bytes=1800000-",
    ]
    assert asked[1].headers["if-range"] == tag


def test_a_file_that_was_replaced_meanwhile_is_not_glued_together(
    lockstep: CommandLine, server: ReplayServer, tmp_path: Path
) -> None:
    serve(server)
    server.on(
        "GET",
        f"{JOB}/200/files/state.safetensors",
        Answer(200, STATE, {"ETag": f'"{digest(STATE)}"'}, cut=1_500_000),
        Answer(200, b"another", {"ETag": '"another"'}),
    )
    said = lockstep("ckpt", "get", "tiny")
    assert said.code == 5
    assert "changed during the download" in said.err
    assert list(tmp_path.glob("*step*")) == []


def test_only_one_checkpoint_can_be_requested(lockstep: CommandLine, server: ReplayServer) -> None:
    for command in ("get", "verify"):
        said = lockstep("ckpt", command, "tiny", "--best", "--step", "3")
        assert said.code == 2
        assert "exclude each other" in said.err
    assert server.asked == []


def test_a_missing_checkpoint_prints_the_servers_message(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    gone = problem(
        404, "not_found", "job x has no checkpoint of step 7", next_step="it has those of steps 5"
    )
    server.on("GET", f"{JOB}/7", gone)
    said = lockstep("ckpt", "get", "tiny", "--step", "7")
    assert said.code == 3
    assert "it has those of steps 5" in said.err


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "step-00000200"
    folder.mkdir()
    for name, content in {**FILES, "manifest.json": manifest(FILES)}.items():
        (folder / name).write_bytes(content)
    return folder


def test_verify_prints_the_checked_files(lockstep: CommandLine, tmp_path: Path) -> None:
    said = lockstep("ckpt", "verify", str(folder_of(tmp_path)))
    assert (said.code, said.out) == (0, "step 200: 3 files, 2.2 MiB, unchanged\n")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "state.safetensors",
            STATE[:-1],
            "state.safetensors has 2,303,999 bytes; the manifest has 2,304,000",
        ),
        (
            "state.safetensors",
            b"x" + STATE[1:],
            "state.safetensors was changed after it was written",
        ),
        ("model.safetensors", None, "model.safetensors is missing"),
        (
            "manifest.json",
            None,
            "has no manifest.json: it is not a checkpoint, or was not completed",
        ),
        ("manifest.json", b"{}", "manifest.json cannot be read"),
        (
            "manifest.json",
            b'{"format": 1, "step": 1, "files": {"../x": {"bytes": 1, "sha256": "0"}}}',
            "cannot be read",
        ),
    ],
)
def test_verify_names_the_damaged_file(
    lockstep: CommandLine, tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    folder = folder_of(tmp_path)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    said = lockstep("ckpt", "verify", str(folder))
    assert said.code == 1
    assert words in said.err


def test_verify_reads_all_checkpoints_of_a_job_and_names_damaged_ones(
    lockstep: CommandLine, server: ReplayServer
) -> None:
    server.on(
        "GET",
        JOB,
        Page[CheckpointView](items=[CheckpointView(**view()), CheckpointView(**view(step=100))]),
    )
    everything = serve(server, which="200")
    server.on("GET", f"{JOB}/100", CheckpointDetail(**view(step=100), files=listed(everything)))
    for name, content in everything.items():
        damaged = content if name != "spec.json" else b"[]"
        server.on(
            "GET", f"{JOB}/100/files/{name}", Answer(200, damaged, {"ETag": f'"{digest(content)}"'})
        )
    said = lockstep("ckpt", "verify", "tiny")
    assert said.code == 1
    first, second = said.out.splitlines()
    assert first == "step 200: 3 files, 2.2 MiB, unchanged"
    assert second.startswith("step 100: spec.json of step 100 is damaged")
    assert lockstep("ckpt", "verify", "tiny", "--step", "200").code == 0


@pytest.mark.parametrize("asked", ["100", "100/files/state.safetensors"])
def test_a_checkpoint_that_was_pruned_while_others_were_read_is_no_damage(
    lockstep: CommandLine, server: ReplayServer, asked: str
) -> None:
    newest, older = CheckpointView(**view()), CheckpointView(**view(step=100))
    server.on(
        "GET",
        JOB,
        Page[CheckpointView](items=[newest, older]),
        Page[CheckpointView](items=[newest]),
    )
    everything = serve(server, which="200")
    server.on("GET", f"{JOB}/100", CheckpointDetail(**view(step=100), files=listed(everything)))
    server.on(
        "GET", f"{JOB}/{asked}", problem(404, "not_found", "job x has no checkpoint of step 100")
    )
    said = lockstep("ckpt", "verify", "tiny")
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines() == [
        "step 200: 3 files, 2.2 MiB, unchanged",
        "step 100: not checked, because it was pruned",
    ]


def test_an_unrelated_refusal_is_no_damage(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", JOB, Page[CheckpointView](items=[CheckpointView(**view())]))
    server.on("GET", f"{JOB}/200", problem(403, "forbidden", "this token may not"))
    said = lockstep("ckpt", "verify", "tiny")
    assert (said.code, said.out) == (4, "")
