"""Process that computes a memory forecast: it keeps torch and the user's code out of its caller.

Not here: request and answer (``domain.training.predicted``), the computation
(``engine.memory.job_forecast``).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from lockstep.domain.kinds.devices import HIDDEN
from lockstep.domain.training.predicted import (
    DEADLINE_SECONDS,
    ForecastAnswer,
    ForecastRequest,
    answer_of,
)

_MODULE: Final = "lockstep.engine.memory.job_forecast"


class ForecastProcess:
    """Computation of forecasts in a subprocess.

    Parameters
    ----------
    environment : Mapping of str to str or None
        Environment of the subprocess; None for the caller's own. It sees no device.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def __call__(self, request: ForecastRequest) -> ForecastAnswer:
        """Return the answer of the subprocess, or the reason why there is no forecast."""
        environment = os.environ if self._environment is None else self._environment
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", _MODULE, str(os.getpid())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**environment, **HIDDEN, "OMP_NUM_THREADS": "1"},
            )
        except OSError as error:
            return ForecastAnswer(why=f"its process could not be started: {error}")
        with process:
            self._process = process
            try:
                output, _ = process.communicate(
                    request.model_dump_json().encode(), timeout=DEADLINE_SECONDS
                )
            except subprocess.TimeoutExpired:
                process.kill()
                return ForecastAnswer(why=f"it took longer than {DEADLINE_SECONDS:.0f} s")
            finally:
                self._process = None
        return answer_of(request, output, process.returncode)

    def close(self) -> None:
        """Kill the subprocess, which would delay the exit of this program."""
        process = self._process
        if process is not None:
            process.kill()
