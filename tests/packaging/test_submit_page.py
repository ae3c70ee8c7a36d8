"""Data of the dashboard's page for new jobs: templates, and facts that the API does not have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from lockstep.client.archive import ALWAYS_LEFT_OUT
from lockstep.client.ignoring import IGNORE_FILES
from lockstep.domain import limits
from lockstep.domain.spec import tasks
from lockstep.domain.spec.reading import read_spec

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "dashboard" / "src" / "features" / "submit"
TEMPLATES = sorted((PAGE / "templates").glob("*.yaml"))


def server() -> dict[str, Any]:
    """Return the expected content of ``server.json``."""
    return {
        "tasks": {name: task.model_json_schema() for name, task in tasks.BUILT_IN.items()},
        "upload": {
            "bytes_max": limits.UPLOAD_BYTES_MAX,
            "unpacked_bytes_max": limits.UPLOAD_UNPACKED_BYTES_MAX,
            "files_max": limits.UPLOAD_FILES_MAX,
            "left_out": sorted(ALWAYS_LEFT_OUT),
            "ignore_files": list(IGNORE_FILES),
        },
    }


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_every_template_is_accepted(path: Path) -> None:
    assert read_spec(YAML(typ="safe").load(path)).world_size() == 2


@pytest.mark.parametrize("name", ["gpt.yaml", "digits.yaml"])
def test_a_template_that_is_an_example_is_that_example(name: str) -> None:
    assert (PAGE / "templates" / name).read_text() == (ROOT / "examples" / name).read_text()


def test_the_page_has_the_tasks_and_the_limits_of_the_service() -> None:
    held = json.loads((PAGE / "server.json").read_text())
    assert held == server(), "write it again: python -m tests.packaging.test_submit_page"


if __name__ == "__main__":
    (PAGE / "server.json").write_text(json.dumps(server(), indent=2, ensure_ascii=False) + "\n")
