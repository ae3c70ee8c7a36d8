"""``lockstep ckpt`` with the real api: messages about checkpoints that are damaged in the store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from tests.api.test_checkpoints import CONTENT, publish
from tests.client.terminal import CommandLine
from tests.harness.processes import Program
from tests.storage import scenes

SIZE = len(CONTENT) + 2
TORN = f"its state.safetensors has 1000000 bytes; the manifest has {SIZE}"
GONE = "state.safetensors of the checkpoint of step 20 is no longer in the store"
NO_MANIFEST = (
    "the checkpoint of step 30 is damaged in the store: its manifest.json differs from the "
    "published one"
)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Return the api with the job "first".

    Its checkpoint of step 10 is intact, and each other one is damaged in its own way.
    """
    home = tmp_path_factory.mktemp("home")
    running = Program(home)
    try:
        running.start()
        database = Database(f"sqlite:///{home}/jobs.db", f"sqlite:///{home}/series.db")
        try:
            claim = scenes.run(database, name="first")
            for step in (10, 20, 30, 40):
                publish(database, BlobStore(str(home / "store")), claim, home / "made", step)
        finally:
            database.close()
        stored = home / f"store/jobs/{claim.job_id}/1"
        (stored / "step-00000040/state.safetensors").write_bytes(CONTENT[:1_000_000])
        (stored / "step-00000030/manifest.json").write_bytes(b'{"format": 1, "st')
        (stored / "step-00000020/state.safetensors").unlink()
        yield running
    finally:
        running.end()


@pytest.fixture
def over_api(
    lockstep: CommandLine, program: Program, monkeypatch: pytest.MonkeyPatch
) -> CommandLine:
    """Return the command, pointed at the api."""
    monkeypatch.setenv("LOCKSTEP_URL", program.url)
    monkeypatch.setenv("LOCKSTEP_TOKEN", program.token)
    return lockstep


def test_verify_names_the_damage_of_each_checkpoint_and_checks_all(
    over_api: CommandLine,
) -> None:
    said = over_api("ckpt", "verify", "first")
    assert said.code == 1, said.err
    newest, no_manifest, gone, whole = said.out.splitlines()
    assert newest == f"step 40: the checkpoint of step 40 is damaged in the store: {TORN}"
    assert no_manifest.startswith(f"step 30: {NO_MANIFEST}")
    assert gone == f"step 20: {GONE}"
    assert whole == "step 10: 2 files, 2.2 MiB, unchanged"
    assert TORN in said.err
    assert "use another checkpoint" in said.err
    assert "does not answer" not in said.err


@pytest.mark.parametrize(
    ("words", "damage"),
    [
        (("--last",), TORN),
        (("--step", "40"), TORN),
        (("--step", "30"), NO_MANIFEST),
        (("--step", "20"), GONE),
    ],
)
def test_verify_of_one_damaged_checkpoint_ends_with_1(
    over_api: CommandLine, words: tuple[str, ...], damage: str
) -> None:
    said = over_api("ckpt", "verify", "first", *words)
    assert said.code == 1, said.err
    assert damage in said.out


def test_verify_of_an_unknown_checkpoint_prints_the_servers_message(
    over_api: CommandLine,
) -> None:
    for words, refusal in (
        (("--step", "7"), "no checkpoint of step 7"),
        (("--best",), "no best checkpoint"),
    ):
        said = over_api("ckpt", "verify", "first", *words)
        assert (said.code, said.out) == (3, "")
        assert refusal in said.err


@pytest.mark.parametrize(("step", "damage"), [(40, TORN), (30, NO_MANIFEST), (20, GONE)])
def test_get_names_the_damage_and_leaves_no_file(
    over_api: CommandLine, tmp_path: Path, step: int, damage: str
) -> None:
    said = over_api("ckpt", "get", "first", "--step", str(step), "-C", "down")
    assert (said.code, said.out) == (3, "")
    assert damage in said.err
    assert "does not answer" not in said.err
    assert list(tmp_path.glob("down/*")) == []
