"""Tracebacks in the text of a rank's stderr: the exception that ended it, and those before it.

Python prints an exception that ends a program last. A traceback with other lines behind it was
logged by a program that went on. Lines that Python, torch and C++ print while a process ends do not
count as others, nor do those of a wrapper about its command.

Not here: exceptions that Python has written into a file (``engine.launcher.evidence``).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_RANK: Final = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)
"""Prefix of torch's own hook for uncaught exceptions."""
_HEADER: Final = re.compile(
    r"^(?:  \+ Exception Group )?Traceback \(most recent call last\):[ ]*\n", re.MULTILINE
)
_OF_GROUP: Final = re.compile(r"^  [|+] ", re.MULTILINE)
_EXCEPTION: Final = re.compile(r"[^\W\d][\w.<>]*(?::.*)?")
_CHAINED: Final = re.compile(
    r"\n\s*(?:During handling of the above exception, another exception occurred"
    r"|The above exception was the direct cause of the following exception):\s*$"
)
_IGNORED: Final = re.compile(
    r"^(?:Exception ignored (?:in|while|on)\b|Error in atexit\b).*\n"
    r"(?:Traceback \(most recent call last\):[ ]*\n(?:[ \t].*\n)*.*\n?)?",
    re.MULTILINE,
)
"""Exceptions that Python reports and ignores while it ends."""
_AT_THE_END: Final = re.compile(
    r"\s*$|\s"
    r"|\[[A-Z]\d{4} |[A-Z]\d{4} \d\d:\d\d:"  # torch's logs, from C++ and from Python
    r"|terminate called |Fatal Python error|(?:Current t|T)hread 0x|Extension modules:"
    r"|[\w.-]+:\d+:\d+ \[\d+\] NCCL "
    r"|\S+:\d+: \w*Warning: "
    r"|wandb: |[^|]*\d+%\|[^|]*\||.*\d+it \["  # uploads and progress bars that atexit closes
    r"|ERROR conda\.|make(?:\[\d+\])?: \*\*\* |error: Recipe "
)
"""Lines after an uncaught exception, while its process and its wrappers end."""


class Printed(NamedTuple):
    """The last traceback of a text."""

    exception: str
    """First line of type and message."""
    is_last: bool
    """False if the program went on and printed other lines."""
    after: str
    """These other lines."""


def last_printed(text: str) -> Printed | None:
    """Return the last traceback of ``text``; None without a whole one."""
    text = _IGNORED.sub("", _RANK.sub("", f"{text}\n"))
    headers = list(_HEADER.finditer(text))
    if not headers:
        return None
    said = _message(headers[-1], text[headers[-1].end() :])
    first, _, after = said.partition("\n")
    if _EXCEPTION.fullmatch(first) is None:
        return None
    others = [line for line in after.splitlines() if _AT_THE_END.match(line) is None]
    return Printed(first, not others, "\n".join(others))


def is_last(text: str, exception: str) -> bool:
    """Return whether ``text`` ends with ``exception``, which may have several lines."""
    _, found, after = _RANK.sub("", text).rpartition(exception.strip().splitlines()[-1])
    return bool(found) and all(map(_AT_THE_END.match, _IGNORED.sub("", after).splitlines()[1:]))


def chained(traceback: str) -> list[str]:
    """Return the exceptions that the last one of ``traceback`` followed from, the newest first."""
    text = _RANK.sub("", traceback)
    headers = list(_HEADER.finditer(text))
    found = []
    for header, following in zip(headers[-2::-1], headers[:0:-1], strict=False):
        block = text[header.end() : following.start()]
        mark = _CHAINED.search(block)
        if mark is None:
            break
        found.append(_message(header, block[: mark.start()]).strip())
    return found


def _message(header: re.Match[str], block: str) -> str:
    """Return what follows the frames of a traceback."""
    if header[0].startswith(" "):
        block = _OF_GROUP.sub("", block)
    lines = block.splitlines()
    frames = next((at for at, line in enumerate(lines) if line[:1].strip()), len(lines))
    return "\n".join(lines[frames:])
