"""Guide to tasks: its blocks are one file, and its jobs end as the page states."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lockstep import Task
from tests.harness import forks
from tests.harness.processes import inherited

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tasks.md").read_text(encoding="utf-8")
WITHIN_SECONDS = 240
REFUSED = "refused.yaml"


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


JOBS = {block.split(maxsplit=2)[1]: block for block in blocks("yaml")}
"""Job files by the name in their first line."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "task.py").write_text("\n\n".join(blocks("python")), encoding="utf-8")
    for name, text in JOBS.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def train(folder: Path, name: str, *, ranks: int = 1) -> subprocess.CompletedProcess[str]:
    words = ["lockstep.engine", name, "--out", "out"]
    if ranks > 1:
        under = ["torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), "-m"]
        words = [*under, *words]
    env = {**inherited(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    started = forks.with_all_below(*words, modules=forks.ENGINE, cwd=folder, env=env, **forks.PIPES)
    return forks.ended(started, WITHIN_SECONDS)


def values(folder: Path) -> dict[str, float]:
    """Return the newest value of each series."""
    spool = folder / "out" / "spool" / "metrics.jsonl"
    found: dict[str, float] = {}
    for line in spool.read_text(encoding="utf-8").splitlines():
        found |= json.loads(line)["values"]
    return found


@pytest.mark.parametrize("name", sorted(set(JOBS) - {REFUSED}))
def test_every_job_of_the_page_trains(folder: Path, name: str) -> None:
    done = train(folder, name)
    assert done.returncode == 0, done.stderr
    assert "warning" not in (done.stdout + done.stderr).lower()
    assert ": done after step " in done.stdout
    found = values(folder)
    expected = {
        "line.yaml": {"train/loss"},
        "tokens.yaml": {"throughput/tokens_per_second", "eval/perplexity"},
        "terms.yaml": {"train/loss", "eval/square", "eval/positive", "eval/loss"},
        "split.yaml": {"eval/loss", "eval/absolute"},
        "rates.yaml": {"train/loss"},
    }[name]
    assert expected <= set(found)
    exported = {path.name for path in (folder / "out" / "checkpoints").glob("*/*")}
    assert "model.safetensors" in exported
    assert ("units.txt" in exported) == (name == "rates.yaml")


def test_the_mean_is_refused_with_the_message_of_the_page(folder: Path) -> None:
    done = train(folder, REFUSED)
    assert done.returncode != 0
    (message,) = blocks("text")
    assert message.strip() in done.stderr


def test_two_ranks_end_at_the_loss_of_one(folder: Path) -> None:
    losses = []
    for ranks in (1, 2):
        done = train(folder, "line.yaml", ranks=ranks)
        assert done.returncode == 0, done.stderr
        losses.append(values(folder)["train/loss"])
        (folder / "out").rename(folder / f"of-{ranks}")
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)


def test_the_table_has_every_method_of_a_task() -> None:
    listed = re.findall(r"^\| `(\w+)\(", PAGE, re.MULTILINE)
    public = {name for name, value in vars(Task).items() if callable(value) and name[0] != "_"}
    assert sorted(listed) == sorted(public)


def test_every_job_names_a_class_of_the_page() -> None:
    classes = set(re.findall(r"^class (\w+)\(", "\n".join(blocks("python")), re.MULTILINE))
    named = [YAML(typ="safe").load(text)["train"]["task"] for text in JOBS.values()]
    assert {task.removeprefix("task.py:") for task in named} <= classes
    assert len(set(named)) == len(named) == len(JOBS)
