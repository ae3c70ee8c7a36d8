"""The page of the command has every command, every option and every exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App

from lockstep.cli.app import COMMANDS, EPILOGUE, make_app
from lockstep.client.errors import ExitCode

PAGE = (Path(__file__).parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
COMMON = PAGE.partition("## Common options")[2]


def commands(app: App, words: tuple[str, ...]) -> Iterator[tuple[str, App]]:
    """Yield a command and its subcommands, with their words."""
    yield " ".join(words), app
    for name in app:
        if not name.startswith("-"):
            yield from commands(app[name], (*words, name))


ALL = [found for name, *_ in COMMANDS for found in commands(make_app(name)[name], (name,))]


def section(command: str) -> str:
    found = re.search(rf"^#+ {command}\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"docs/cli.md has no section {command!r}"
    return found[1]


@pytest.mark.parametrize(("command", "app"), ALL, ids=[command for command, _ in ALL])
def test_a_command_is_described_with_all_its_options(command: str, app: App) -> None:
    text = section(command)
    assert f"lockstep {command}" in text
    if app.default_command is None:
        return
    for argument in app.assemble_argument_collection():
        for name in argument.names:
            if argument.show and name.startswith("-"):
                assert f"{name}" in text + COMMON, name


def test_the_page_has_no_other_commands() -> None:
    titles = re.findall(r"^####? (.+)$", PAGE.partition("## Common options")[0], re.MULTILINE)
    assert sorted(titles) == sorted(command for command, _ in ALL)


def test_every_exit_code_is_in_the_table_and_in_the_help() -> None:
    table = PAGE.partition("## Exit codes")[2].partition("## Jobs")[0]
    listed = map(int, re.findall(r"^\| (\d+) \|", table, re.MULTILINE))
    assert list(listed) == [code.value for code in ExitCode]
    for code in ExitCode:
        assert re.search(rf"\b{code.value} ", EPILOGUE)
