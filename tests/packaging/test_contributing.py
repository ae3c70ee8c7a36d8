"""The guides to changes: every path exists, and each list of files has all files of its kind.

The lists are in CONTRIBUTING.md and in docs/contributing/kinds.md. A list is compared with an
example of its kind in the code, such as the optimizer ``sgd``. A file that names the example is
listed, or it is in ``Kind.elsewhere`` with a reason.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Set
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
KINDS_PAGE = ROOT / "docs/contributing/kinds.md"
PAGE = "\n".join(
    page.read_text(encoding="utf-8") for page in (KINDS_PAGE, ROOT / "CONTRIBUTING.md")
)
"""Both pages with lists."""
GUIDES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs/contributing").glob("*.md"))]
OF_AN_ATTEMPT = ("spool/", "logs/")
"""Beginnings of paths in an attempt's folder, which the guides name, too."""
SEARCHED = (
    *("api", "broker", "docker", "domain", "engine", "lockstep", "migrations", "scheduler"),
    *("storage", "worker", "dashboard/src", "docs", "pyproject.toml"),
)
"""Folders and files that are searched for an example. Tests are listed, but not searched."""
NOT_SEARCHED = re.compile(
    r"\.test\.tsx?$|^docs/(decisions|contributing)/|/src/testing/|\.(json|png|svg)$"
)
PATH = re.compile(r"`((?:[\w.-]+/)*[\w.-]+\.(?:py|tsx?|md|ya?ml|toml|sh|css))`")


FORM = "dashboard/src/features/submit/form"


@dataclass(frozen=True)
class Kind:
    """One list of the page: a section, the pattern of its example, and its exceptions."""

    example: str
    elsewhere: dict[str, str] = field(default_factory=dict)
    """Files that name the example and do not change, each with the reason."""
    beside: Set[str] = frozenset()
    """Listed files that are changed for some members of the kind, but not for the example."""


KINDS: dict[str, Kind] = {
    "An optimizer": Kind(
        r"\b(nesterov|SGD|Sgd|sgd)\b",
        {
            "docs/contract.md": "names a case of a test",
            "docs/tasks.md": "has it in examples",
            "engine/step/optimizer.py": "advises one in a message",
            "engine/strategies/experimental/diloco.py": "has its own outer step",
            "engine/strategies/experimental/local_sgd.py": "is a strategy of this name",
        },
    ),
    "A strategy": Kind(
        r"""["'](zero1|fsdp|diloco)["']|\b(zero1|diloco): true|^\| `(zero1|diloco)` \|"""
        r"""|\b(FSDP|Zero1|DiLoCo)\b""",
        {
            "domain/training/scaling.py": "advises one in a message",
            "engine/memory/sharing.py": "runs fsdp beside ranks that do not exist",
            "engine/memory/tensors.py": "names torch's operations and classes",
            "engine/state/forms.py": "undoes torch's renaming of classes",
            "engine/strategies/block_order.py": "is a part of fsdp",
            "engine/task/interface.py": "undoes torch's renaming of classes",
        },
    ),
    "A device vendor": Kind(
        r"""['"]cuda['"]|"nccl"|CUDA_DEVICE_ORDER|\bpynvml\b|\btorch\.cuda\b|CUDA_VISIBLE_DEVICES|nvidia-ml|\.is_cuda\b""",
        {
            "api/http/examples.py": "shows one in an example",
            "engine/launcher/start/forking.py": "sets a variable of torch for a fork",
            "engine/runtime/flops.py": "names the source of a device's name",
        },
    ),
    "A failure reason": Kind(
        r"\b(HOST_OUT_OF_MEMORY|host_out_of_memory|CODE_UNAVAILABLE|code_unavailable)\b",
        beside={"engine/launcher/evidence.py", "engine/runtime/errors.py"},
    ),
    "A field of the job spec": Kind(
        r"\b(memory_headroom|metrics_days)\b",
        beside={"domain/spec/feature_gate.py", f"{FORM}/TrainFields.tsx"},
    ),
    "An endpoint with a page": Kind(
        r"""drainNode|DrainNode|set_draining|/drain"|client\.drain_node\b|DrainDialog|ClusterPage|["']/cluster["']""",
        elsewhere={
            f"dashboard/src/features/{page}.tsx": "links to the page"
            for page in ("queue/QueuePage", "home/Attention", "home/WhoUses")
        },
        beside={
            *("api/app.py", "api/http/examples.py", "api/http/tags.py", "domain/views.py"),
            *("lockstep/cli/app.py", "docs/cli.md", "domain/audit.py"),
        },
    ),
    "A database column": Kind(
        r"\bleft_at\b",
        beside={"storage/jobs/jobs.py"},
    ),
    "A setting": Kind(
        r"\b(rate_limit_requests|cpu_slots|LOCKSTEP_RATE_LIMIT_REQUESTS|LOCKSTEP_CPU_SLOTS)\b",
        {
            "docs/http.md": "has the limit in its table",
        },
    ),
    "A timing": Kind(r"\btogether_seconds\b|LOCKSTEP_TOGETHER_SECONDS"),
}


