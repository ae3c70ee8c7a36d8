"""``config`` and ``completion``."""

from __future__ import annotations

import io
import json
import stat
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.cli.service.config import with_setting
from lockstep.client.config import user_config_file
from lockstep.client.errors import UsageError
from lockstep.client.local.home import Home, RunFile
from tests.client.terminal import CommandLine

printable = st.text(min_size=1).filter(str.isprintable)


def test_a_setting_is_kept_used_and_taken_out_again(
    lockstep: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LOCKSTEP_URL")
    file = Path(lockstep("config", "path").out.strip())
    assert lockstep("config", "get", "url").code == 1
    assert lockstep("config", "set", "url", "http://there:1").code == 0
    assert lockstep("config", "get", "url").out == "http://there:1\n"
    assert lockstep("config", "list", "-o", "name").out == "http://there:1\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert lockstep("config", "unset", "url").code == 0
    assert lockstep("config", "list").code == 5
    assert "sets no url" in lockstep("config", "unset", "url").err


def test_a_token_is_read_from_stdin_and_never_listed(
    lockstep: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("lockstep_secret\n"))
    assert lockstep("config", "set", "token", "-").code == 0
    said = lockstep("config", "list")
    assert "lockstep_secret" not in said.out + said.err
    assert lockstep("config", "get", "token").out == "lockstep_secret\n"
    assert user_config_file().name == "config.toml"


def test_list_prints_the_sources_of_address_and_token(
    lockstep: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rows = [line.split() for line in lockstep("config", "list").out.splitlines()]
    assert [rows[1][0], rows[1][2]] == ["url", "LOCKSTEP_URL"]
    assert rows[2] == ["token", "-", "-"]
    monkeypatch.delenv("LOCKSTEP_URL")
    home = Home(tmp_path / "home")
    home.create()
    home.token_file.write_text("t")
    home.write_run_file(
        RunFile(url="http://here:1", pid=1, started=0.0, token_file=str(home.token_file))
    )
    found = json.loads(lockstep("config", "list", "--json").out)
    assert found == {
        "url": "http://here:1",
        "url_from": str(home.run_file),
        "token_from": str(home.run_file),
    }


@pytest.mark.parametrize(
    "words",
    [
        ["set", "url", "there:1"],
        ["set", "url", ""],
        ["set", "token", "a\nb"],
        ["set", "colour", "red"],
        ["get", "x"],
    ],
)
def test_a_setting_that_cannot_be_is_refused(lockstep: CommandLine, words: list[str]) -> None:
    assert lockstep("config", *words).code == 2
    assert not user_config_file().exists()


@given(printable, printable)
def test_a_changed_setting_reads_back_and_the_rest_stays(first: str, second: str) -> None:
    text = with_setting("# mine\ntoken = 't' # why\n", "url", first)
    assert tomllib.loads(text) == {"token": "t", "url": first}
    changed = with_setting(text, "url", second)
    assert tomllib.loads(changed) == {"token": "t", "url": second}
    assert changed.startswith("# mine\ntoken = 't' # why\n")
    assert with_setting(changed, "url", None) == "# mine\ntoken = 't' # why\n"


def test_a_file_that_cannot_be_changed_line_by_line_is_left_alone() -> None:
    for text in ('url = """\nurl = 1\n"""\n', "[table]\nx = 1\n", "not toml"):
        with pytest.raises(UsageError, match="cannot be changed"):
            with_setting(text, "url", "http://x")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_has_every_command(lockstep: CommandLine, shell: str) -> None:
    from lockstep.cli.app import COMMANDS

    said = lockstep("completion", shell)
    assert said.code == 0
    assert all(name in said.out for name, *_ in COMMANDS)
    if shell == "bash":
        code = (
            f"{said.out}\nCOMP_WORDS=(lockstep wat); COMP_CWORD=1; _lockstep; echo "
            f"${{COMPREPLY[@]}}"
        )
        done = subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["watch"]
