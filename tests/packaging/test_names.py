"""Check of names that do not exist in an installed wheel: each form of reference."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[2] / "docs" / "names.py"


@pytest.fixture(scope="module")
def names() -> ModuleType:
    spec = spec_from_file_location("names", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_packages_of_the_root_are_found(names: ModuleType) -> None:
    assert {"api", "migrations", "storage", "worker"} <= names.parts()
    assert {"benchmarks", "docs", "hatch_build", "tests"} <= names.tools()
    assert "lockstep" not in names.parts() | names.tools()


@pytest.mark.parametrize(
    "source",
    [
        'files("migrations") / "jobs"',
        'resources.files(anchor="migrations")',
        'FOLDER = "migrations"\nfiles(FOLDER)',
        'import_module("storage.db.tables")',
        'import_module(f"worker.{name}")',
        'find_spec("api")',
        '[sys.executable, "-P", "-m", "engine.launcher"]',
        '[sys.executable, "-m", f"scheduler.{name}"]',
        'execl(python, "python", "-m", "worker")',
        'shell("python -m api migrate")',
        '{"handlers": {"one": {"class": "system.logs.Handler"}}}',
        'uvicorn.run("api.app:routed")',
        'Celery(include=["broker.consumer"])',
        "from storage.db import tables",
        "import benchmarks.service",
        'run("python", "-m", "docs.generate")',
    ],
)
def test_each_way_of_naming_one_is_found(names: ModuleType, source: str) -> None:
    forbidden = names.parts() | names.tools()
    assert len(names.named(source, forbidden, texts=True)) == 1


@pytest.mark.parametrize(
    "source",
    [
        'files("lockstep.migrations")',
        'import_module("lockstep.storage.db")',
        '[sys.executable, "-m", "lockstep.engine"]',
        'structlog.get_logger("api.jobs")',
        'folder / "broker" / "broker.sock"',
        '{"system": 1, "storage": "domain"}',
        "from lockstep import api",
        "from . import api",
        'log("the api. The scheduler reads it.")',
    ],
)
def test_other_words_are_allowed(names: ModuleType, source: str) -> None:
    assert names.named(source, names.parts(), texts=True) == []
