"""Rules for code archives: paths out of the folder are refused by name, bombs at an early point."""

from __future__ import annotations

import gzip
import io
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from lockstep.api.jobs import archives
from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, LockstepError
from tests.effort import effort_of
from tests.harness.builders import code, link, member, packed

SAFELY = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # since Python 3.11.4


def examine(tmp_path: Path, archive: bytes) -> archives.StoredArchive:
    path = tmp_path / "code.tar.gz"
    path.write_bytes(archive)
    return archives.examine(path, "0" * 64)


def refusal(tmp_path: Path, archive: bytes) -> LockstepError:
    with pytest.raises(LockstepError) as caught:
        examine(tmp_path, archive)
    return caught.value


def test_an_honest_folder_with_links_inside_it_is_accepted(tmp_path: Path) -> None:
    archive = packed(
        member("./", b"", type=tarfile.DIRTYPE),
        member("./train.py", b"x" * 10),
        member("pkg/__init__.py", b"y" * 5),
        member("pkg/deep/data.txt", b""),
        link("pkg/deep/up.py", "../../train.py"),
        link("latest", "pkg"),
    )
    found = examine(tmp_path, archive)
    assert found.files == 3
    assert found.unpacked_bytes == 15
    assert found.bytes == len(archive)
    assert found.top_level == ["latest", "pkg", "train.py"]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (member("../evil.py"), "'../evil.py' is outside the archive's folder"),
        (member("a/../../evil.py"), "'a/../../evil.py' is outside the archive's folder"),
        (member("/etc/cron.d/evil"), "'/etc/cron.d/evil' has an absolute path"),
        (link("evil", "/etc"), "'evil' links to '/etc', outside the archive's folder"),
        (link("a/evil", "../../x"), "'a/evil' links to '../../x', outside the archive's folder"),
        (link("evil", "a/../../x"), "'evil' links to 'a/../../x', outside the archive's folder"),
        (link("evil", "/etc/passwd", tarfile.LNKTYPE), "'evil' is a hard link"),
        (link("copy.py", "train.py", tarfile.LNKTYPE), "'copy.py' is a hard link"),
        (member("./train.py"), "'./train.py' is twice in the archive"),
        (member("train.py/x"), "'train.py/x' makes the same name a folder and something else"),
        (member("disk", b"", type=tarfile.BLKTYPE), "'disk' is a device"),
        (member("tty", b"", type=tarfile.CHRTYPE), "'tty' is a device"),
        (member("pipe", b"", type=tarfile.FIFOTYPE), "'pipe' is a named pipe"),
        (member("x/" * 1_500), "has a path of more than 2,048 bytes"),
        (member("a/" + "x" * 256), "has a name of more than 255 bytes"),
        (member("ü" * 128), "has a name of more than 255 bytes"),
        (link("l", ""), "'l' links to a path that is empty"),
        (link("l", "a/" * 2_100 + "x"), "'l' links to a path that is empty, has a NUL"),
    ],
    ids=lambda value: value[0].name[:20] if isinstance(value, tuple) else "",
)
def test_a_member_that_could_do_harm_is_refused_by_name(
    tmp_path: Path, bad: tuple[tarfile.TarInfo, bytes], says: str
) -> None:
    error = refusal(tmp_path, packed(member("train.py"), bad))
    assert error.code is ErrorCode.INVALID
    assert says in error.message
    assert error.message.endswith("nothing was kept")
    assert "lockstep submit --code DIR" in error.next_step


def test_a_path_through_a_link_is_refused_despite_a_harmless_text(tmp_path: Path) -> None:
    through = packed(member("d/f.py"), link("d/up", ".."), link("out", "d/up/../x"))
    assert "whose path contains another link" in refusal(tmp_path, through).message


def test_a_member_behind_a_link_is_refused_in_any_order(tmp_path: Path) -> None:
    for members in (
        (link("d", "elsewhere"), member("d/f.py"), member("elsewhere/g.py")),
        (member("elsewhere/g.py"), member("d/f.py"), link("d", "elsewhere")),
    ):
        assert refusal(tmp_path, packed(*members)).message.startswith(
            ("member 'd/f.py' has a symbolic link", "member 'd' makes the same name")
        )


def test_an_accepted_archive_unpacks_only_inside_its_folder(tmp_path: Path) -> None:
    archive = packed(member("a/train.py"), link("a/here", "."), link("b", "a/train.py"))
    examine(tmp_path, archive)
    into = tmp_path / "into"
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        tar.extractall(into, **SAFELY)
    assert all(path.resolve().is_relative_to(into) for path in into.rglob("*"))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not an archive at all",
        gzip.compress(b"no tar inside" * 100),
        code()[:60],
        code()[:-1],
        gzip.compress(b"x" * 512 + b"\0" * 512),
    ],
    ids=["empty", "text", "no tar", "cut short", "one byte short", "bad header"],
)
def test_bytes_that_are_no_archive_are_refused(tmp_path: Path, body: bytes) -> None:
    error = refusal(tmp_path, body)
    assert error.code is ErrorCode.INVALID
    assert "gzip-compressed tar archive" in error.message


def test_an_archive_without_files_is_refused(tmp_path: Path) -> None:
    empty = packed(member("only/folders", b"", type=tarfile.DIRTYPE))
    assert "contains no file" in refusal(tmp_path, empty).message


def test_a_bomb_is_refused_by_its_headers_before_decompression(
    tmp_path: Path,
) -> None:
    liar = tarfile.TarInfo("zeros")
    liar.size = 40 * limits.UPLOAD_UNPACKED_BYTES_MAX
    archive = gzip.compress(liar.tobuf() + b"\0" * 10_000)
    refused = effort_of(lambda: refusal(tmp_path, archive))
    error = refused.result
    assert error.code is ErrorCode.TOO_LARGE
    assert "unpacks to more than 1024 MiB" in error.message
    assert refused.lines < 20_000
    assert refused.peak_bytes < 10_000_000


def test_a_huge_header_is_refused_without_taking_it_into_memory(tmp_path: Path) -> None:
    header = tarfile.TarInfo("long")
    header.type = tarfile.XHDTYPE
    header.size = 64 * 1024 * 1024
    archive = gzip.compress(header.tobuf() + b"\0" * header.size, compresslevel=1)
    tracemalloc.start()
    try:
        error = refusal(tmp_path, archive)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert "header of the archive is larger than 1 MiB" in error.message
    assert peak < 8 * 1024 * 1024


def test_a_chain_of_headers_and_a_negative_size_end(tmp_path: Path) -> None:
    chained = tarfile.TarInfo("x")
    chained.type = tarfile.GNUTYPE_LONGNAME
    refusal(tmp_path, gzip.compress(chained.tobuf() * 5_000))
    negative = tarfile.TarInfo("x")
    negative.size = -1024
    refusal(tmp_path, gzip.compress(negative.tobuf(tarfile.GNU_FORMAT) * 3))


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "UPLOAD_FILES_MAX", 3)
    error = refusal(tmp_path, code(["a.py", "b.py", "c.py", "d.py"]))
    assert error.code is ErrorCode.TOO_LARGE
    assert "more than 3 members" in error.message
