"""Input of users that no program can use is refused by name, never a defect of lockstep."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.cli.common import moment
from lockstep.cli.text.output import one_line_each
from lockstep.client.archive import _find
from lockstep.client.errors import UsageError
from lockstep.client.files.specfile import read

SPEC = "name: caf\xe9\nkind: script\n"


def _run(*words: str | bytes, stdin: bytes = b"", **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "lockstep", *words],
        input=stdin,
        capture_output=True,
        env={**os.environ, "LOCKSTEP_URL": "http://127.0.0.1:9", **env},
        check=False,
    )


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (SPEC.encode("latin-1"), ":1: is not UTF-8 text: byte 9 is 0xe9"),
        (SPEC.encode("utf-16"), ": is UTF-16 text; a job spec is UTF-8"),
    ],
)
def test_a_spec_in_another_encoding_is_refused_by_its_byte(
    tmp_path: Path, data: bytes, told: str
) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(data)
    with pytest.raises(UsageError, match=told) as refused:
        read(str(file), [], io.StringIO())
    assert "iconv" in refused.value.next_step
    done = _run("plan", "-", stdin=data, PYTHONIOENCODING="utf-8")
    assert (done.returncode, b"stdin" + told.encode() in done.stderr) == (2, True), done.stderr


@pytest.mark.parametrize("data", [b"name: a\0b\n", b"n: " + b"9" * 5_000, b"n: 0x" + b"f" * 5_000])
def test_odd_values_of_a_spec_are_no_defect(data: bytes) -> None:
    done = _run("plan", "-", stdin=data)
    assert done.returncode in (1, 2)
    assert b"stdin" in done.stderr
    assert b"defect" not in done.stderr


def test_a_byte_order_mark_is_accepted() -> None:
    stdin = io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbfname: a\n"))
    assert read("-", [], stdin).document == {"name": "a"}


def test_arguments_that_are_not_utf8_are_refused_by_name() -> None:
    done = _run("show", b"caf\xe9")
    assert (done.returncode, b"argument 2 is not UTF-8 text" in done.stderr) == (2, True)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_the_terminal_cannot_show_or_take_is_no_defect(unbuffered: str) -> None:
    code = (
        "import sys\nfrom lockstep.cli import app\napp.make_app = lambda called: lambda *a, **k: "
        "print('caf\\xe9')\nsys.exit(app.run(['ps']))"
    )
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=env, check=False)
    assert (done.returncode, done.stdout) == (0, b"caf\\xe9\n")
    for end, code_expected in ((">&-", 0), (">/dev/full", 1)):
        done = subprocess.run(
            ["bash", "-c", f'"$0" -c "$1" {end}', sys.executable, code],
            capture_output=True,
            env=env,
            check=False,
        )
        assert (done.returncode, b"defect" in done.stderr) == (code_expected, False), done.stderr
        assert b"Exception ignored" not in done.stderr


def test_a_reader_that_leaves_the_help_is_no_failure() -> None:
    ended = subprocess.run(
        ["bash", "-c", '"$0" -m lockstep --help | true; exit ${PIPESTATUS[0]}', sys.executable],
        capture_output=True,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_a_loop_of_links_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UsageError, match=r"a is a link in a loop of links \(b\)"):
        _find(tmp_path)


def test_a_time_without_a_zone_is_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert moment("--since", "2026-11-25T01:30:00") == "2026-11-25T01:30:00+09:00"
        assert moment("--since", "2026-11-25T01:30:00Z") == "2026-11-25T10:30:00+09:00"
        assert moment("--since", "1769947200.5") == "1769947200.5"
        with pytest.raises(UsageError, match="--since yesterday: expected a time, such as"):
            moment("--since", "yesterday")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_line_of_json_has_no_other_end_of_line() -> None:
    text = "a\u2028b\u2029c\x85d"
    line = one_line_each(json.dumps({"text": text}, ensure_ascii=False))
    assert line.splitlines() == [line]
    assert json.loads(line) == {"text": text}


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("submit --detatch job.yaml", "unknown option: --detatch"),
        ("plan --jsn=1 job.yaml", "unknown option: --jsn"),
        ("submit -x", "unknown option: -x"),
        ("submit job.yaml more.yaml", "unexpected argument: more.yaml"),
        ("ps gpt", "unexpected argument: gpt"),
    ],
)
def test_a_word_that_no_command_has_is_named(words: str, told: str) -> None:
    ended = _run(*words.split())
    assert ended.returncode == 2
    assert told in ended.stderr.decode()


@pytest.mark.parametrize("reference", ["", ".", "..", "a/b", "../nodes"])
def test_a_word_that_is_no_part_of_an_address_names_no_job(reference: str) -> None:
    ended = _run("show", reference)
    assert ended.returncode == 3
    assert f"there is no job {reference!r}" in ended.stderr.decode()
    assert "lockstep ps -a" in ended.stderr.decode()
