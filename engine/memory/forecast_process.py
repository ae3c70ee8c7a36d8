"""Forecast beside a run, in a process of its own that costs the run little and cannot harm it.

Fake tensors take two seconds to import, and the forecast runs the user's code with tensors that
have no values. A task that keeps one of them (a mask in a cache) would pass it to the real run and
break it. A separate process therefore computes the forecast at a low priority while the run begins.
It receives one sample of the dataset and answers with one line of JSON: the predicted memory, and
the FLOPs of a sample. It dies with the run.

On the CPU that process is forked from the rank: with several ranks, DDP has already imported most
of the modules that fake tensors need, so half a second of work is left. A process that has used
CUDA cannot be forked into one that differentiates, so on CUDA a new one is started that sees no
GPU; it takes five seconds of another core.

    python -m lockstep.engine.memory PARENT < request > answer

Not here: the forecast (``engine.memory.forecast``) and the count (``engine.runtime.flops``).
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final, NoReturn

import torch
from torch.utils._pytree import tree_map_only

from lockstep.domain.kinds.devices import HIDDEN
from lockstep.domain.spec.train import Train
from lockstep.domain.training.memory import MemoryForecast
from lockstep.engine.data.fetching import die_with_parent, without_collections
from lockstep.engine.runtime.errors import describe
from lockstep.engine.task.loading import load_task

PRIORITY: Final = 10
"""Added to the rank's own: on a machine whose cores are all busy with ranks it gets a tenth of
one."""
_ANSWER_BYTES_MAX: Final = 64 * 1024
_WHY_CHARS_MAX: Final = 500


@dataclass(frozen=True)
class PredictionRequest:
    """Input of the process."""

    train: str
    """The spec's section, as JSON."""
    code: Path
    """Folder of the job's code."""
    micro_batch_size: int
    world_size: int
    sample: bytes
    """One item of the training dataset, pickled. Only after the task was loaded can it be read: it
    may be of a type of the task's own file."""


@dataclass(frozen=True)
class StartForecast:
    """Answer of the process."""

    memory: MemoryForecast | None = None
    why: str | None = None
    """Reason for a missing forecast."""
    flops_per_sample: float | None = None
    """Model FLOPs of forward and backward; None where they could not be counted."""


class PredictionProcess:
    """A forecast on its way.

    Parameters
    ----------
    train : Train
    code : Path
        Folder of the job's code.
    micro_batch_size, world_size : int
    sample : Any
        One item of the training dataset.
    forks : bool
        Whether the process may be forked from this one: not where CUDA is in use.
    """

    def __init__(
        self,
        train: Train,
        code: Path,
        *,
        micro_batch_size: int,
        world_size: int,
        sample: Any,
        forks: bool,
    ):
        self._predicted: StartForecast | None = None
        self._process: subprocess.Popen[bytes] | _Fork | None = None
        try:
            # A tensor that is a view would be pickled with all that it is a view of: often the
            # whole dataset.
            pickled = pickle.dumps(tree_map_only(torch.Tensor, torch.clone, sample))
        except Exception as error:  # noqa: BLE001 - a user's type may raise anything
            self._predicted = StartForecast(
                why=f"a sample of the dataset cannot be pickled: {describe(error)}"
            )
            return
        request = PredictionRequest(
            train.model_dump_json(), code, micro_batch_size, world_size, pickled
        )
        try:
            self._process, self._answer = _start(request, forks=forks)
        except OSError as error:
            self._predicted = StartForecast(why=f"its process could not be started: {error}")

    def arrived(self) -> StartForecast | None:
        """The answer, once, when it is there; None before and after. Never waits."""
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return None
            self._process = None
            self._answer.seek(0)
            self._predicted = _read(self._answer.read(_ANSWER_BYTES_MAX), code)
            self._answer.close()
        predicted, self._predicted = self._predicted, None
        return predicted

    def close(self) -> None:
        """Give up an answer that has not come."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
            self._answer.close()


def _start(
    request: PredictionRequest, *, forks: bool
) -> tuple[subprocess.Popen[bytes] | _Fork, IO[bytes]]:
    # Files, not pipes: neither side ever waits for the other.
    answer = tempfile.TemporaryFile()  # noqa: SIM115 - closed when it was read
    if forks:
        return _Fork(request, answer), answer
    with tempfile.TemporaryFile() as given:
        pickle.dump(request, given)
        given.seek(0)
        process = subprocess.Popen(
            [sys.executable, "-m", "lockstep.engine.memory", str(os.getpid())],
            stdin=given,
            stdout=answer,
            stderr=subprocess.DEVNULL,
            env=os.environ | HIDDEN | {"OMP_NUM_THREADS": "1"},
        )
    return process, answer


class _Fork:
    """Forked process that answers a request, with the subset of ``Popen`` that is used here."""

    def __init__(self, request: PredictionRequest, answer: IO[bytes]):
        parent = os.getpid()
        with warnings.catch_warnings(), without_collections():
            # Python warns of threads that hold a lock at this moment. The loader's is idle before
            # the first batch, the others hold none for long; a child that hangs all the same is
            # killed with the run, which never waits.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
            if self.pid == 0:
                _answer_in_child(request, answer, parent)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.returncode


def _answer_in_child(request: PredictionRequest, answers: IO[bytes], parent: int) -> NoReturn:
    gc.freeze()  # Garbage of the rank may wait for threads that this process does not have.
    gc.enable()
    code = 1
    try:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # The rank's own handlers belong to the run.
        faulthandler.disable()  # A crash here concerns this module alone and is part of the answer.
        die_with_parent(parent)
        be_quiet()
        torch.set_num_threads(1)  # The threads that the rank computed with are not here.
        answers.write(answer(request).encode())
        answers.flush()
        code = 0
    finally:
        os._exit(code)  # Nothing of the rank's is to be closed twice.


def be_quiet() -> None:
    """Lower the priority and discard output, which the run itself has already printed."""
    os.nice(PRIORITY)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _read(answer: bytes, code: int) -> StartForecast:
    try:
        document = json.loads(answer)
        memory = document["memory"]
        return StartForecast(
            memory=MemoryForecast.model_validate(memory) if memory is not None else None,
            why=document["why"],
            flops_per_sample=document["flops_per_sample"],
        )
    except (ValueError, KeyError, TypeError):
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        return StartForecast(why=f"its process ended {how} without a result")


def answer(request: PredictionRequest) -> str:
    """The process's side: one line of JSON."""
    predicted = _predict(request)
    document = asdict(predicted)
    document["memory"] = predicted.memory.model_dump() if predicted.memory is not None else None
    return json.dumps(document)


def _predict(request: PredictionRequest) -> StartForecast:
    # Imported here because it takes two seconds and the run itself does not use it.
    from lockstep.engine.memory.forecast import flops_per_sample, forecast
    from lockstep.engine.memory.sharing import NoForecastError

    try:
        train = Train.model_validate_json(request.train)
        task = load_task(train.task, train.task_args, request.code)
        sample = pickle.loads(request.sample)  # noqa: S301 - our own parent wrote it
    except Exception as error:  # noqa: BLE001 - a user's code runs here
        return StartForecast(why=describe(error)[:_WHY_CHARS_MAX])
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
    return StartForecast(memory, why, flops)
