"""The blocks of docs/scripts.md, as two attempts of one job under a real agent."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lockstep.domain.spec.reading import read_spec
from lockstep.storage.attempts import kept_files
from lockstep.storage.jobs import stopping
from lockstep.storage.objects.blobs import BlobStore
from lockstep.storage.series import figures, series_query
from tests.harness.databases import copied
from tests.harness.node import Node, node_on
from tests.harness.processes import until

PAGE = (Path(__file__).parents[2] / "docs" / "scripts.md").read_text(encoding="utf-8")
(JOB,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
SCRIPT = "\n\n".join(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL))


@pytest.fixture
def node(sqlite_template: Path, tmp_path: Path) -> Iterator[Node]:
    with node_on(tmp_path, copied(sqlite_template, tmp_path), scale=1.0) as made:
        made.start(launcher=[])
        yield made


def steps(node: Node, job_id: str) -> list[int]:
    """Return the steps of the curve over all attempts."""
    with node.database.read_series() as session:
        found = series_query.read(session, job_id)
    return [step for series in found if series.name == "loss" for step in series.step]


def test_the_script_saves_when_asked_and_the_next_attempt_continues(node: Node) -> None:
    document = YAML(typ="safe").load(JOB)
    spec = read_spec(document)
    assert (spec.stop_grace_seconds, spec.retry.on_exit) == (60, [75])
    document["script"]["command"] = [sys.executable, "-c", SCRIPT]
    job_id = node.create(document)
    node.place(job_id)
    until(lambda: len(steps(node, job_id)) >= 3, what="three steps")
    with node.database.jobs() as session:
        stopping.pause(session, job_id, "ada")
    node.wait(job_id, "paused")
    first = steps(node, job_id)
    assert first[-1] < 40
    said = [line.text for line in node.logs(job_id)]
    saved = [text for text in said if text.startswith("saved")]
    assert re.fullmatch(rf"saved step {first[-1]}, paused, (60|59) s left", *saved)
    with node.database.jobs() as session:
        stopping.resume(session, job_id, "ada")
    node.released(job_id)
    node.place(job_id)
    node.wait(job_id, "succeeded")
    assert steps(node, job_id) == list(range(1, 41))
    with node.database.read_series() as session:
        (loss,) = [each for each in figures.read(session, job_id) if each.series.name == "loss"]
    assert (loss.series.metadata.unit, loss.best, loss.best_step) == ("nats", 1 / 40, 40)
    restored = [message for kind, message in node.events(job_id) if kind == "files_restored"]
    assert re.fullmatch(r"Restored 1 file \(1[12]\.0 B\)\.", *restored)
    with node.database.read_jobs() as session:
        (listed,) = kept_files.of_job(session, job_id)
    kept = BlobStore(str(node.store)).read(listed.file.location)
    assert (listed.name, json.loads(kept)) == ("out/step.json", {"step": first[-1]})
