"""The blocks of docs/scripts.md, as two attempts under real launchers."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ruamel.yaml import YAML

from lockstep.domain.life import attempt as contract
from lockstep.domain.life.outcomes import Reason
from lockstep.domain.spec.reading import read_spec
from tests.harness.processes import until
from tests.harness.ranks import Attempt

PAGE = (Path(__file__).parents[3] / "docs" / "scripts.md").read_text(encoding="utf-8")
(JOB,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
SCRIPT = "\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))


def _steps(attempt: Attempt) -> list[int]:
    text = (attempt.folder / contract.METRICS).read_text()
    return [json.loads(line)["step"] for line in text.splitlines()]


def test_the_script_saves_when_asked_and_the_next_attempt_continues(
    attempt: Attempt, tmp_path: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    document = YAML(typ="safe").load(JOB)
    document["env"] = {"CHECKPOINTS": str(shared)}
    spec = read_spec({**document, "code": {"path": "/code"}})
    assert (spec.stop_grace_seconds, spec.retry.on_exit) == (60, [75])
    attempt.script(SCRIPT, env=document["env"]).start()
    metrics = attempt.folder / contract.METRICS
    until(lambda: metrics.exists() and len(_steps(attempt)) >= 3, what="three steps")
    attempt.stop("paused", grace_seconds=60)
    assert attempt.outcome().reason is Reason.PAUSED
    first = _steps(attempt)
    assert re.fullmatch(rf"saved step {first[-1]}, paused, (60|59) s left", attempt.lines()[-1])
    (tmp_path / "again").mkdir()
    again = Attempt(tmp_path / "again")
    try:
        again.script(SCRIPT, env=document["env"]).start()
        assert again.outcome().reason is Reason.SUCCEEDED
        assert [*first, *_steps(again)] == list(range(1, 41))
    finally:
        again.end()
