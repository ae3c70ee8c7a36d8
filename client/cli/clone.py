"""``clone``: a job's spec submitted anew, with its code and with changes.

Not here: what follows an accepted job (``client.cli.submit``), and what a change may be (``domain.changes``).
"""

from __future__ import annotations

import copy
import uuid
from typing import Annotated, Any

from cyclopts import Parameter

from client.cli.common import Connection, Flag, JobName, Output
from client.cli.submit import Settings, accepted
from client.errors import ExitCode, RefusedError


def clone(
    job: JobName,
    /,
    *,
    settings: Settings = None,
    detach: Annotated[bool, Parameter(name=["--detach", "-d"], negative="", show_default=False)] = False,
    logs: Annotated[bool, Flag] = False,
    quiet: Annotated[bool, Parameter(name=["--quiet", "-q"], negative="", show_default=False)] = False,
    output: Output | None = None,
    connection: Connection | None = None,
) -> ExitCode:
    """Submit a job's spec again and follow the new job; its code archive is used again, too.

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
    from client.specfile import SpecFile, pointer_to, read_setting

    changes: dict[str, Any] = {}
    with (connection or Connection()).client() as client:
        source = client.job(job)
        # The server makes the clone; this copy only tells which --set a wrong value came from.
        spec = SpecFile(f"the spec of {source.name}", copy.deepcopy(source.spec), {})
        for setting in settings or []:
            path, value = read_setting(setting)
            spec.put(path, value, f"--set {setting}")
            changes[pointer_to(path)] = value
        try:
            made = client.clone(source.id, changes, idempotency_key=uuid.uuid4().hex)
        except RefusedError as refused:
            raise (spec.refused(refused.problem.errors) if refused.problem.errors else refused) from None
        form = (output or Output()).format
        return accepted(client, made, form, detach=detach, logs=logs, quiet=quiet)
