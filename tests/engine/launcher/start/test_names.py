"""Modules of a job's code may have the names of Lockstep's folders, and cannot replace
``lockstep``.
"""

from __future__ import annotations

from typing import Any

import pytest

from lockstep.domain.life import attempt as files
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.plan import plan_of
from tests.harness.attempts import Attempt

NAMES = ("engine.py", "client.py", "domain.py", "api/__init__.py", "storage/__init__.py")
IMPORTS = (
    "import api, client, domain, engine, storage\nassert all(m.OWN for m in (api, client, domain, "
    "engine, storage))\n"
)
TASK = f"""
{IMPORTS}
from lockstep.engine.task.image_classification import ImageClassification

class Own(ImageClassification):
    pass
"""
BY_EXEC = {"PYTHONHASHSEED": "0"}
"""Variable that Python reads only at its start, so the rank is started by exec."""


def job(attempt: Attempt, **section: Any) -> Attempt:
    """Write the modules and the job's assignment."""
    code = attempt.folder / files.CODE
    for name in NAMES:
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("OWN = True\n")
    (code / "lockstep.py").write_text("raise SystemExit('the wrong lockstep')\n")
    (code / "task.py").write_text(TASK)
    (code / "train.py").write_text(f"{IMPORTS}print('imported')\n")
    kind = "script" if "script" in section else "train"
    spec = read_spec({"name": "names", "kind": kind, "code": {"upload": "0" * 64}, **section})
    return attempt.assign(spec.model_dump(), ranks=1, plan=plan_of(spec))


@pytest.mark.parametrize(
    ("task", "env"),
    [("task.py:Own", {}), ("image_classification", BY_EXEC)],
    ids=["forked", "by exec"],
)
def test_a_train_job_runs_with_modules_of_these_names(
    attempt: Attempt, task: str, env: dict[str, str]
) -> None:
    train = {"task": task, "batch": {"size": 8}, "steps": 1}
    outcome = job(attempt, train=train, env=env).start().outcome()
    assert outcome.reason is Reason.SUCCEEDED, (outcome, attempt.lines(rank=0))


def test_a_script_imports_its_own_modules_of_these_names(attempt: Attempt) -> None:
    outcome = job(attempt, script={"command": ["train.py"]}).start().outcome()
    assert outcome.reason is Reason.SUCCEEDED, (outcome, attempt.lines(rank=0))
    assert attempt.lines(rank=0) == ["imported"]
