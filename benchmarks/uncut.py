"""Training of models that are not cut, in turns with an older Lockstep: the same bits, as fast.

    python benchmarks/uncut.py --before TREE [--ranks 1] [--rounds 5] [--steps 120] [--json FILE]

``TREE`` is a checkout. Both train the built-in ``causal_lm`` on its own sources of Python, by
``python -m lockstep.engine``, one after the other in an order that turns. *step* is the median of
the steps of all runs after the first ``WARM``, *cpu* the CPU time of a run's process and its
children. The weights at the end are compared by their bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
WARM: Final = 20
DEADLINE_SECONDS: Final = 900.0


def document(steps: int) -> dict[str, Any]:
    """Return the job."""
    return {
        "name": "uncut",
        "kind": "train",
        "train": {
            "task": "causal_lm",
            "task_args": {"context": 64, "layers": 4, "heads": 4, "width": 128, "max_bytes": 2**20},
            "batch": {"size": 16, "micro_size": 4},
            "steps": steps,
            "log_every_steps": 1,
            "clip_grad_norm": 1.0,
        },
    }


def run(tree: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Train once with a checkout."""
    with tempfile.TemporaryDirectory(prefix="lockstep-uncut-") as name:
        folder = Path(name)
        (folder / "job.json").write_text(json.dumps(document(options.steps)))
        command = [sys.executable, "-m"]
        if options.ranks > 1:
            command += ["torch.distributed.run", "--standalone"]
            command += [f"--nproc-per-node={options.ranks}", "-m"]
        command += ["lockstep.engine", str(folder / "job.json"), "--out", str(folder / "out")]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            command,
            env=os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
            cwd=folder,
            stdout=subprocess.DEVNULL,
            timeout=DEADLINE_SECONDS,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        lines = next((folder / "out").rglob("metrics.jsonl")).read_text().splitlines()
        seconds = [json.loads(line)["values"].get("time/step_seconds") for line in lines]
        weights = next((folder / "out").rglob("model.safetensors")).read_bytes()
        header = 8 + int.from_bytes(weights[:8], "little")
        return {
            "steps": [each for each in seconds if each is not None][WARM:],
            "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
            "weights": hashlib.sha256(weights[header:]).hexdigest(),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description="Models that are not cut, now and before.")
    parser.add_argument("--before", type=Path, required=True, help="a checkout")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    options = parser.parse_args()
    trees = {"before": options.before.resolve(), "now": ROOT}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in trees}
    for number in range(options.rounds):
        for name in sorted(trees, reverse=bool(number % 2)):
            found[name].append(run(trees[name], options))
    step = {
        name: statistics.median(statistics.median(each["steps"]) for each in runs)
        for name, runs in found.items()
    }
    cpu = {name: statistics.median(each["cpu"] for each in runs) for name, runs in found.items()}
    for name in trees:
        print(f"{name:8} step {step[name] * 1e3:8.2f} ms   cpu {cpu[name]:7.2f} s")
    equal = len({each["weights"] for runs in found.values() for each in runs}) == 1
    print(
        f"now / before: step {step['now'] / step['before']:.3f}, "
        f"cpu {cpu['now'] / cpu['before']:.3f}; weights {'equal bit by bit' if equal else 'DIFFER'}"
    )
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
