"""No program reads a pickle that another process sent: reading one runs its sender's code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "api",
    "broker",
    "domain",
    "engine",
    "lockstep",
    "scheduler",
    "storage",
    "system",
    "worker",
)
READERS = {"pickle": {"load", "loads", "Unpickler"}, "marshal": {"load", "loads"}}
MODULES = {"dill", "cloudpickle", "joblib", "shelve"}
OWN_PARENT = "the request and its sample come from the rank that started this process, for itself"
EXCEPTIONS = {
    "engine/memory/__main__.py:pickle.load": OWN_PARENT,
    "engine/memory/forecast_process.py:pickle.loads": OWN_PARENT,
}


def readers_in(source: str) -> Iterator[str]:
    """Yield each use of a function that reads pickles."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(ast.Name(module), name) if name in READERS.get(module, ()):
                yield f"{module}.{name}"
            case ast.ImportFrom(module=str(module)) if module in READERS:
                yield f"from {module}"
            case ast.Import(names) | ast.ImportFrom(module=None, names=names):
                yield from (each.name for each in names if each.name in MODULES)
            case ast.Attribute(_, name) | ast.alias(name):
                if "_object" in name and name.startswith(
                    ("broadcast", "all_gather", "gather", "scatter", "send", "recv")
                ):
                    yield name
            case ast.Call(ast.Attribute(ast.Name("torch"), "load"), _, keywords):
                safe = {each.arg: ast.unparse(each.value) for each in keywords}
                if safe.get("weights_only") != "True":
                    yield "torch.load"
            case ast.keyword("allow_pickle", ast.Constant(True)):
                yield "allow_pickle"


def test_no_program_reads_the_pickle_of_another() -> None:
    files = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")]
    assert len(files) > 300
    places = {path: path.relative_to(ROOT) for path in files}
    found = {f"{places[path]}:{what}" for path in files for what in readers_in(path.read_text())}
    assert found == EXCEPTIONS.keys()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("dist.all_gather_object(a, b)", ["all_gather_object"]),
        ("from torch.distributed import broadcast_object_list", ["broadcast_object_list"]),
        ("pickle.loads(x)", ["pickle.loads"]),
        ("from pickle import loads", ["from pickle"]),
        ("import dill", ["dill"]),
        ("torch.load(f)", ["torch.load"]),
        ("torch.load(f, weights_only=False)", ["torch.load"]),
        ("torch.load(f, weights_only=True)", []),
        ("np.load(f, allow_pickle=True)", ["allow_pickle"]),
        ("pickle.dumps(x)", []),
    ],
)
def test_the_readers_of_pickles_are_found(source: str, found: list[str]) -> None:
    assert list(readers_in(source)) == found