def section(title: str) -> str:
    """Return the text under a heading of the third level."""
    found = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^#)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"no page has a section {title!r}"
    return found[1]


def listed(title: str) -> set[str]:
    """Return the paths in the first column of a section's table."""
    rows = re.findall(r"^\| (.*?) \|", section(title), re.MULTILINE)
    return {path for row in rows for path in PATH.findall(row)}


def tracked() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return [name for name in done.stdout.split("\0") if name]


@cache
def naming(pattern: str) -> frozenset[str]:
    """Return the searched files whose text has the pattern."""
    expression = re.compile(pattern, re.MULTILINE)
    return frozenset(
        name
        for name in tracked()
        if name.startswith(SEARCHED)
        and not NOT_SEARCHED.search(name)
        and (ROOT / name).is_file()
        and expression.search((ROOT / name).read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("title", KINDS)
def test_a_list_has_every_file_of_its_kind(title: str) -> None:
    kind = KINDS[title]
    found = naming(kind.example)
    assert found, f"no file names the example of {title!r}: choose another one"
    assert sorted(found - listed(title) - set(kind.elsewhere)) == []


@pytest.mark.parametrize("title", KINDS)
def test_a_listed_file_still_belongs_to_its_kind(title: str) -> None:
    kind = KINDS[title]
    found = (name for name in listed(title) if name.startswith(SEARCHED))
    searched = {name for name in found if not NOT_SEARCHED.search(name)}
    assert searched
    assert sorted(searched - naming(kind.example) - kind.beside) == []


@pytest.mark.parametrize("title", KINDS)
def test_an_exception_from_a_list_is_still_needed(title: str) -> None:
    kind = KINDS[title]
    found = naming(kind.example)
    assert sorted(set(kind.elsewhere) - found) == []
    assert sorted(kind.beside & found) == []
    assert sorted(kind.beside - listed(title)) == []
    assert sorted(set(kind.elsewhere) & listed(title)) == []


def test_every_section_of_a_kind_is_checked() -> None:
    assert re.findall(r"^### (.+)$", PAGE, re.MULTILINE) == list(KINDS)


def test_every_list_names_tests() -> None:
    assert [title for title in KINDS if not any("tests/" in path for path in listed(title))] == []


def test_every_listed_path_exists() -> None:
    paths = {path for title in KINDS for path in listed(title)}
    assert len(paths) > 80
    assert sorted(path for path in paths if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_every_path_of_a_guide_exists(guide: Path) -> None:
    text = guide.read_text(encoding="utf-8")
    written = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text))
    assert len(written) > 20
    missing = [path for path in written if not (ROOT / path).exists()]
    assert sorted(path for path in missing if not path.startswith(OF_AN_ATTEMPT)) == []


def test_every_named_target_of_make_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"`make ([a-z-]+)`", PAGE)) | {"install", "check", "test"}
    assert sorted(named - targets) == []


def test_a_file_that_is_not_listed_is_found() -> None:
    """The search itself: the list without one file does not pass."""
    without = listed("An optimizer") - {"engine/step/kernels.py"}
    kind = KINDS["An optimizer"]
    assert naming(kind.example) - without - set(kind.elsewhere) == {"engine/step/kernels.py"}
