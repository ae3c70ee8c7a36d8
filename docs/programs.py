"""The command's own description of its options, and the settings of each program.

Not here: the pages that are made of them (``docs/generate.py``).
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Any, Final

from pydantic_settings import BaseSettings

from lockstep.api.settings import ApiSettings
from lockstep.cli.app import COMMANDS, make_app
from lockstep.client.errors import ExitCode
from lockstep.scheduler.settings import SchedulerSettings
from lockstep.worker.settings import AgentSettings

PROGRAMS: Final[dict[str, type[BaseSettings]]] = {
    "api": ApiSettings,
    "scheduler": SchedulerSettings,
    "agent": AgentSettings,
}
COMMON: Final = {"Output": "output", "Server": "server"}
"""Groups of options that many commands have: described once, below these headings."""
COLUMNS_MAX: Final = 100
_CONTENTS: Final = re.compile(r"^#+ Table of Contents\n\n(?: *- .*\n)+\n", re.MULTILINE)
_CONTINUED: Final = re.compile(r"\n {4,}(?=\S)")
_BOTH: Final = re.compile(r"^(Also the .*)\.\n\nAlso the options of (.*)\.$", re.MULTILINE)
_GROUP: Final = re.compile(r"^\*\*(\w+)\*\*:\n\n(?:\* .*\n)+\n?", re.MULTILINE)
_MEANINGS: Final = {
    ExitCode.OK: "done; of `submit` and `wait`: the job succeeded",
    ExitCode.FAILED: "the job failed, or its spec (bad YAML too) or the request was refused",
    ExitCode.USAGE: "wrong use: an unknown option, a file that cannot be opened",
    ExitCode.NOT_FOUND: "no such job, node, checkpoint or file",
    ExitCode.NOT_ALLOWED: "the token is missing or unknown, or lacks the right",
    ExitCode.UNREACHABLE: "the server did not answer, also after retries",
    ExitCode.CANCELLED: "the job was cancelled",
    ExitCode.TIMED_OUT: "a wait reached its limit; the job continues",
    ExitCode.INTERRUPTED: "Ctrl-C",
}


@dataclass
class Setting:
    """One variable of the environment, and the programs that read it."""

    name: str
    programs: list[str]
    definition: dict[str, Any]
    """Of the JSON schema."""
    needed: bool
    meaning: str


def settings() -> list[Setting]:
    """Return every variable that a program reads, each once, in the order of the classes."""
    found: dict[str, Setting] = {}
    for program, model in PROGRAMS.items():
        schema = model.model_json_schema()
        for name, definition in schema["properties"].items():
            variable = f"LOCKSTEP_{name.upper()}"
            needed = name in schema.get("required", ())
            meaning = definition.get("description", "")
            setting = found.setdefault(variable, Setting(variable, [], definition, needed, meaning))
            setting.programs.append(program)
    silent = [setting.name for setting in found.values() if not setting.meaning]
    if silent:
        raise ValueError(f"expected a docstring in the class of each setting, not of {silent}")
    return list(found.values())


def commands() -> str:
    """Return the part of the page that describes every command."""
    lines = ["| code | meaning |", "| --- | --- |"]
    lines += [f"| {code.value} | {_MEANINGS[code]} |" for code in ExitCode]
    text = "\n".join(["## Exit codes", "", *lines, ""])
    common: dict[str, str] = {}
    for group in dict.fromkeys(command[3].name for command in COMMANDS):
        text += f"\n## {group}\n"
        for name in (command[0] for command in COMMANDS if command[3].name == group):
            text += f"\n{_command(name, common)}"
    text += "\n## Common options\n"
    for title in COMMON:
        options = "\n".join(map(_wrapped, common[title].splitlines()))
        text += f"\n### {title}\n\n{options}\n"
    return text.rstrip()


def _command(name: str, common: dict[str, str]) -> str:
    described = make_app(name)[name].generate_docs(
        output_format="markdown", heading_level=3, usage_name=f"lockstep {name}"
    )
    text = _CONTINUED.sub(" ", _CONTENTS.sub("", described).strip() + "\n")
    text = _GROUP.sub(lambda group: _once(group, common), text)
    text = _BOTH.sub(r"\1 and \2.", text)
    return "\n".join(map(_wrapped, text.strip().splitlines())) + "\n"


def _wrapped(line: str) -> str:
    indent = "  " if line.startswith("* ") else ""
    lines = textwrap.wrap(
        line,
        COLUMNS_MAX,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(lines)


def _once(group: re.Match[str], common: dict[str, str]) -> str:
    """Return a group of options, or a reference where it is one of the common groups."""
    title = group[1]
    if title not in COMMON:
        return group[0]
    options = group[0].split("\n\n", 1)[1].strip() + "\n"
    if common.setdefault(title, options) != options:
        return group[0]
    return f"Also the options of [{title}](#{COMMON[title]}).\n\n"
