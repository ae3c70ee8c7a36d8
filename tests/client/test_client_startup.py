"""Imports of a short command.

Its duration differs between machines; its imports do not.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.training.memory import MemoryForecast
from lockstep.domain.version import VERSION
from lockstep.domain.views import CheckpointDetail, JobView, Page
from tests.client import examples
from tests.client.server import ReplayServer

RUN = """
import sys
sys.argv = ["lockstep", *sys.argv[1:]]
from lockstep.__main__ import main
try:
    main()
except SystemExit as end:
    assert end.code == 0, end.code
print(*sys.modules, file=sys.stderr)
"""


INTERRUPT = """
import os, signal, sys
module = sys.argv[1]
class Finder:
    def find_spec(name, path, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
from lockstep.__main__ import main
sys.argv = ["lockstep", *sys.argv[2:]]
main()
"""


@pytest.mark.parametrize(
    "module", ["lockstep.cli.app", "cyclopts", "lockstep.cli.jobs.jobs", "lockstep.client.api"]
)
def test_an_interrupt_during_an_import_ends_the_command_quietly(
    module: str, tmp_path: Path
) -> None:
    argv = [sys.executable, "-c", INTERRUPT, module, "ps"]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def _loaded(*words: str, folder: Path) -> tuple[str, set[str]]:
    """Return the output of one command line, and the modules that were loaded at its end."""
    argv = [sys.executable, "-c", RUN, *words]
    done = subprocess.run(argv, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, set(done.stderr.splitlines()[-1].split())


def test_the_version_is_printed_without_imports(tmp_path: Path) -> None:
    said, loaded = _loaded("--version", folder=tmp_path)
    assert said == f"lockstep {VERSION}\n"
    heavy = {
        "cyclopts",
        "pydantic",
        "pydantic_core",
        "httpx2",
        "rich",
        "ruamel.yaml",
        "importlib.metadata",
        "lockstep.cli",
    }
    assert loaded & heavy == set()
    assert {name for name in loaded if name.startswith("lockstep.domain.")} == {
        "lockstep.domain.version"
    }


def test_a_list_of_jobs_loads_neither_spec_nor_terminal_libraries(
    server: ReplayServer, tmp_path: Path
) -> None:
    running = examples.job(JobState.RUNNING, progress=examples.progress(50))
    server.on("GET", "/v1/jobs", examples.listed(items=[running]))
    said, loaded = _loaded("ps", "--url", server.url, folder=tmp_path)
    assert len(said.splitlines()) == 2
    heavy = {
        "rich",
        "ruamel.yaml",
        "tarfile",
        "lockstep.domain.spec.job",
        "lockstep.domain.spec.reading",
        "lockstep.domain.spec.tasks",
        "lockstep.client.archive",
    }
    assert loaded & heavy == set()
    others = {
        name.removeprefix("lockstep.cli.") for name in loaded if name.startswith("lockstep.cli.")
    }
    assert others == {"app", "common", "jobs", "jobs.jobs", "text", "text.output"}


def test_no_certificates_are_read_for_an_address_without_encryption(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from lockstep.client.transport import Transport

    made: list[object] = []
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("httpx2.Client", lambda **given: made.append(given["verify"]))
    for url in ("http://127.0.0.1:1", "HTTP://127.0.0.1:1", "https://127.0.0.1:1"):
        Transport(url, None, patience_seconds=0, say=lambda _: None)
    assert made == [False, False, True]


def test_the_fields_of_an_answer_are_described_by_the_texts_below_them() -> None:
    of_job = JobView.model_json_schema()["properties"]
    assert of_job["spec"]["description"] == "The submitted document, as it was sent."
    assert "description" not in of_job["name"]
    inherited = CheckpointDetail.model_json_schema()["properties"]
    assert inherited["sha256"]["description"] == "Of its manifest."
    assert "items" in Page[JobView].model_json_schema()["properties"]
    assert MemoryForecast.model_json_schema(mode="serialization")["properties"]["weights"][
        "description"
    ] == ("The model's parameters.")
