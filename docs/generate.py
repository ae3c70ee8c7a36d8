"""Write the generated pages: state machine, reasons, job spec, engine contract, faults.

    python docs/generate.py            # write them
    python docs/generate.py --check    # exit 1 and name stale pages

No fact of the code is repeated here: states come from ``domain.life.lifecycle``, reasons from
``domain.life.outcomes``, fields from the JSON schema of ``domain.spec.job``, missing features from
``domain.spec.feature_gate``, items and tests of the contract from ``tests.engine.contract``, faults
and their measurements from ``tests.harness.drills``.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # from a checkout that is not installed

from lockstep.domain import job_environment  # noqa: E402  # after the path above
from lockstep.domain.life import lifecycle, outcomes, quarantine, retrying  # noqa: E402  # after the path above
from tests.engine import contract  # noqa: E402
from tests.harness import drills  # noqa: E402

import programs  # noqa: E402  # beside this file  # isort: skip
import spec_page  # noqa: E402  # likewise  # isort: skip
from spec_page import cell, type_of, value_of  # noqa: E402  # isort: skip

NOTICE = (
    "<!-- Written by docs/generate.py. Change the code it is drawn from, then run `make docs`. "
    "-->\n"
)


def main() -> int:
    """Write the pages, or check that they are fresh."""
    parser = argparse.ArgumentParser(description="Write the pages that are drawn from code.")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 if a page is stale"
    )
    check = parser.parse_args().check
    stale = []
    for name, text in pages().items():
        path = HERE / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if not check:
            path.write_text(text, encoding="utf-8")
    for name in stale:
        sys.stderr.write(
            f"docs/{name} is stale: run make docs\n" if check else f"wrote docs/{name}\n"
        )
    return 1 if check and stale else 0


def pages() -> dict[str, str]:
    """Text of each page, by file name."""
    return {
        "state_machine.md": state_machine(),
        "reasons.md": reasons(),
        "spec.md": spec_page.page(NOTICE),
        "environment.md": environment(),
        "cli.md": filled("cli.md", commands=programs.commands()),
        "settings.md": filled("settings.md", settings=variables()),
        "contract.md": f"{NOTICE}\n{contract.page()}",
        "reliability.md": filled(
            "reliability.md", states="\n".join(diagram()), faults=drills.table()
        ),
    }


def filled(name: str, **parts: str) -> str:
    """Return a handwritten page with generated text between its marks."""
    text = (HERE / name).read_text(encoding="utf-8")
    for part, content in parts.items():
        begin, end = f"<!-- begin: {part} -->\n", f"<!-- end: {part} -->\n"
        if text.count(begin) != 1 or text.count(end) != 1:
            raise ValueError(
                f"docs/{name}: expected {begin.strip()} and {end.strip()} once each, on lines of "
                f"their own"
            )
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{content}\n{end}{rest.partition(end)[2]}"
    return text


def environment() -> str:
    """The environment variables of a rank."""
    groups = (
        ("Of Lockstep", job_environment.OF_LOCKSTEP),
        ("As torchrun sets them", job_environment.OF_TORCHRUN),
        ("Of devices and threads", job_environment.OF_THE_MACHINE),
    )
    lines = [
        NOTICE,
        "# Environment variables of a job",
        "",
        "Every rank of a job, of kind `train` or `script`, gets these variables. They are set for "
        "each attempt. The job's own",
        "`env` is added; where the last column says `yes` it may replace the value.",
    ]
    for title, variables in groups:
        lines += [
            "",
            f"## {title}",
            "",
            "| variable | value | set for | `env` may replace it |",
            "| --- | --- | --- | --- |",
        ]
        lines += [
            (
                f"| `{each.name}` | {each.value} | {each.only or 'all'} | "
                f"{'yes' if each.can_be_replaced else 'no'} |"
            )
            for each in variables
        ]
    lines += [
        "",
        "## Kept from the node",
        "",
        "Of the node's own environment these variables are passed on, and no other: the agent's "
        "holds the addresses and",
        "credentials of the service. `env` may replace them.",
        "",
        *(f"* {each.names}" for each in job_environment.KEPT),
        "",
        "The working folder is the job's code; a script has its own folder first on the import "
        "path, as under `python`.",
    ]
    return "\n".join(lines) + "\n"


def variables() -> str:
    """Rows of the variables that the programs of a service read."""
    titles = ("variable", "read by", "value", "default", "meaning")
    lines = [f"| {' | '.join(titles)} |", "| --- | --- | --- | --- | --- |"]
    for setting in programs.settings():
        kind = type_of(setting.definition, {}).removesuffix(" or null")
        value = setting.definition.get("default")
        default = "" if value in (None, "", []) else f"`{value_of(value)}`"
        if setting.needed:
            default = "*needed*"
        readers, meaning = ", ".join(setting.programs), cell(setting.meaning)
        lines.append(f"| `{setting.name}` | {readers} | {kind} | {default} | {meaning} |")
    return "\n".join(lines)


def state_machine() -> str:
    """The life of a job as a diagram and two tables."""
    lines = [
        NOTICE,
        "# The life of a job",
        "",
        "Every state and every legal step. Each step is one guarded `UPDATE`: of two writers that "
        "race for a job,",
        "exactly one wins. Asking a job to stop changes no state: it is an intent, and the state "
        "follows when it has happened.",
        "",
        *diagram(),
        "",
        "| transition | from | to | because |",
        "| --- | --- | --- | --- |",
    ]
    for name, transition in lifecycle.TRANSITIONS.items():
        lines.append(
            f"| `{name}` | {', '.join(_in_order(transition.sources))} | {transition.target} "
            f"| {transition.cause} |"
        )
    for title, enum in (
        ("A job's states", lifecycle.JobState),
        ("An attempt's states", lifecycle.AttemptState),
        ("The states of one node's part of an attempt", lifecycle.AssignmentState),
        ("Intents", lifecycle.Intent),
    ):
        texts = _member_docs(enum)
        lines += ["", f"## {title}", "", "| value | meaning |", "| --- | --- |"]
        for member in enum:
            meaning = texts.get(member.name, "")
            if enum is lifecycle.JobState and member in lifecycle.TERMINAL:
                meaning = meaning or "The end: nothing leads out of it."
            lines.append(f"| `{member.value}` | {cell(meaning)} |")
    return "\n".join(lines) + "\n"


def diagram() -> list[str]:
    """Every state and every legal transition, as a drawing."""
    lines = ["```mermaid", "stateDiagram-v2", "    [*] --> queued: submitted"]
    for name, transition in lifecycle.TRANSITIONS.items():
        lines += [
            f"    {source} --> {transition.target}: {name}"
            for source in _in_order(transition.sources)
        ]
    return [*lines, *(f"    {state} --> [*]" for state in _in_order(lifecycle.TERMINAL)), "```"]


def reasons() -> str:
    """Return the page of reasons and their consequences."""
    texts = _member_docs(outcomes.Reason)
    lines = [
        NOTICE,
        "# Reasons for the end of an attempt",
        "",
        "A job's outcome carries one of these reasons. *Retry* says whether the same may pass; "
        "*counted* whether the attempt",
        "counts against `retry.max`; *node* whether the node may be at fault. A job that is not "
        "tried again ends in its *final",
        "state*.",
        "",
        "| reason | meaning | retry | counted | node | final state | advice |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for reason, rule in outcomes.RULES.items():
        cells = (
            f"`{reason.value}`",
            cell(texts.get(reason.name, "")),
            rule.retry.value,
            "yes" if rule.charged else "no",
            "yes" if rule.blames_node else "no",
            rule.state,
            cell(rule.advice),
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "## Retry classes", "", "| class | meaning |", "| --- | --- |"]
    classes = _member_docs(outcomes.RetryClass)
    lines += [
        f"| `{member.value}` | {cell(classes[member.name])} |" for member in outcomes.RetryClass
    ]
    lines += ["", "## When a job is tried again", "", *_rules(retrying), ""]
    lines += [
        "## When a node is quarantined",
        "",
        "A node that failed two different jobs for its own reasons, with no success in between, "
        "gets no more jobs until",
        "an operator runs `lockstep nodes resume NAME`. A failure is its own if all of this holds:",
        "",
        *_rules(quarantine),
    ]
    return "\n".join(lines) + "\n"


def _rules(module: ModuleType) -> list[str]:
    """The numbered rules of a module's docstring, with the values of the limits that they name."""
    text = inspect.getdoc(module) or ""
    rules = text[text.index("\n1. ") + 1 : text.index("\n\nNot here:")].replace("``", "`")
    limits = re.sub(
        r"`([A-Z_]+_(?:MAX|SECONDS))`",
        lambda found: f"{found[0]} ({getattr(module, found[1]):g})",
        rules,
    )
    return limits.split("\n")


def _in_order(states: frozenset[lifecycle.JobState]) -> list[lifecycle.JobState]:
    return [state for state in lifecycle.JobState if state in states]


def _member_docs(enum: type[Enum]) -> dict[str, str]:
    """The text under each member of an enum: Python keeps it in the source only."""
    body = ast.parse(inspect.getsource(enum)).body[0]
    assert isinstance(body, ast.ClassDef)
    found: dict[str, str] = {}
    for member, text in zip(body.body, body.body[1:], strict=False):
        if (
            isinstance(member, ast.Assign)
            and isinstance(member.targets[0], ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
        ):
            found[member.targets[0].id] = inspect.cleandoc(str(text.value.value))
    return found


if __name__ == "__main__":
    sys.exit(main())
