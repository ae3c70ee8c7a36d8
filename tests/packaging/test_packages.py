"""Messages about a missing package name one that can be installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lockstep.domain.errors import LockstepError
from lockstep.domain.packages import DISTRIBUTION, with_extra
from lockstep.storage.objects.blobs import BlobStore

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "api",
    "broker",
    "domain",
    "engine",
    "lockstep",
    "migrations",
    "scheduler",
    "storage",
    "system",
    "worker",
)
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _sources() -> dict[Path, str]:
    return {
        path: path.read_text() for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }


def test_the_constant_is_the_distributions_name() -> None:
    assert PROJECT["name"] == DISTRIBUTION
    assert with_extra("hf") == f"pip install '{DISTRIBUTION}[hf]'"


def test_every_extra_in_a_message_exists_and_uses_the_constant() -> None:
    named = {
        extra
        for text in _sources().values()
        for extra in re.findall(r"with_extra\(['\"](\w+)['\"]\)", text)
    }
    assert named == {"all", "hf", "mlflow", "parquet"}
    assert named <= set(PROJECT["optional-dependencies"])
    literal = [
        path.name for path, text in _sources().items() if re.search(r"pip install '?lockstep", text)
    ]
    assert literal == []


def _missing(*packages: str) -> str:
    """Return a Python that behaves as if these packages were not installed."""
    return f"import sys; sys.modules.update(dict.fromkeys({packages!r}))\n"


@pytest.mark.parametrize(
    ("url", "package"), [("s3://bucket/prefix", "s3fs"), ("gs://bucket/prefix", "gcsfs")]
)
def test_a_store_names_the_package_that_it_needs(
    url: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(LockstepError) as caught:
        BlobStore(url)
    scheme = url.partition(":")[0]
    assert caught.value.message.startswith(
        f"LOCKSTEP_STORE: a {scheme}:// store needs a package that is not installed"
    )
    assert caught.value.next_step == f"pip install '{package}' where the api and the agents run"


def test_an_unknown_kind_of_store_is_named() -> None:
    with pytest.raises(LockstepError, match="Protocol not known: nowhere"):
        BlobStore("nowhere://bucket")


@pytest.mark.parametrize("program", ["api", "worker"])
def test_a_program_without_the_stores_package_ends_with_one_line(
    program: str, tmp_path: Path
) -> None:
    run = (
        "import runpy; sys.argv[1:] = []; runpy.run_module(sys.argv[0], run_name='__main__', "
        "alter_sys=True)"
    )
    environment = {
        "PATH": "/usr/bin:/bin",
        "LOCKSTEP_DATABASE_URL": f"sqlite:///{tmp_path}/jobs.db",
        "LOCKSTEP_STORE": "s3://bucket/prefix",
        "LOCKSTEP_BROKER_URL": f"redis+socket://{tmp_path}/none.sock",
        "LOCKSTEP_NODE_DIR": str(tmp_path / "node"),
        "LOCKSTEP_NODE_NAME": "n1",
        "LOCKSTEP_PORT": "0",
        "LOCKSTEP_CPU_SLOTS": "1",
    }
    if program == "worker":
        migrate = [sys.executable, "-m", "lockstep.api", "migrate"]
        subprocess.run(
            migrate, cwd=ROOT, env=environment, check=True, capture_output=True, timeout=120
        )
    code = f"{_missing('s3fs')}sys.argv = ['lockstep.{program}']\n{run}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode in {1, 2}, done.stderr
    assert "Traceback" not in done.stderr
    assert "pip install 's3fs'" in done.stderr.splitlines()[-1]
