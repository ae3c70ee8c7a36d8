"""Rule for files of jobs: the agent and the launcher open them by ``system.untrusted`` only.

In the modules below no other call may open, list, change or remove a file, and none may ask for its
type or size. A call is allowed on a value named ``files`` or ``blobs``: an ``Untrusted`` or the
blob store.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
READERS = ("worker", "engine/launcher", "lockstep/client/local/machine.py")
METHODS = frozenset(
    "open read_text read_bytes write_text write_bytes iterdir glob rglob walk scandir listdir stat "
    "lstat exists is_file is_dir unlink remove rmdir mkdir mkfifo touch rename symlink_to "
    "hardlink_to readlink symlink link chmod truncate rmtree copytree copyfile copy move "
    "extractall extract write_atomically replacing resolve".split()
)
SAFE = frozenset({"files", "_files", "blobs", "_blobs"})
AT_NODE = "the folder of the node, in which no job writes"
BEFORE = "before the first rank of the attempt is started"
KERNEL = "files of the kernel, or of this installation"
PIPE = "a pipe or a descriptor that this process has made"
RANK = "runs in the rank, with its rights"
NO_FILE = "a method of the same name that opens nothing"
EXCEPTIONS: dict[str, str] = {
    "worker/agent/supervisor.py:start": AT_NODE,
    "worker/agent/outcomes.py:unstarted": AT_NODE,
    "worker/devices/inventory.py:host_bytes": KERNEL,
    **dict.fromkeys(
        (
            f"worker/folders.py:{name}"
            for name in (
                "exists",
                "create",
                "delete",
                "folders_in",
                "empty_trash",
                "_remove",
                "_retire",
            )
        ),
        AT_NODE,
    ),
    "worker/health.py:note_heartbeat": AT_NODE,
    "worker/health.py:remove": AT_NODE,
    "worker/service.py:_alone": AT_NODE,
    **dict.fromkeys(
        (
            f"worker/launch/{place}"
            for place in (
                "code.py:bring",
                "code.py:_put",
                "code.py:_bring_upload",
                "code.py:unpack",
                "code.py:_unpack_member",
                "code.py:_sha256",
                "preparing.py:prepare",
                "resuming.py:bring",
                "resuming.py:_fetched",
                "resuming.py:damage_of",
                "resuming.py:_write_events",
            )
        ),
        BEFORE,
    ),
    "worker/upload/kept/restoring.py:_fetch": BEFORE,
    "worker/upload/kept/restoring.py:_made_way": BEFORE,
    **dict.fromkeys(
        (
            f"worker/launch/groups.py:{name}"
            for name in ("create", "kill", "pids", "remove", "_folders", "own_group")
        ),
        KERNEL,
    ),
    "worker/launch/sweeping.py:kill": NO_FILE,
    "engine/launcher/environment.py:working_folder": BEFORE,
    "engine/launcher/environment.py:_output": BEFORE,
    "engine/launcher/fork_server.py:_become_launcher": KERNEL,
    "engine/launcher/output/streams.py:__init__": PIPE,
    "engine/launcher/output/streams.py:_end": NO_FILE,
    "engine/launcher/run.py:main": BEFORE,
    "engine/launcher/run.py:_prepare_rank": NO_FILE,
    "engine/launcher/start/forking.py:begin": PIPE,
    "engine/launcher/start/forking.py:_taken_names": BEFORE,
    "engine/launcher/start/forking.py:left_open": KERNEL,
    "engine/launcher/start/forking.py:_open_files": KERNEL,
    "engine/launcher/start/forking.py:_wait_and_run": PIPE,
    "engine/launcher/start/processes.py:enter_group": KERNEL,
    "engine/launcher/start/processes.py:_name_of": KERNEL,
    "engine/launcher/start/processes.py:name_process": KERNEL,
    "engine/launcher/start/processes.py:out_of_memory_kills": KERNEL,
    "engine/launcher/start/site/sitecustomize.py:": RANK,
    "engine/launcher/start/site/sitecustomize.py:_write_exception": RANK,
    "engine/launcher/start/site/sitecustomize.py:find_spec": NO_FILE,
    "engine/launcher/start/stub.py:become_rank": RANK,
    "engine/launcher/start/stub.py:_cannot_run": RANK,
    "engine/launcher/start/stub.py:_cannot_run_file": RANK,
    "engine/launcher/start/stub.py:_may_not_be_run": RANK,
    "engine/launcher/start/stub.py:_report": RANK,
    "lockstep/client/local/machine.py:_folder": AT_NODE,
}
"""Functions that open files in another way, each with its reason."""


def _modules() -> list[Path]:
    found = [
        path for name in READERS for path in sorted((ROOT / name).rglob("*.py")) or [ROOT / name]
    ]
    assert len(found) > 50
    return found


def _calls(tree: ast.AST, within: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Yield each call with the name of the function around it."""
    for node in ast.iter_child_nodes(tree):
        name = node.name if isinstance(node, ast.FunctionDef) else within
        if isinstance(node, ast.Call):
            yield name, node
        yield from _calls(node, name)


def _touches_a_file(call: ast.Call) -> bool:
    match call.func:
        case ast.Name(name):
            return name in {"open", "write_atomically", "replacing", "rmtree"}
        case ast.Attribute(value, name):
            owner = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
            return name in METHODS and owner not in SAFE
    return False


def _found() -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for path in _modules():
        for function, call in _calls(ast.parse(path.read_text())):
            if _touches_a_file(call):
                place = f"{path.relative_to(ROOT)}:{function}"
                found.setdefault(place, []).append(call.lineno)
    return found


def test_files_of_jobs_are_opened_in_one_way() -> None:
    assert {place: lines for place, lines in _found().items() if place not in EXCEPTIONS} == {}


def test_an_exception_is_still_needed() -> None:
    assert EXCEPTIONS.keys() - _found().keys() == set()


@pytest.mark.parametrize(
    ("source", "caught"),
    [
        ("path.read_text()", True),
        ("os.open(path, 0)", True),
        ("shutil.rmtree(path)", True),
        ("open(path)", True),
        ("self._folder.file('x').exists()", True),
        ("self._folder.files.exists('x')", False),
        ("files.open('x')", False),
    ],
)
def test_the_rule_knows_the_ways_to_open_a_file(source: str, caught: bool) -> None:
    _, call = next(_calls(ast.parse(source)))
    assert _touches_a_file(call) == caught
