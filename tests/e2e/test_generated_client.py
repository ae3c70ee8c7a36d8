"""A client generated from the API's description, without handwritten code.

It uploads, submits, polls and cancels.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.harness.builders import digits, script
from tests.harness.processes import until
from tests.harness.service import ENDED, Service

PACKAGE = "lockstep_client"
PRINT = b"import time\nprint('from the archive', flush=True)\ntime.sleep(%d)\n"


class Generated:
    """The generated package, connected to a service."""

    def __init__(self, service: Service):
        self.client = self.module("client").AuthenticatedClient(
            base_url=service.url,
            token=service.http.headers["Authorization"].removeprefix("Bearer "),
            raise_on_unexpected_status=True,
        )

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"{PACKAGE}.{name}")

    def call(self, operation: str, *arguments: Any, **named: Any) -> Any:
        return self.module(f"api.{operation}").sync(*arguments, client=self.client, **named)

    def submit(self, spec: dict[str, Any]) -> Any:
        job = self.call("jobs.submit_job", body=self.module("models").JobSpec.from_dict(spec))
        assert job.state == "queued", job
        return job

    def upload(self, source: bytes) -> str:
        """Send an archive of one file, ``train.py``."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            member = tarfile.TarInfo("train.py")
            member.size = len(source)
            archive.addfile(member, io.BytesIO(source))
        digest = hashlib.sha256(packed.getvalue()).hexdigest()
        body = self.module("types").File(payload=packed.getvalue())
        assert self.call("uploads.put_upload", digest, body=body).sha256 == digest
        return digest

    def state(self, job_id: str, *expected: str) -> str:
        """Poll until the job is in one of these states."""

        def ask() -> str | None:
            state = str(self.call("jobs.get_job", job_id).state)
            return state if state in expected else None

        return until(ask, 120, f"job {job_id} {expected}")


@pytest.fixture(scope="module")
def generated(lockstep: Service, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Generated]:
    folder = tmp_path_factory.mktemp("generated")
    (folder / "openapi.json").write_text(json.dumps(lockstep.http.get("/openapi.json").json()))
    (folder / "config.yml").write_text("post_hooks: []\n")  # its own hook would format the files
    words = "generate --path openapi.json --config config.yml --output-path client"
    done = subprocess.run(
        [sys.executable, "-m", "openapi_python_client", *words.split()],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    # Below it are the warnings: operations and models that it omits.
    assert done.stdout.splitlines() == ["Generating client"]
    assert not done.stderr
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder / "client"))
        made = Generated(lockstep)
        with made.client:
            yield made


def test_it_trains_and_runs_a_script_to_their_ends(generated: Generated) -> None:
    train = generated.submit(digits("generated-train"))
    upload = generated.upload(PRINT % 0)
    run = generated.submit(script("generated-script", ["train.py"], upload=upload))
    assert generated.state(train.id, *ENDED) == "succeeded"
    assert generated.state(run.id, *ENDED) == "succeeded"
    lines = generated.call("logs.get_job_logs", run.id).lines
    assert "from the archive" in [line.text for line in lines]
    assert generated.call("history.get_job_metrics", train.id).series


def test_it_cancels_both_kinds(generated: Generated) -> None:
    upload = generated.upload(PRINT % 600)
    specs = digits("long-train", steps=1_000_000), script("long", ["train.py"], upload=upload)
    for job in [generated.submit(spec) for spec in specs]:
        generated.state(job.id, "running")
        assert generated.call("jobs.cancel_job", job.id).id == job.id
        assert generated.state(job.id, *ENDED) == "cancelled"
