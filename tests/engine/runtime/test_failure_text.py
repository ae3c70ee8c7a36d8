"""Failure of a run without the service: its reason is printed once, last, and without the engine's
frames.

Real processes, as in ``tests.engine.runtime.test_alone``.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lockstep.engine.runtime import failure_text
from tests.engine.runtime.test_alone import engine, job

MISSING = "task.py has no class 'Missing'; its tasks: Fit"
MEAN = "the mean of the micro-batch"
TWO_RANKS_LINES_MAX = 60
"""From torchrun's log, traceback and summary, which contain lines of the engine."""


def broken(folder: Path, old: str, new: str, **more: object) -> Path:
    """Write a job whose task has one line changed."""
    file = job(folder, **more)
    task = folder / "task.py"
    assert old in task.read_text()
    task.write_text(task.read_text().replace(old, new))
    return file


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_refusal_is_printed_once_and_last(tmp_path: Path, ranks: int) -> None:
    done = engine(
        job(tmp_path / "job", task="task.py:Missing"), "--out", tmp_path / "out", ranks=ranks
    )
    assert done.returncode == 1
    sentence = f"train.task: {MISSING}"
    if ranks == 1:
        assert done.stderr == f"{sentence}\n"
        return
    ours, _, summary = done.stderr.partition("ChildFailedError")
    assert ours.count(sentence) == 1
    assert summary.count(sentence) == 1
    assert sentence in summary.partition("Root Cause")[2]
    assert "loading.py" not in done.stderr
    assert len(done.stderr.splitlines()) <= TWO_RANKS_LINES_MAX
    # torchrun may have ended the second one before it could write its own.
    files = list((tmp_path / "out/errors").glob("rank*.json"))
    assert files
    for file in files:
        assert "loading.py" in json.loads(file.read_text())["traceback"]


def test_a_loss_that_is_a_mean_is_refused_without_a_traceback(tmp_path: Path) -> None:
    done = engine(
        broken(tmp_path / "job", "** 2).sum()", "** 2).mean()"), "--out", tmp_path / "out"
    )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("task.py:Fit: ")


def test_the_peers_of_a_rank_that_raises_print_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = engine(job(tmp_path / "job", args={"fail_at": 13}), "--out", out, ranks=2)
    assert done.returncode == 1
    ours, _, summary = done.stderr.partition("ChildFailedError")
    _, _, frames = ours.partition("Traceback (most recent call last):\n")
    assert frames.startswith(f'  File "{tmp_path}/job/task.py", line ')
    assert frames.split("\n")[2] == "RuntimeError: the labels of shard 7 are damaged"
    assert "gloo" not in done.stderr.lower()
    assert "the labels of shard 7 are damaged" in summary.partition("Root Cause")[2]
    error = json.loads((out / "errors/rank1.json").read_text())
    assert error["reason"] == "user_error"
    assert error["exception"] == "RuntimeError: the labels of shard 7 are damaged"
    assert "in loss" in error["traceback"]
    assert error["step"] == 6  # Two micro-batches per step: the 13th call is in step 7.
    other = out / "errors/rank0.json"
    # torchrun may have ended rank 0 before it could report the end of its peer.
    assert not other.exists() or json.loads(other.read_text())["reason"] == "network"
    again = engine(job(tmp_path / "job", steps=7), "--out", out)
    assert again.returncode == 0, again.stderr
    assert list((out / "errors").iterdir()) == [], "they belonged to the previous run"


def test_a_rank_that_lost_a_silent_peer_prints_one_line(tmp_path: Path) -> None:
    lost = broken(
        tmp_path / "job",
        'raise RuntimeError("the labels of shard 7 are damaged")',
        "os._exit(3)",
        args={"fail_at": 13},
    )
    done = engine(lost, "--out", tmp_path / "out", ranks=2)
    assert done.returncode == 1
    ours = [line for line in done.stderr.splitlines() if line.startswith("rank ")]
    # torchrun may have ended rank 0 before it could report that.
    assert len(ours) <= 1
    assert all(line.startswith("rank 0 lost the other ranks: RuntimeError: ") for line in ours)
    assert "engine/" not in done.stderr


@pytest.mark.parametrize("workers", [0, 1])
def test_the_item_that_raised_is_printed(tmp_path: Path, workers: int) -> None:
    bad = broken(
        tmp_path / "job",
        "time.sleep(self.pause)",
        'if item == 71: raise ValueError("label 12 of 10")',
        loader={"workers": workers},
    )
    done = engine(bad, "--out", tmp_path / "out")
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1].startswith(f'  File "{tmp_path}/job/task.py", line ')
    named = "raised by item 71 of dataset('train')"
    assert named in lines
    if workers:
        assert lines[-1] == "item 71 of dataset('train'): ValueError: label 12 of 10"
    else:
        assert lines[-2:] == ["ValueError: label 12 of 10", named]
    error = json.loads((tmp_path / "out/errors/rank0.json").read_text())
    assert error["exception"] == "item 71 of dataset('train'): ValueError: label 12 of 10"


def test_an_exception_of_the_engine_itself_keeps_its_frames() -> None:
    with pytest.raises(TypeError) as raised:
        failure_text.forget(None)  # type: ignore[arg-type] # a mistake inside the engine
    error = raised.value
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    assert "failure_text.py" in failure_text.text_of(error, 0)
