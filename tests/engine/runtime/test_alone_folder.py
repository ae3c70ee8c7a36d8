"""Runs without the service: the lock of a folder, and ends caused by torchrun or by a user.

Real processes, as in ``tests.engine.runtime.test_alone``.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import torch
from torch import nn

from lockstep.engine.checkpoints import checkpoint
from lockstep.engine.runtime import folder_lock, torchrun
from tests.engine.runtime.test_alone import ROOT, engine, job, start, until
from tests.engine.spool import events, records

DEADLINE_SECONDS = 120


@contextlib.contextmanager
def started(file: Path, out: Path, *, ranks: int = 1) -> Iterator[subprocess.Popen[str]]:
    """Yield a run after its first step; end it with all its processes."""
    out.mkdir(parents=True, exist_ok=True)
    with (
        (out.parent / "console.txt").open("w") as console,
        start(
            file, "--out", out, ranks=ranks, stdout=console, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        spool, below = out / "spool/metrics.jsonl", []
        try:
            until(
                lambda: (spool.exists() and spool.stat().st_size) or process.poll() is not None,
                DEADLINE_SECONDS,
                "the first step",
            )
            assert process.poll() is None, (out.parent / "console.txt").read_text()
            below = psutil.Process(process.pid).children(recursive=True)
            yield process
        finally:
            process.kill()
            for one in below:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()


def endless(folder: Path, **more: object) -> Path:
    return job(folder, steps=100_000, args={"pause": 0.001}, **more)


def rank_processes(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return [
        one for one in psutil.Process(process.pid).children() if "lockstep.engine" in one.cmdline()
    ]


def test_a_second_run_in_one_folder_is_refused(tmp_path: Path) -> None:
    file, out = endless(tmp_path / "job", loader={"workers": 1}), tmp_path / "out"
    with started(file, out) as first:
        sentence = (
            f"{out} is in use by another run (process {first.pid} on {os.uname().nodename}): wait "
            "until it ends, stop it, or use another folder with --out"
        )
        alone, under_torchrun = (engine(file, "--out", out, ranks=ranks) for ranks in (1, 2))
        assert (alone.returncode, alone.stdout, alone.stderr) == (2, "", f"{sentence}\n")
        assert (under_torchrun.returncode, under_torchrun.stdout) == (1, "")
        # Once from the engine, and in the summary of torchrun, which repeats it.
        assert under_torchrun.stderr.count(sentence) == 2
        assert "engine/__main__.py" not in under_torchrun.stderr
        assert not (out / "errors").exists(), "the folder belongs to the other run"
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
        assert events(out, "resumed") == []
        with started(file, out):
            until(lambda: events(out, "resumed"), DEADLINE_SECONDS, "the run goes on")


def test_a_forked_child_does_not_keep_the_folder_locked(tmp_path: Path) -> None:
    script = (
        "import os, sys, pathlib, time; from lockstep.engine.runtime import folder_lock; "
        "folder_lock.hold(pathlib.Path(sys.argv[1]));"
        "child = os.fork() or (os.close(1), time.sleep(600)); print(child, flush=True); "
        "os.kill(os.getpid(), 9)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        cwd=ROOT,
        check=False,
        stdout=subprocess.PIPE,
        timeout=60,
    )
    child = psutil.Process(int(done.stdout))
    try:
        # For flock, another open file of this process is another holder.
        with (tmp_path / folder_lock.FILE).open() as file:
            until(lambda: _locks(file.fileno()), 30, "the lock is free")
        assert child.is_running()
    finally:
        child.kill()


def _locks(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_used_without_one(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(folder_lock.fcntl, "flock", refuse)
    assert folder_lock.hold(tmp_path) == (
        f"{tmp_path} cannot be locked ({os.strerror(code)}): do not start a second run in it"
    )


def test_ranks_die_with_a_torchrun_that_is_killed(tmp_path: Path) -> None:
    with started(endless(tmp_path / "job"), tmp_path / "out", ranks=2) as process:
        ranks = rank_processes(process)
        assert len(ranks) == 2
        os.kill(process.pid, signal.SIGKILL)
        assert psutil.wait_procs(ranks, timeout=120)[1] == []


def test_a_process_without_torchrun_above_it_is_recognized() -> None:
    output = subprocess.run(
        ["sh", "-c", "sleep 600 >&- 2>&- & echo $!"], check=True, capture_output=True, text=True
    )
    orphan = psutil.Process(int(output.stdout))
    try:
        assert torchrun._below_torch(os.getpid())
        assert not torchrun._below_torch(orphan.pid)
    finally:
        orphan.kill()


def test_sigterm_to_torchrun_saves_the_current_step_for_the_resume(
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    file = endless(tmp_path / "job", checkpoint={"every_steps": None}, loader={"workers": 1})
    with started(file, out, ranks=2) as process:
        ranks = rank_processes(process)
        process.terminate()
        assert process.wait(DEADLINE_SECONDS) != 0  # torchrun's own code: 1, or SIGABRT under load
        assert psutil.wait_procs(ranks, timeout=120)[1] == []
    output = (tmp_path / "console.txt").read_text()
    assert (
        output.count(
            "SIGTERM: stopping after this step, with a checkpoint; send it again to end at once\n"
        )
        == 1
    )
    (saved,) = checkpoint.complete(out / "checkpoints")
    step = checkpoint.verify(saved)
    assert step == max(records(out))
    assert f"fit: stopped by SIGTERM after step {step}, loss " in output
    assert "Error" not in output.partition("fit: stopped")[0]
    assert not (out / "errors").exists()
    done = engine(job(tmp_path / "job", steps=step + 2), "--out", out)
    assert done.returncode == 0, done.stderr
    assert [event["step"] for event in events(out, "resumed")] == [step]


def test_sigterm_to_one_rank_stops_all_of_them_at_one_step(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with started(endless(tmp_path / "job"), out, ranks=2) as process:
        last = max(rank_processes(process), key=lambda one: one.environ()["RANK"])
        last.terminate()
        assert process.wait(DEADLINE_SECONDS) == 1
    output = (tmp_path / "console.txt").read_text()
    step = checkpoint.verify(next(checkpoint.complete(out / "checkpoints")))
    assert f"fit: stopped by SIGTERM after step {step}, loss " in output
    assert "exitcode  : 143" in output
    assert not (out / "errors").exists()


def test_a_second_sigterm_ends_a_run_that_is_stuck(tmp_path: Path) -> None:
    file = job(tmp_path / "job", args={"touch": str(tmp_path / "stuck")}, steps=100)
    task = tmp_path / "job/task.py"
    task.write_text(
        task.read_text().replace(
            "Path(self.touch).touch()", "Path(self.touch).touch(); time.sleep(3600)"
        )
    )
    with started(file, tmp_path / "out") as process:
        until((tmp_path / "stuck").exists, DEADLINE_SECONDS, "a step that does not end")

        def ended() -> bool:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(0.1) == torchrun.TERMINATED
            return False

        until(ended, torchrun.GRACE_SECONDS / 2 - 1, "its end")
    assert "SIGTERM again: ended at once" in (tmp_path / "console.txt").read_text()


def test_relative_paths_are_resolved_at_the_start(
    tmp_path: Path,
) -> None:
    file = job(tmp_path / "job", steps=2, init_from="first.pt")
    moving = "import tempfile; os.chdir(tempfile.mkdtemp())\n        return nn.Sequential("
    task = tmp_path / "job/task.py"
    task.write_text(task.read_text().replace("return nn.Sequential(", moving))
    layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    torch.save(layers.state_dict(), tmp_path / "first.pt")
    ended = engine(file, "--out", "out", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert [each["from"] for each in events(tmp_path / "out", "initialized")] == [
        str(tmp_path / "first.pt")
    ]
    assert (tmp_path / "out/checkpoints/step-00000002").is_dir()
