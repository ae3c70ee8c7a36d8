"""Settings of jobs as rows: one for each leaf of a spec that a list can filter and sort by.

Not here: their use in lists (``storage.jobs.columns``).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import delete, insert
from sqlalchemy.orm import Session

from lockstep.storage.db.dialects import run, table_of, write
from lockstep.storage.db.listing_tables import KEY_CHARS_MAX, TEXT_CHARS_MAX, JobValueRow

VALUES_MAX: Final = 300
"""Settings of one job that have a row, the first by name: a spec may have 1,000 variables of the
environment."""
_ARGUMENTS: Final = "args"
"""Beginning of the paths of a script's arguments."""
_ELSEWHERE: Final = frozenset(
    "name project kind priority labels secrets code continues outputs resources.gpus "
    "train.init_from script.command".split()
)
"""Paths that are columns of the job, or name files and other jobs."""
_FLAG: Final = re.compile(r"--?([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_PAIR: Final = re.compile(r"([A-Za-z_][\w./-]*)=(.*)", re.DOTALL)
_WRITTEN: Final = insert(table_of(JobValueRow))


def add(session: Session, job_id: str, spec: Mapping[str, Any]) -> None:
    """Write the settings of a new job."""
    rows = [
        {"job_id": job_id, "key": key, "number": number, "text": text}
        for key, (number, text) in of_spec(spec).items()
    ]
    if rows:
        run(session, _WRITTEN, rows)


def remove(session: Session, job_id: str, spec: Mapping[str, Any]) -> None:
    """Delete the settings of a job."""
    named = JobValueRow.key.in_(list(of_spec(spec)))
    write(session, delete(JobValueRow).where(named, JobValueRow.job_id == job_id))


def of_spec(spec: Mapping[str, Any]) -> dict[str, tuple[float | None, str | None]]:
    """Return the settings of a stored spec: number and text by path.

    A list is one value. A script's arguments ``--lr 0.1``, ``--lr=0.1`` and ``lr=0.1`` are the
    setting ``args.lr``.
    """
    leaves = dict(_leaves(spec, ""))
    command = (spec.get("script") or {}).get("command")
    leaves.update(_arguments(command) if command else ())
    kept = sorted(key for key, value in leaves.items() if len(key) <= KEY_CHARS_MAX)
    return {key: _stored(leaves[key]) for key in kept[:VALUES_MAX]}


def _leaves(value: object, path: str) -> Iterator[tuple[str, object]]:
    if path in _ELSEWHERE or value is None:
        return
    if isinstance(value, Mapping):
        for name, each in value.items():
            yield from _leaves(each, f"{path}.{name}" if path else str(name))
    elif value != []:
        yield path, value


def _arguments(command: Sequence[str]) -> Iterator[tuple[str, object]]:
    rest = list(command[1:])
    for place, word in enumerate(rest):
        flag, pair = _FLAG.fullmatch(word), _PAIR.fullmatch(word)
        if flag is not None:
            after = rest[place + 1] if place + 1 < len(rest) else "--"
            is_alone = _FLAG.fullmatch(after) is not None or after == "--"
            value = flag[2] if flag[2] is not None else (True if is_alone else after)
            yield f"{_ARGUMENTS}.{flag[1]}", value
        elif pair is not None:
            yield f"{_ARGUMENTS}.{pair[1]}", pair[2]


def _stored(value: object) -> tuple[float | None, str | None]:
    if isinstance(value, bool):
        return None, "true" if value else "false"
    if isinstance(value, int | float):
        return _number(value), None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return _number(text), text.replace("\0", "")[:TEXT_CHARS_MAX]


def _number(value: str | float) -> float | None:
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
