"""``clone``: submit a job's spec again, with its code and with changes.

Not here: following the accepted job (``cli.jobs.submit``), and the rules of changes
(``domain.spec.changes``).
"""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Sequence
from typing import Any, Final

from lockstep.cli.common import Connection, Detach, Flag, JobName, Output, Quiet, Settings, say
from lockstep.cli.jobs.submit import accepted
from lockstep.client.errors import ExitCode, RefusedError
from lockstep.domain.spec.changes import value_at

VALUE_CHARS_MAX: Final = 200
"""Of a value that is shown."""
_NONE: Final = object()


def clone(
    job: JobName,
    /,
    *,
    settings: Settings = None,
    detach: Detach = False,
    logs: Flag = False,
    quiet: Quiet = False,
    output: Output = Output(),
    connection: Connection = Connection(),
) -> ExitCode:
    """Submit a job's spec again and follow the new job; its code archive is used again, too.

    Each change is shown with the old and the new value.

    Parameters
    ----------
    settings
        Change one value of the spec: --set train.steps=100. May be given several times.
    detach
        Return as soon as the job is accepted; its id is on stdout.
    logs
        Show the ranks' lines too while following.
    quiet
        Write nothing but the job's id.
    """
    from lockstep.client.files.specfile import SpecFile, pointer_to, read_setting

    changes: dict[str, Any] = {}
    with connection.client() as client:
        source = client.job(job)
        # The server makes the clone; this copy maps a wrong value to its --set.
        spec = SpecFile(f"the spec of {source.name}", copy.deepcopy(source.spec), {})
        for setting in settings or []:
            path, value = read_setting(setting)
            before = copy.deepcopy(spec.document)
            spec.put(path, value, f"--set {setting}")
            changes[pointer_to(path)] = value
            if not quiet:
                say(change_in_words(before, spec.document, path))
        try:
            made = client.clone(source.id, changes, idempotency_key=uuid.uuid4().hex)
        except RefusedError as refused:
            raise (
                spec.refused(refused.problem.errors) if refused.problem.errors else refused
            ) from None
        form = output.format
        return accepted(client, made, form, detach=detach, logs=logs, quiet=quiet)


def change_in_words(before: object, after: object, path: Sequence[str]) -> str:
    """One line about a changed value; of an entry of a list with the list as it is now."""
    name = ".".join(path)
    old, new = value_at(before, path, _NONE), value_at(after, path, _NONE)
    if old == new and type(old) is type(new):
        return f"set {name}: {_shown(new)}, unchanged"
    words = f"set {name}: {'not set' if old is _NONE else _shown(old)} → {_shown(new)}"
    around = value_at(after, path[:-1], _NONE)
    return (
        f"{words}; {'.'.join(path[:-1])} is now {_shown(around)}"
        if isinstance(around, list)
        else words
    )


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[: VALUE_CHARS_MAX - 3]}..."
