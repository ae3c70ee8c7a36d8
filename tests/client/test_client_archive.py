"""Archives of code: equal bytes on every machine, and only files that belong to the code."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lockstep.api.jobs.archives import examine
from lockstep.cli.jobs.submit import tell_left_out
from lockstep.client import archive
from lockstep.client.archive import pack
from lockstep.client.errors import UsageError
from lockstep.domain import limits
from lockstep.worker.launch.code import unpack

SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.11.4


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    (folder / "sub").mkdir(parents=True)
    (folder / "train.py").write_text("print('hi')\n")
    (folder / "sub" / "model.py").write_text("x = 1\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    return folder


def names(folder: Path, target: Path) -> list[str]:
    pack(folder, target)
    with tarfile.open(target) as tar:
        return tar.getnames()


def test_equal_files_give_equal_bytes_at_any_time_mode_or_path(code: Path, tmp_path: Path) -> None:
    other = tmp_path / "elsewhere" / "copy"
    shutil.copytree(code, other)
    os.utime(other / "train.py", (1, 1))
    (other / "train.py").chmod(0o600)
    one, two = pack(code, tmp_path / "1.tar.gz"), pack(other, tmp_path / "2.tar.gz")
    assert one.path.read_bytes() == two.path.read_bytes()
    assert one.sha256 == two.sha256
    assert (one.files, one.size_bytes) == (3, one.path.stat().st_size)


def test_a_changed_byte_changes_the_digest(code: Path, tmp_path: Path) -> None:
    before = pack(code, tmp_path / "1.tar.gz")
    (code / "train.py").write_text("print('ho')\n")
    assert pack(code, tmp_path / "2.tar.gz").sha256 != before.sha256


def test_files_arrive_with_their_content_and_the_executable_bit(code: Path, tmp_path: Path) -> None:
    pack(code, tmp_path / "a.tar.gz")
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        tar.extractall(tmp_path / "out", **SAFELY)
    assert (tmp_path / "out" / "sub" / "model.py").read_text() == "x = 1\n"
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o100
    assert not (tmp_path / "out" / "train.py").stat().st_mode & 0o100


def test_version_control_caches_and_environments_stay_behind(code: Path, tmp_path: Path) -> None:
    for folder in (".git", "__pycache__", ".venv", "sub/__pycache__"):
        (code / folder).mkdir()
        (code / folder / "file").write_text("x")
    (code / "old.pyc").write_text("x")
    assert names(code, tmp_path / "a.tar.gz") == ["run.sh", "sub/model.py", "train.py"]


@pytest.mark.parametrize(
    ("patterns", "kept"),
    [
        ("data\n", ["a.log", "keep.log", "sub/b.log", "train.py"]),
        ("*.log\n!keep.log\n", ["data/x.bin", "keep.log", "sub/data/y.bin", "train.py"]),
        ("/data/\n", ["a.log", "keep.log", "sub/b.log", "sub/data/y.bin", "train.py"]),
        (
            "sub/*.log\n# a comment\n\n",
            ["a.log", "data/x.bin", "keep.log", "sub/data/y.bin", "train.py"],
        ),
        ("sub/**\n", ["a.log", "data/x.bin", "keep.log", "train.py"]),
        ("**/data/*.bin\n", ["a.log", "keep.log", "sub/b.log", "train.py"]),
        ("?.log\n", ["data/x.bin", "keep.log", "sub/data/y.bin", "train.py"]),
        (
            "train.py/\n",
            ["a.log", "data/x.bin", "keep.log", "sub/b.log", "sub/data/y.bin", "train.py"],
        ),
    ],
)
def test_ignored_patterns_stay_behind(tmp_path: Path, patterns: str, kept: list[str]) -> None:
    folder = tmp_path / "code"
    for name in ("train.py", "a.log", "keep.log", "data/x.bin", "sub/data/y.bin", "sub/b.log"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (tmp_path / "code" / ".lockstepignore").write_text(patterns + ".lockstepignore\n")
    assert names(folder, tmp_path / "a.tar.gz") == kept


NAMES = [
    *"Data/x data/x a/data/x #x !x a.b a]b a-b a/b/c.log a/c.log c.log a/x/y/c.log build/a".split(),
    *r"a/build/a z1 z2 \d * doc/a.txt doc/b/a.txt A B".split(),
    "x y",
    "x ",
]
LINES = [
    *r"[Dd]ata/ \#x \!x *.log **/c.log a/**/c.log a/** /a/* a/*/ build /build/ z[0-1] z[!1]".split(),
    *r"z[^1] [[:upper:]] [a- a[]]b a[+--]b a\ \* \\d doc/*.txt doc/**/*.txt #c !a.b !data/".split(),
    *"* !*/ ** a**g [z-a] [!a]* / // !".split(),
    *("x\\ y", "x\\ ", "x   ", "a\tb", "*.log\r"),
]


@given(st.lists(st.sampled_from(LINES), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_patterns_have_gits_meaning(tree: Path, patterns: list[str]) -> None:
    (tree / ".gitignore").write_text("\n".join([*patterns, ""]))
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--others", "--exclude-per-directory=.gitignore"],
        cwd=tree, check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    found = archive._find(tree)
    assert sorted(name for name, _ in found.files) == sorted(listed.split("\0")[:-1])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    subprocess.run(["git", "init", "-q", folder], check=True)
    for name in NAMES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_a_name_that_is_not_utf_8_is_refused_and_can_be_ignored(code: Path, tmp_path: Path) -> None:
    (code / os.fsdecode(b"caf\xe9.png")).touch()
    with pytest.raises(UsageError, match=r"the name b'caf\\xe9.png' is not UTF-8"):
        pack(code, tmp_path / "a.tar.gz")
    (code / ".lockstepignore").write_bytes(b"caf\xe9.png\n")
    assert "train.py" in names(code, tmp_path / "a.tar.gz")


def test_empty_folders_arrive(code: Path, tmp_path: Path) -> None:
    for name in ("out/plots", "ignored", "sub/__pycache__"):
        (code / name).mkdir(parents=True)
    (code / ".lockstepignore").write_text("ignored/\n")
    packed = pack(code, tmp_path / "a.tar.gz")
    examine(packed.path, packed.sha256)
    unpack(packed.path, tmp_path / "out")
    folders = {
        path.relative_to(tmp_path / "out").as_posix() for path in (tmp_path / "out").rglob("*/")
    }
    assert folders == {"out", "out/plots", "sub"}


def test_pointers_of_git_lfs_are_named(code: Path, tmp_path: Path) -> None:
    (code / "w.bin").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    )
    packed = pack(code, tmp_path / "a.tar.gz")
    assert packed.pointers == ("w.bin",)
    told: list[str] = []
    tell_left_out(packed, told.append, verbose=False)
    assert "w.bin; run `git lfs pull`" in told[0]


def test_gitignore_counts_where_there_is_no_lockstepignore(code: Path, tmp_path: Path) -> None:
    (code / ".gitignore").write_text("sub/\n")
    assert names(code, tmp_path / "a.tar.gz") == [".gitignore", "run.sh", "train.py"]
    (code / ".lockstepignore").write_text("run.sh\n")
    assert "sub/model.py" in names(code, tmp_path / "a.tar.gz")


def test_a_link_inside_the_folder_arrives_as_its_file(code: Path, tmp_path: Path) -> None:
    (code / "alias.py").symlink_to("train.py")
    pack(code, tmp_path / "a.tar.gz")
    with tarfile.open(tmp_path / "a.tar.gz") as tar:
        assert tar.getmember("alias.py").isreg()


def test_a_linked_folder_inside_the_folder_arrives_as_a_link(code: Path, tmp_path: Path) -> None:
    """Packed by the client, checked as by the api, unpacked as by the agent."""
    (code / "sub" / "deep").mkdir()
    (code / "sub" / "deep" / "x.py").write_text("x = 2\n")
    (code / "latest").symlink_to("sub")
    (code / "chain").symlink_to("latest/deep")
    (code / "sub" / "absolute").symlink_to(code / "sub" / "deep")
    (code / "sub" / "up").symlink_to("..")
    packed = pack(code, tmp_path / "a.tar.gz")
    assert packed.left_out == ()
    examine(packed.path, packed.sha256)
    unpack(packed.path, tmp_path / "out")
    assert (tmp_path / "out/latest").is_symlink()
    for name in ("latest/deep/x.py", "chain/x.py", "sub/absolute/x.py", "sub/up/sub/deep/x.py"):
        assert (tmp_path / "out" / name).read_text() == "x = 2\n"
    shutil.copytree(code, tmp_path / "again", symlinks=True)
    (tmp_path / "again/sub/absolute").unlink()
    (tmp_path / "again/sub/absolute").symlink_to("deep")
    assert pack(tmp_path / "again", tmp_path / "b.tar.gz").sha256 == packed.sha256


def test_all_that_is_left_out_is_named_with_its_rule(code: Path, tmp_path: Path) -> None:
    for name in (
        ".git/HEAD",
        "__pycache__/a.pyc",
        "data/x.bin",
        "sub/data/y.bin",
        "a.yaml",
        "old.pyc",
        "keep.yaml",
    ):
        (code / name).parent.mkdir(exist_ok=True, parents=True)
        (code / name).write_text("x")
    (code / ".gitignore").write_text("# data\ndata/\n*.yaml\n!keep.yaml\n")
    (code / "weights").symlink_to("data")
    (code / "gone").symlink_to("nowhere")
    os.mkfifo(code / "pipe")
    packed = pack(code, tmp_path / "a.tar.gz")
    assert {each.path: each.rule for each in packed.left_out} == {
        ".git/": "built-in rule",
        "__pycache__/": "built-in rule",
        "old.pyc": "built-in rule",
        "data/": ".gitignore line 2 (data/)",
        "sub/data/": ".gitignore line 2 (data/)",
        "a.yaml": ".gitignore line 3 (*.yaml)",
        "weights": "a link to an excluded file",
        "gone": "a broken link",
        "pipe": "neither a file nor a folder",
    }
    with tarfile.open(packed.path) as tar:
        assert tar.getnames() == [".gitignore", "keep.yaml", "run.sh", "sub/model.py", "train.py"]


def test_a_link_out_of_the_folder_is_refused_by_name(code: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    (code / "sub" / "leak").symlink_to(tmp_path / "secret")
    with pytest.raises(UsageError, match=r"sub/leak is a link to .*secret, outside the folder"):
        pack(code, tmp_path / "a.tar.gz")


def test_too_much_code_is_refused_with_the_biggest_files(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (code / "weights.bin").write_bytes(b"\0" * 300_000)
    monkeypatch.setattr(limits, "UPLOAD_UNPACKED_BYTES_MAX", 200_000)
    with pytest.raises(UsageError, match=r"the biggest files: weights\.bin \(0\.3 MiB\)") as caught:
        pack(code, tmp_path / "a.tar.gz")
    assert ".lockstepignore" in caught.value.next_step


def test_too_many_files_are_refused_with_their_number(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UPLOAD_FILES_MAX", 2)
    with pytest.raises(UsageError, match="3 files; at most 2"):
        pack(code, tmp_path / "a.tar.gz")


def test_a_file_that_shrinks_during_the_read_leaves_the_archive_valid(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shrink_then_add(tar: tarfile.TarFile, name: str, path: Path) -> None:
        real = path.stat()
        path.write_text("")
        monkeypatch.setattr(Path, "stat", lambda self, **_: real)
        add(tar, name, path)

    add = archive._add
    monkeypatch.setattr(archive, "_add", shrink_then_add)
    with pytest.raises(UsageError, match="changed while it was read"):
        pack(code, tmp_path / "a.tar.gz")


@pytest.mark.parametrize(
    ("name", "why"),
    [("missing", "does not exist"), ("file", "is a file"), ("empty", "no files to send")],
)
def test_a_path_that_is_no_folder_is_refused(tmp_path: Path, name: str, why: str) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=why):
        pack(tmp_path / name, tmp_path / "a.tar.gz")
