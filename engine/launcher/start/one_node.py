"""Start of ranks on one node: forked ones are released, others are started by exec.

No rendezvous is needed, so torch elastic is not used, and a script is started without importing
torch. The ranks get the environment that torchrun would give them.

Not here: forks of ranks (``engine.launcher.start.forking``), several nodes
(``engine.launcher.start.elastic``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.start.forking import ForkedRank
from lockstep.engine.launcher.start.gang import Gang, RankProcess
from lockstep.engine.launcher.start.processes import wait_for_an_end
from lockstep.system.ports import quiet_port


class OneNodeLauncher:
    """See ``engine.launcher.start.gang.Launcher``.

    Parameters
    ----------
    bounds : Bounds
    forked : sequence of ForkedRank
        One per rank, or none.
    """

    def __init__(self, bounds: Bounds, forked: Sequence[ForkedRank] = ()):
        self._bounds = bounds
        self._forked = forked

    def run(self, gang: Gang, on_started: Callable[[Mapping[int, RankProcess]], None]) -> None:
        """See ``gang.Launcher.run``."""
        port = quiet_port()
        environs = {
            rank: {**os.environ, **_as_torchrun(gang, rank, port), **gang.prepare(rank)}
            for rank in range(gang.ranks_here)
        }
        if gang.ended():
            return
        ranks = {rank: self._start(gang, rank, environ) for rank, environ in environs.items()}
        on_started(ranks)
        self._wait(gang, ranks)

    def _start(self, gang: Gang, rank: int, environ: Mapping[str, str]) -> RankProcess:
        if not self._forked:
            return subprocess.Popen(gang.argv, env=environ, start_new_session=True)
        self._forked[rank].begin(environ, gang.launch_folder)
        return self._forked[rank]

    def _wait(self, gang: Gang, ranks: Mapping[int, RankProcess]) -> None:
        """Wait until all have ended.

        Once one has failed the others get SIGTERM; the watch kills the rest.

        During a stop they get no SIGTERM: the others save, within the watch's time limit.
        """
        terminated = False
        while running := [process.pid for process in ranks.values() if process.poll() is None]:
            if (
                not terminated
                and not gang.stopping()
                and any(process.poll() for process in ranks.values())
            ):
                terminated = True
                gang.settle()
                _terminate(ranks)
            wait_for_an_end(running, self._bounds.monitor_seconds)


def _terminate(ranks: Mapping[int, RankProcess]) -> None:
    for process in ranks.values():
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


def _as_torchrun(gang: Gang, rank: int, port: int) -> dict[str, str]:
    """Variables of a rank under torchrun on one node (torch's documentation of ``torchrun``)."""
    count = str(gang.ranks_here)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "ROLE_RANK": str(rank),
        "GROUP_RANK": "0",
        "ROLE_NAME": "rank",
        "WORLD_SIZE": count,
        "LOCAL_WORLD_SIZE": count,
        "ROLE_WORLD_SIZE": count,
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": gang.rendezvous_host,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": gang.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": str(gang.error_file(rank)),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
