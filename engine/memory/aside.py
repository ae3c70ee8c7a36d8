"""The forecast beside a run: worked out in a process of its own, which costs the run nothing and can do it no harm.

Fake tensors and ``MemTracker`` take two seconds to import, and the forecast itself runs the person's code with tensors
that have no values: a task that keeps one of them (a mask in a cache) would hand it to the real run, and break it. So a
process at the lowest priority does it while the run begins. It sees no GPU, gets one sample of the dataset, and answers
with one line of JSON: what was foretold, and how much arithmetic a sample takes. It dies with the run.

    python -m engine.memory PARENT < request > answer

Not here: the forecast (``engine.memory.forecast``) and the count (``engine.flops``).
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

import torch
from torch.utils._pytree import tree_map_only

from domain.memory import MemoryForecast
from domain.spec import Train
from engine.errors import describe
from engine.loading import load_task

_ANSWER_BYTES_MAX: Final = 64 * 1024
_WHY_CHARS_MAX: Final = 500


@dataclass(frozen=True)
class Request:
    """What the process needs to know."""

    train: str
    """The spec's section, as JSON."""
    code: Path
    """Folder of the job's code."""
    micro_batch_size: int
    world_size: int
    sample: bytes
    """One item of the training dataset, pickled. Only after the task was loaded can it be read: it may be of a type of
    the task's own file."""


@dataclass(frozen=True)
class Foretold:
    """What came of it."""

    memory: MemoryForecast | None = None
    why: str | None = None
    """Why there is no forecast."""
    flops_per_sample: float | None = None
    """Model FLOPs of forward and backward; None where they could not be counted."""


class Aside:
    """A forecast on its way.

    Parameters
    ----------
    train : Train
    code : Path
        Folder of the job's code.
    micro_batch_size, world_size : int
    sample : Any
        One item of the training dataset.
    """

    def __init__(self, train: Train, code: Path, *, micro_batch_size: int, world_size: int, sample: Any):
        self._foretold: Foretold | None = None
        self._process: subprocess.Popen[bytes] | None = None
        try:
            # A tensor that is a view would be pickled with all that it is a view of: often the whole dataset.
            pickled = pickle.dumps(tree_map_only(torch.Tensor, torch.clone, sample))
        except Exception as error:  # noqa: BLE001 - whatever a person's type raises
            self._foretold = Foretold(why=f"a sample of the dataset cannot be pickled: {describe(error)}")
            return
        request = Request(train.model_dump_json(), code, micro_batch_size, world_size, pickled)
        try:
            self._process, self._answer = _start(request)
        except OSError as error:
            self._foretold = Foretold(why=f"its process could not be started: {error}")

    def arrived(self) -> Foretold | None:
        """The answer, once, when it is there; None before and after. Never waits."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return None
            self._process = None
            self._answer.seek(0)
            self._foretold = _read(self._answer.read(_ANSWER_BYTES_MAX), code)
            self._answer.close()
        foretold, self._foretold = self._foretold, None
        return foretold

    def close(self) -> None:
        """Give up an answer that has not come."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._answer.close()


def _start(request: Request) -> tuple[subprocess.Popen[bytes], IO[bytes]]:
    # Files, not pipes: neither side ever waits for the other.
    answer = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it was read
    with tempfile.TemporaryFile() as given:
        pickle.dump(request, given)
        given.seek(0)
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [sys.executable, "-m", "engine.memory", str(os.getpid())],
            stdin=given,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            env=environment,
        )
    return process, answer


def _read(answer: bytes, code: int) -> Foretold:
    try:
        document = json.loads(answer)
        memory = document["memory"]
        return Foretold(
            memory=MemoryForecast.model_validate(memory) if memory is not None else None,
            why=document["why"],
            flops_per_sample=document["flops_per_sample"],
        )
    except (ValueError, KeyError, TypeError):
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        return Foretold(why=f"its process ended {how} and without an answer")


def answer(request: Request) -> str:
    """The process's side: one line of JSON."""
    foretold = _foretell(request)
    document = asdict(foretold)
    document["memory"] = foretold.memory.model_dump() if foretold.memory is not None else None
    return json.dumps(document)


def _foretell(request: Request) -> Foretold:
    # Imported here: it is what takes two seconds, and the run's own side has no use for it.
    from engine.memory.forecast import NoForecastError, flops_per_sample, forecast

    try:
        train = Train.model_validate_json(request.train)
        task = load_task(train.task, train.task_args, request.code)
        sample = pickle.loads(request.sample)  # noqa: S301 - our own parent wrote it
    except Exception as error:  # noqa: BLE001 - a person's own code runs here
        return Foretold(why=describe(error)[:_WHY_CHARS_MAX])
    memory, why, flops = None, None, None
    try:
        memory = forecast(
            task,
            train,
            micro_batch_size=request.micro_batch_size,
            world_size=request.world_size,
            sample=sample,
        )
    except NoForecastError as error:
        why = str(error)[:_WHY_CHARS_MAX]
    try:
        flops = flops_per_sample(task, sample)
    except NoForecastError as error:
        why = why or str(error)[:_WHY_CHARS_MAX]
    return Foretold(memory, why, flops)
