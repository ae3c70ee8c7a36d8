"""Clones: the document of another job with some values changed.

The document is the one that was submitted for the other job. The new job therefore gets the current
defaults and checks. Three resolved values are kept: the job that the initial weights come from, the
job that it continues, since a name or ``last`` may refer to another job by now, and the commit of a
git ref.

Not here: HTTP (``api.routes.clones``), checks and storage, which all submits share
(``api.jobs.submitting``).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from lockstep.api.http.body import JsonBody, fingerprint
from lockstep.domain.errors import FieldError
from lockstep.domain.spec.changes import FieldNotFoundError, path_of, put
from lockstep.domain.spec.reading import invalid
from lockstep.storage.db.tables import JobRow

EXAMPLE: Final = 'send {"set": {"/train/steps": 100}}, or {} for the same job again'
_SETTLED: Final = (("train", "init_from"), ("code", "ref"), ("continues",))


def changes_of(document: object) -> dict[str, Any]:
    """Return the ``set`` object of a request: values by JSON pointer.

    Raises
    ------
    LockstepError
        If the document contains anything else.
    """
    if not isinstance(document, dict):
        raise invalid((FieldError("", "expected an object", document, EXAMPLE),))
    for name in document:
        if name != "set":
            raise invalid(
                (FieldError(f"/{_escaped(name)}", "unknown field; expected: set", None, EXAMPLE),)
            )
    changes = document.get("set", {})
    if not isinstance(changes, dict):
        raise invalid(
            (FieldError("/set", "expected an object of values by JSON pointer", changes, EXAMPLE),)
        )
    return changes


def cloned(source: JobRow, changes: Mapping[str, Any]) -> JsonBody:
    """Return the document of a clone.

    Raises
    ------
    LockstepError
        With every change that cannot be applied to the document.
    """
    # A document without a project would go to one of the sender.
    document = {"project": source.project, **copy.deepcopy(source.document)}
    for path in _SETTLED:
        settled: Any = source.spec
        for name in path:
            settled = (settled or {}).get(name)
        if settled is not None:
            put(document, list(path), settled)
    errors = []
    for pointer, value in changes.items():
        try:
            put(document, path_of(pointer), value)
        except FieldNotFoundError as error:
            errors.append(FieldError(pointer, str(error), value))
        except ValueError as error:
            errors.append(FieldError(f"/set/{_escaped(pointer)}", str(error), value))
    if errors:
        raise invalid(tuple(errors))
    return JsonBody(document, fingerprint(document))


def compared(reference: str, changes: Mapping[str, Any]) -> str:
    """Return what an idempotency key compares: the request, so clones of two jobs differ.

    The reference is taken as it was sent: ``last`` is another job when the request is repeated.
    """
    return fingerprint({"clone": reference, "set": changes})


def sentence(source: JobRow, changes: Mapping[str, Any]) -> str:
    """Return the text about the origin for the new job's history."""
    changed = ", ".join(pointer.lstrip("/").replace("/", ".") for pointer in changes)
    return f"cloned from {source.name} ({source.id})" + (
        f"; changed: {changed}" if changed else ", nothing changed"
    )


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")
