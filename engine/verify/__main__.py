"""Verification of a job without the service.

    python -m lockstep.engine.verify examples/gpt.yaml [--layouts 1x8,2x4]

It does what ``lockstep verify`` does, with the launcher on this machine. Exit code 0: all runs
agree; 1: some do not, or a run was refused or failed; 2: wrong use.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
from pathlib import Path
from typing import Final

import torch

from lockstep.domain.errors import LockstepError
from lockstep.domain.verify import report
from lockstep.domain.verify.layouts import DEFAULT, CopyCut, Layout, read_layouts
from lockstep.domain.verify.runs import STEPS_MIN
from lockstep.domain.verify.session import Verification
from lockstep.engine.runtime import failure_text
from lockstep.engine.runtime.device import is_accelerator, kind_here
from lockstep.engine.task.spec_file import read_alone
from lockstep.engine.verify.local import LocalRuns, RunFailedError

_FAILED: Final = 1
_USAGE: Final = 2
_INTERRUPTED: Final = 130


def main(arguments: list[str] | None = None) -> int:
    """Verify a job and return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    kind = kind_here()
    try:
        layouts = read_layouts(options.layouts or DEFAULT)
        document, code = read_alone(options.file, options.code)
        if options.layouts is None:
            layouts = read_layouts(CopyCut.of(document).default)
        _require_fit(layouts, document["train"]["batch"]["size"], "samples in a batch")
        if is_accelerator(torch.device(kind)):
            count = torch.get_device_module(kind).device_count()
            _require_fit(layouts, count, "GPUs on this machine")
    except ValueError as error:
        parser.error(str(error))
    except LockstepError as refused:
        sys.stderr.write(failure_text.refusal(refused))
        return _USAGE
    done = Verification(document, layouts, options.steps)
    # Its launchers are in sessions of their own: they would run on.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="lockstep-verify-") as folder:
            done.perform(LocalRuns(Path(folder), code, kind=kind, write_line=_write_line))
    except KeyboardInterrupt:
        return _INTERRUPTED
    except RunFailedError as error:
        _write_line(str(error))
        return _FAILED
    except LockstepError as refused:
        sys.stderr.write(failure_text.refusal(refused))
        return _USAGE
    finally:
        _print(done, options.output)
    return 0 if report.agrees(done) else _FAILED


def _require_fit(layouts: list[Layout], count: int, what: str) -> None:
    most = max(layout.world_size for layout in layouts)
    if most > count:
        raise ValueError(f"--layouts: {most} ranks are more than the {count} {what}")


def _print(done: Verification, output: str) -> None:
    """Print what was found, also if a run has failed."""
    if not done.rows:
        return
    if output == "json":
        sys.stdout.write(json.dumps(report.document(done), indent=2) + "\n")
        return
    rows = [report.COLUMNS, *report.table(done)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    sys.stdout.write("\n".join([*lines, *report.sentences(done)]) + "\n")


def _write_line(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m lockstep.engine.verify",
        description="Run a job in several layouts, with a kill and a resume, and compare.",
    )
    parser.add_argument("file", type=Path, help="YAML file of a job")
    parser.add_argument("--steps", type=_steps, default=20, help="optimizer steps of each run")
    parser.add_argument("--layouts", help=f"ranks x micro-batch ({DEFAULT})")
    parser.add_argument("--code", type=Path, help="folder of the code (default: of the file)")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    return parser


def _steps(text: str) -> int:
    if int(text) < STEPS_MIN:
        raise argparse.ArgumentTypeError(f"expected at least {STEPS_MIN}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
