"""The installed wheel, outside the repository and not editable.

Client, programs, ``lockstep up``, and the engine under torchrun. Each environment has the packages
that its extra requires and no others.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.processes import free_port, until
from tests.packaging.installed import EXTRAS, ROOT, Installed, build_wheel, pip

pytestmark = pytest.mark.timeout(600)
PLACE = """
import json, sys
from importlib.util import find_spec
import lockstep
print(json.dumps([lockstep.__file__, sys.path, [name for name in sys.argv[1:] if find_spec(name)]]))
"""
HEAVY = {"torch", "numpy", "sqlalchemy", "celery", "fastapi", "uvicorn", "psutil"}
FOUND = {
    "": set(),
    "server": HEAVY - {"torch", "numpy"},
    "node": HEAVY - {"fastapi", "uvicorn"},
    "all": HEAVY,
}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environments(wheel: Path) -> Iterator[dict[str, Installed]]:
    """Return one environment for each extra; the empty name is the client alone.

    They are on a disk, not in memory: on that of the packages, their files are links.
    """
    with tempfile.TemporaryDirectory(prefix="ls-") as folder:
        yield {
            extra: Installed(Path(folder) / (extra or "client"), wheel, extra) for extra in EXTRAS
        }


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the examples, with a shorter train job.

    So no path of a job leads into the repository.
    """
    copy = shutil.copytree(ROOT / "examples", tmp_path_factory.mktemp("work") / "examples")
    file = copy / "own_task" / "job.yaml"
    shorter = file.read_text().replace("steps: 400", "steps: 40")
    assert "steps: 40\n" in shorter
    file.write_text(shorter)
    return copy


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_environment_has_the_wheel_and_its_requirements(
    extra: str, environments: dict[str, Installed]
) -> None:
    one = environments[extra]
    file, path, found = json.loads(one.run("python", "-c", PLACE, *HEAVY))
    assert Path(file).is_relative_to(one.packages)
    assert not any(Path(entry).is_relative_to(ROOT) for entry in path if entry)
    assert set(found) == FOUND[extra]
    assert pip("--python", str(one.bin / "python"), "check") == "No broken requirements found.\n"


def test_the_pages_that_are_built_are_in_the_wheel(environments: dict[str, Installed]) -> None:
    if not (ROOT / "api/pages/index.html").exists():
        pytest.skip("NOT RUN: the dashboard's pages are not built here; make pages builds them")
    assert (environments[""].packages / "lockstep/api/pages/index.html").is_file()


def test_the_client_alone_starts_and_names_the_extra_that_a_program_needs(
    environments: dict[str, Installed],
) -> None:
    client = environments[""]
    assert client.run("lockstep", "--version").startswith("lockstep ")
    assert client.run("python", "-c", "import lockstep; print(lockstep.Client.__name__)")
    for command in ("up", "migrate", "api", "scheduler", "agent"):
        assert "the service is not fully installed" in client.run("lockstep", command, code=2)


def test_the_programs_of_server_and_node_run_a_job_of_the_client(
    environments: dict[str, Installed], examples: Path, tmp_path: Path
) -> None:
    """Broker, migration, api, scheduler and agent, each started by its own command."""
    server, node, client = (environments[extra] for extra in ("server", "node", ""))
    (server.folder / "b").mkdir()
    broker_socket = server.folder / "b" / "s"
    port = str(free_port())
    settings = {
        "LOCKSTEP_DATABASE_URL": f"sqlite:///{tmp_path}/jobs.db",
        "LOCKSTEP_BROKER_URL": f"redis+socket://{broker_socket}",
        "LOCKSTEP_STORE": str(tmp_path / "store"),
        "LOCKSTEP_NODE_DIR": str(tmp_path / "node"),
        "LOCKSTEP_TOKEN_FILE": str(tmp_path / "token"),
        "LOCKSTEP_PORT": port,
        "LOCKSTEP_HOME": str(tmp_path / "home"),
        "LOCKSTEP_MIGRATE": "off",
        "LOCKSTEP_CPU_SLOTS": "2",
        "LOCKSTEP_STOP_JOBS_ON_EXIT": "on",
    }
    server.run("lockstep", "migrate", **settings)
    started = []
    try:
        for one, *words in (
            (
                server,
                "python",
                "-m",
                "lockstep.broker",
                "--socket",
                str(broker_socket),
                "--dir",
                f"{broker_socket}.d",
            ),
            (server, "lockstep", "api"),
            (server, "lockstep", "scheduler"),
            (node, "lockstep", "agent"),
        ):
            started.append(one.start(tmp_path / f"{words[-1]}.log", *words, **settings))
        until((tmp_path / "token").exists, 120, "the token")
        reached = {
            "LOCKSTEP_URL": f"http://127.0.0.1:{port}",
            "LOCKSTEP_TOKEN": (tmp_path / "token").read_text().strip(),
        }
        with reported(tmp_path, "*.log"):
            until(
                lambda: "ready" in client.run("lockstep", "nodes", "-o", "json", **reached),
                120,
                "the node",
            )
            job = ["submit", str(examples / "digits.yaml"), "--set", "train.epochs=1", "-y"]
            client.run("lockstep", *job, **reached)
            found = server.run("lockstep", "doctor", "-o", "json", **reached)
        assert {one["level"] for one in json.loads(found)} <= {"ok", "warn"}
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
        for process in reversed(started):
            process.wait(60)


def test_up_runs_a_train_job_and_a_script_to_their_ends(
    environments: dict[str, Installed], examples: Path
) -> None:
    one = environments["all"]
    with tempfile.TemporaryDirectory(prefix="ls-") as home, reported(Path(home), "logs/*.log"):
        settings = {"LOCKSTEP_HOME": home, "LOCKSTEP_CPU_SLOTS": "2"}
        one.run("lockstep", "up", "--detach", "--port", str(free_port()), **settings)
        try:
            for name in ("own_task", "script_metrics"):
                folder = str(examples / name)
                one.run(
                    "lockstep", "submit", f"{folder}/job.yaml", "--code", folder, "-y", **settings
                )
            listed = json.loads(one.run("lockstep", "ps", "-a", "-o", "json", **settings))
            assert {job["name"]: job["state"] for job in listed} == {
                "wave": "succeeded",
                "script-metrics": "succeeded",
            }
            findings = json.loads(one.run("lockstep", "doctor", "-o", "json", **settings))
            assert [each for each in findings if each["level"] == "fail"] == []
        finally:
            one.run("lockstep", "down", **settings)


def test_the_engine_runs_under_torchrun_without_the_service(
    environments: dict[str, Installed], examples: Path, tmp_path: Path
) -> None:
    words = ["--standalone", "--nproc-per-node", "2", "-m", "lockstep.engine"]
    folder = examples / "own_task"
    environments["node"].run(
        "torchrun", *words, "job.yaml", "--out", str(tmp_path / "out"), cwd=folder
    )
    assert list((tmp_path / "out").rglob("metrics.jsonl"))


@contextlib.contextmanager
def reported(folder: Path, logs: str) -> Iterator[None]:
    """Add the ends of the logs to a failure inside the block."""
    try:
        yield
    except AssertionError as error:
        ends = "\n".join(f"--- {path}\n{path.read_text()[-2000:]}" for path in folder.glob(logs))
        raise AssertionError(f"{error}\n{ends}") from None
