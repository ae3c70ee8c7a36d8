"""Start of a node's ranks: forked ones are released, others are started by exec.

The ranks get the environment that torchrun would give them. A script on one node is started without
importing torch.

Not here: forks of ranks (``engine.launcher.start.forking``), the rendezvous of several nodes
(``engine.launcher.start.rendezvous``), watching the ranks (``engine.launcher.watch``).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence

from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.start.forking import ForkedRank
from lockstep.engine.launcher.start.gang import Gang, GangPlace, RankProcess
from lockstep.engine.launcher.start.processes import wait_for_an_end
from lockstep.system.ports import quiet_port


class RankLauncher:
    """Starts the ranks of one node. They are never restarted: retries belong to the service.

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
        """Start the ranks and return once each of them has ended.

        Runs in the main thread, which must not end before the ranks do. Once one rank has failed
        the others get SIGTERM.

        Parameters
        ----------
        gang : Gang
        on_started : callable
            Called once, when all ranks of this node run, with their processes by global rank.

        Raises
        ------
        PeersUnreachableError
            If the rendezvous of the nodes failed.
        Exception
            Any other error that prevented the start of the ranks.
        """
        place = self._place(gang)
        environs = [
            {**os.environ, **_as_torchrun(gang, place, local), **gang.prepare(place.first + local)}
            for local in range(gang.ranks_here)
        ]
        if gang.ended():
            return
        ranks = {
            place.first + local: self._start(gang, local, environ)
            for local, environ in enumerate(environs)
        }
        on_started(ranks)
        self._wait(gang, ranks)

    def _place(self, gang: Gang) -> GangPlace:
        if gang.node_count == 1:
            return GangPlace(first=0, port=quiet_port())
        from lockstep.engine.launcher.start.rendezvous import (
            Rendezvous,  # Imported here because it imports torch.
        )

        return Rendezvous(gang, self._bounds).meet()

    def _start(self, gang: Gang, local: int, environ: Mapping[str, str]) -> RankProcess:
        if not self._forked:
            return subprocess.Popen(gang.argv, env=environ, start_new_session=True)
        self._forked[local].begin(environ, gang.launch_folder)
        return self._forked[local]

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


def _as_torchrun(gang: Gang, place: GangPlace, local: int) -> dict[str, str]:
    """Variables of a rank under torchrun (torch's documentation of ``torchrun``)."""
    rank = place.first + local
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "ROLE_RANK": str(rank),
        "GROUP_RANK": str(gang.node_rank),
        "ROLE_NAME": "rank",
        "WORLD_SIZE": str(gang.world_size),
        "LOCAL_WORLD_SIZE": str(gang.ranks_here),
        "ROLE_WORLD_SIZE": str(gang.world_size),
        "GROUP_WORLD_SIZE": str(gang.node_count),
        "MASTER_ADDR": gang.rendezvous_host,
        "MASTER_PORT": str(place.port),
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": gang.run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
        "TORCHELASTIC_ERROR_FILE": str(gang.error_file(rank)),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
    }
