"""``lockstep files`` with the real api: list, download, print and delete."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.domain.life.outcomes import Reason
from lockstep.storage.db.database import Database
from lockstep.storage.objects.blobs import BlobStore
from tests.client import examples
from tests.client.server import ReplayServer
from tests.client.terminal import CommandLine, Terminal
from tests.harness.processes import Program
from tests.storage import kept, scenes

MODEL = bytes(range(256)) * 5_000
FILES = {
    "out/model.pt": MODEL,
    "train.log": b"one\ntwo\n",
    "old/train.log": b"three\n",
    "odd\x1b[2J\nname": b"\x1b]0;title\x07caf\xc3\xa9\ttab\n",
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Return the api with the job "live", which runs, and the job "ended", both with ``FILES``."""
    home = tmp_path_factory.mktemp("home")
    running = Program(home)
    try:
        running.start()
        database = Database(f"sqlite:///{home}/jobs.db", f"sqlite:///{home}/series.db")
        try:
            for name in ("ended", "live"):
                claim = scenes.run(database, name=name)
                kept.store(database, BlobStore(str(home / "store")), claim, FILES)
                if name == "ended":
                    scenes.end(database, claim, Reason.SUCCEEDED)
                    scenes.release(database, claim)
            scenes.submit(database, name="empty")
        finally:
            database.close()
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


def test_ls_lists_files_with_a_summary_and_escapes_their_names(over_api: CommandLine) -> None:
    said = over_api("files", "ls", "live")
    heading, odd, old, model, log = said.out.splitlines()
    assert heading.split() == ["PATH", "SIZE", "AGE", "ATTEMPT"]
    assert [old.split()[0], log.split()[0]] == ["old/train.log", "train.log"]
    assert model.split()[:3] == ["out/model.pt", "1.2", "MiB"]
    assert odd.startswith("odd\\x1b[2J\\nname ")
    assert said.err.startswith("4 files, 1.2 MiB, as of ")
    assert said.err.endswith(" ago\n")
    assert over_api("files", "ls", "ended").err == "4 files, 1.2 MiB\n"
    assert over_api("files", "ls", "ended", "*.log", "!old/", "-o", "name").out == "train.log\n"
    found = json.loads(over_api("files", "ls", "ended", "--json").out)
    assert [file["path"] for file in found] == sorted(FILES)
    assert found[2]["sha256"] in over_api("files", "ls", "ended", "-o", "wide").out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("ls", "empty"), 0, "empty has no files yet; what it writes below its working folder is"),
        (("get", "empty"), 0, "empty has no files yet; what it writes below"),
        (("ls", "live", "*.txt"), 3, "no file of live matches *.txt\n          lockstep files ls "),
        (("get", "live", "no\x1b", "b"), 3, "no file of live matches no\\x1b b\n"),
        (("rm", "ended", "b", "-y"), 3, "no file of ended matches b\n"),
        (("rm", "ended", "-y"), 2, "files rm: no file is given\n"),
        (("cat", "ended"), 2, "files cat: no file is given\n"),
        (("cat", "ended", "*.log"), 2, "2 files of ended match *.log\n          name one of them:"),
        (("rm", "ended", "b"), 2, "stdin is not a terminal, so the deletion cannot be confirmed"),
        (("rm", "live", "*.pt", "-y"), 1, "is running, and its node stores its files\n"),
        (("ls", "ended", "#"), 1, "match: '#' selects nothing\n          such as out/ or *.pt"),
        (("ls", "ended", *"a" * 21), 2, "21 patterns are given, at most 20 can be\n"),
        (("rm", "ended", "", "-y"), 2, "an empty pattern selects nothing\n          quote"),
        (("ls", "nothing"), 3, "there is no job 'nothing'"),
    ],
)
def test_a_refusal_names_its_cause_and_the_next_step(
    over_api: CommandLine, words: tuple[str, ...], code: int, says: str
) -> None:
    said = over_api("files", *words)
    assert (said.code, said.out) == (code, "")
    assert says in said.err


def test_get_downloads_into_a_folder_named_after_the_job_and_continues(
    over_api: CommandLine, tmp_path: Path
) -> None:
    said = over_api("files", "get", "ended", "*.log")
    assert (said.code, said.out) == (0, "ended/old/train.log\nended/train.log\n"), said.err
    assert said.err == "2 files downloaded to ended\n"
    said = over_api("files", "get", "live", "-o", "ended")
    assert said.out.splitlines() == ["ended/odd\\x1b[2J\\nname", "ended/out/model.pt"]
    assert said.err == "2 files downloaded to ended; 2 files already there\n"
    found = {
        str(path.relative_to(tmp_path / "ended")): path.read_bytes()
        for path in (tmp_path / "ended").rglob("*")
        if path.is_file()
    }
    assert found == FILES


def test_cat_prints_the_bytes_of_one_file(over_api: CommandLine, program: Program) -> None:
    # A name is a pattern, too, which also matches in folders.
    assert over_api("files", "cat", "ended", "train.log").out == "one\ntwo\n"
    environment = ["--url", program.url, "--token", program.token]
    for path, seen in (
        ("odd*", "\\x1b]0;title\\x07café"),
        ("out/", "lockstep: out/model.pt is binary, and stdout is a terminal"),
    ):
        terminal = Terminal("files", "cat", "ended", path, *environment)
        try:
            terminal.read_until(seen)
        finally:
            terminal.close()
        assert "\x1b]0" not in terminal.seen
        assert "\0" not in terminal.seen


def test_rm_asks_and_deletes_what_matches(over_api: CommandLine, program: Program) -> None:
    arguments = ("files", "rm", "ended", "old/", "odd*", "--url", program.url)
    terminal = Terminal(*arguments, "--token", program.token)
    try:
        terminal.read_until("2 files of ended (")
        assert "odd\\x1b[2J\\nname, old/train.log" in terminal.seen
        terminal.type("n\n")
        terminal.read_until("nothing was deleted")
    finally:
        terminal.close()
    said = over_api("files", "rm", "ended", "old/", "odd*", "--yes")
    assert (said.code, said.out) == (0, "2 files deleted, 26 B\n"), said.err
    assert over_api("files", "ls", "ended", "-o", "name").out == "out/model.pt\ntrain.log\n"


def test_show_mentions_the_files(lockstep: CommandLine, server: ReplayServer) -> None:
    server.on("GET", f"/v1/jobs/{examples.ID}/files", examples.files(1200))
    server.on("GET", "/v1/jobs/tiny", examples.succeeded())
    server.on("GET", f"/v1/jobs/{examples.ID}/events", examples.events())
    server.on("GET", f"/v1/jobs/{examples.ID}/checkpoints", examples.checkpoints())
    said = lockstep("show", "tiny")
    assert "1,200 (1.2 GiB), lockstep files ls 456789ab\n" in said.out, said.err
