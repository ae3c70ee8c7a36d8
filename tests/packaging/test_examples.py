"""Examples: every job file is accepted, and the scripts run under plain torchrun."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from lockstep.domain.spec.reading import read_spec
from lockstep.domain.training.metrics import decode
from tests.harness import forks
from tests.harness.processes import inherited

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
JOB_FILES = sorted([*EXAMPLES.glob("*.yaml"), *EXAMPLES.glob("*/*.yaml")])
WITHIN_SECONDS = 240
AND_THEN = """
import os, runpy, sys
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
# One write: torchrun's ranks print unbuffered, and a line of the other one may come in between.
os.write(1, f"threads at the end: {len(os.listdir('/proc/self/task'))}\\n".encode())
"""
"""Runs a script.

If a process group still exists after it, Gloo's threads do, too, and may abort the process.
"""


def _document(path: Path) -> dict[str, object]:
    document: dict[str, object] = YAML(typ="safe").load(path)
    # `lockstep submit --code DIR` adds the upload.
    return {**document, "code": {"upload": "0" * 64}} if path.parent != EXAMPLES else document


def torchrun(script: Path, *arguments: str, folder: Path, **environment: str) -> str:
    """Return the output of a script on two ranks.

    The ranks die with torchrun, which is killed after a limit.
    """
    wrapper = folder / "wrapper.py"
    wrapper.write_text(AND_THEN)
    process = forks.with_all_below(
        *("torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *(wrapper, script, *arguments),
        modules=forks.ENGINE,
        cwd=folder,
        env={**inherited(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            output, _ = process.communicate(timeout=WITHIN_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    assert process.returncode == 0, output
    assert output.count("threads at the end: 1\n") == 2, output
    return output


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_every_job_file_is_accepted(path: Path) -> None:
    ranks = 4 if path.name == "gpt_pipeline.yaml" else 2
    assert read_spec(_document(path)).world_size() == ranks


def test_the_readmes_table_has_every_example_and_nothing_else() -> None:
    linked = set(re.findall(r"\]\(([\w./-]+)\) \|", (EXAMPLES / "README.md").read_text()))
    assert linked == {
        path.name if path.parent == EXAMPLES else path.parent.name for path in JOB_FILES
    }


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_a_scripts_program_lies_beside_its_job_file(path: Path) -> None:
    script = read_spec(_document(path)).script
    if script is not None:
        assert (path.parent / script.command[0]).is_file()


def test_the_plain_ddp_script_trains_on_two_ranks(tmp_path: Path) -> None:
    output = torchrun(EXAMPLES / "script_ddp" / "train.py", "--steps", "100", folder=tmp_path)
    for rank in (0, 1):
        assert f"rank {rank} of 2 on cpu" in output
        losses = [
            float(loss) for loss in re.findall(rf"rank {rank} step \d+ loss (\d+\.\d{{5}})", output)
        ]
        assert losses[-1] < losses[0] < 1
        assert f"rank {rank} done" in output
    assert (
        "lockstep"
        not in (EXAMPLES / "script_ddp" / "train.py").read_text().partition('"""\n\n')[2].lower()
    )


def test_rank_0_of_the_metrics_script_writes_one_line_per_step(
    tmp_path: Path,
) -> None:
    spool = tmp_path / "metrics.jsonl"
    output = torchrun(
        EXAMPLES / "script_metrics" / "train.py", folder=tmp_path, LOCKSTEP_METRICS=str(spool)
    )
    records = [decode(line, now=0.0, default_step=-1) for line in spool.read_text().splitlines()]
    assert [record.step for record in records] == list(range(1, 301))
    assert {name for record in records for name in record.values} == {"train/loss", "train/lr"}
    assert records[-1].values["train/loss"] < 0.01 * records[0].values["train/loss"]
    assert json.loads(spool.read_text().splitlines()[0])["step"] == 1
    assert "after 300 steps" in output
