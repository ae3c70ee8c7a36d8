"""Start of ranks over several nodes, through ``torch.distributed.elastic``.

Forked ranks are released, as on one node, where torch would execute a program. Others are started
by exec.

The agent class is used directly. ``LaunchConfig`` would call ``torch.cuda.is_available()``, which
initialises CUDA in the launcher, and bind ranks to NUMA nodes by guess.

The ranks' own store is not shared with the launcher's: torch 2.13 puts no prefix on a shared store,
so a second ``init_process_group`` in a rank finds the addresses of the first and hangs or dies (9
of 34 restarts worked; 26 of 26 without sharing).

Not here: the rendezvous of the nodes (``engine.launcher.start.rendezvous``) and its time limit
(``Bounds.rendezvous_seconds``), the decision to end ranks (``engine.launcher.watch``), their
command (``engine.launcher.start.stub``), forks of ranks (``engine.launcher.start.forking``), an
attempt on one node (``engine.launcher.start.one_node``).
"""

from __future__ import annotations

import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch.distributed import DistNetworkError, DistStoreError
from torch.distributed.elastic.agent.server.api import WorkerGroup, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, api
from torch.distributed.elastic.multiprocessing.api import SubprocessContext

from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.start.forking import ForkedRank
from lockstep.engine.launcher.start.gang import Gang, PeersUnreachableError, RankProcess
from lockstep.engine.launcher.start.rendezvous import Rendezvous
from lockstep.system.ports import quiet_port

_STORE_PORT_KEY = "lockstep/ranks_store_port"
_STORE_READ_KEY = "lockstep/store_read{}"
_STORE_KEPT_SECONDS_MAX = 30.0
"""Longest time for which node rank 0, after its ranks succeeded, keeps the store for nodes that
have not read it. Reading takes milliseconds."""
_STOP_SECONDS_MAX = 24 * 3600
"""Longer than any stop's grace period, which the watch enforces."""


class ElasticLauncher:
    """Torch elastic with every service it offers beyond starting a gang switched off.

    Parameters
    ----------
    bounds : Bounds
    forked : sequence of ForkedRank
        One per rank of this node, or none.
    """

    def __init__(self, bounds: Bounds, forked: Sequence[ForkedRank] = ()):
        self._bounds = bounds
        self._forked = forked

    def run(self, gang: Gang, on_started: Callable[[Mapping[int, RankProcess]], None]) -> None:
        """See ``gang.Launcher.run``."""
        # Torch elastic installs handlers that raise for the signals named here. SIGTERM must stay
        # with the attempt, which stops gracefully. A name is required, and SIGQUIT is unused.
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGQUIT"
        spec = WorkerSpec(
            role="rank",
            local_world_size=gang.ranks_here,
            rdzv_handler=Rendezvous(gang, self._bounds),
            entrypoint=gang.argv[0],
            args=gang.argv[1:],
            max_restarts=0,
            monitor_interval=self._bounds.monitor_seconds,
        )
        try:
            _Agent(gang, spec, self._bounds, on_started, self._forked).run()
        except (DistNetworkError, DistStoreError) as error:
            where = f"{gang.rendezvous_host}:{gang.rendezvous_port}"
            raise PeersUnreachableError(
                f"the rendezvous of the attempt's nodes failed at {where}: {error}"
            ) from error


class _Agent(LocalElasticAgent):
    """Torch's agent, which also reports the processes that it started."""

    def __init__(
        self,
        gang: Gang,
        spec: WorkerSpec,
        bounds: Bounds,
        on_started: Callable[[Mapping[int, RankProcess]], None],
        forked: Sequence[ForkedRank],
    ):
        super().__init__(spec, logs_specs=_RankEnvironment(gang))
        self._forked = forked
        self._bounds = bounds
        self._gang = gang
        self._on_started = on_started

    def _start_workers(self, worker_group: WorkerGroup) -> dict[int, Any]:
        group: Any = worker_group  # torch declares the fields below as always None
        if self._gang.node_rank == 0:
            group.store.set(_STORE_PORT_KEY, str(quiet_port()))
        group.master_addr = self._gang.rendezvous_host
        group.master_port = int(group.store.get(_STORE_PORT_KEY))
        if self._gang.node_rank > 0:
            group.store.set(_STORE_READ_KEY.format(self._gang.node_rank), "")
        with _in_place_of_exec(self._released if self._forked else None):
            ids: dict[int, Any] = super()._start_workers(worker_group)
        context = self._pcontext
        assert isinstance(context, SubprocessContext), "the entrypoint is a program"
        context.close = self._closing(context.close)  # type: ignore[method-assign] # no hook in torch
        self._on_started(
            {
                worker.global_rank: context.subprocess_handlers[worker.local_rank].proc
                for worker in worker_group.workers
            }
        )
        return ids

    def _released(self, *, env: Mapping[str, str], local_rank_id: int, **_others: Any) -> _Handler:
        """Release a forked rank with the environment of the program that torch would execute."""
        rank = self._forked[local_rank_id]
        rank.begin({**os.environ, **env}, self._gang.launch_folder)
        return _Handler(rank)

    def _exit_barrier(self) -> None:
        """Keep node rank 0's store until the other nodes have read the ranks' port from it.

        Torch's own barrier waits for their *end*, so this node's result would come no earlier than
        the slowest node's.
        """
        deadline = time.monotonic() + _STORE_KEPT_SECONDS_MAX
        read = [_STORE_READ_KEY.format(node) for node in range(1, self._gang.node_count)]
        group: Any = self._worker_group
        while self._gang.node_rank == 0 and read and not group.store.check(read):
            if self._gang.ended() or time.monotonic() > deadline:
                return
            time.sleep(self._bounds.monitor_seconds)

    def _closing(self, close: Callable[[signal.Signals, int], None]) -> Callable[..., None]:
        """Return a function that ends the remaining ranks within Lockstep's grace period.

        Torch elastic calls it when one rank has failed, and at shutdown, with 30 s or a setting
        that not every version has. During a stop the ranks have the stop's grace period, after
        which the watch kills them: the death of one must not keep rank 0 from saving.
        ``close`` must send a signal, and SIGCONT is harmless.
        """

        def closing(death_sig: signal.Signals | None = None, timeout: int | None = None) -> None:  # noqa: ARG001 -- Lockstep's applies
            if self._gang.stopping():
                close(signal.SIGCONT, _STOP_SECONDS_MAX)
            else:
                self._gang.settle()
                # After the watch, which notes that the launcher sent SIGKILL.
                close(
                    death_sig or signal.SIGTERM, math.ceil(self._bounds.failure_grace_seconds) + 1
                )

        return closing


class _Handler:
    """A forked rank, as torch's ``SubprocessHandler``."""

    def __init__(self, proc: ForkedRank):
        self.proc = proc

    def close(self, death_sig: signal.Signals | None = None) -> None:
        os.killpg(self.proc.pid, death_sig or signal.SIGTERM)


@contextmanager
def _in_place_of_exec(start: Callable[..., _Handler] | None) -> Iterator[None]:
    """Start ranks with ``start``, if given. Torch has no hook for it."""
    torchs: Any = api
    before = torchs.get_subprocess_handler
    torchs.get_subprocess_handler = start or before
    try:
        yield
    finally:
        torchs.get_subprocess_handler = before


class _RankEnvironment(LogsSpecs):
    """Adds each rank's environment and redirects no output: the stub opens the pipes.

    If torch elastic opened them, its own copies of their write ends would stay open as long as its
    objects live, and no pipe would ever reach its end.
    """

    def __init__(self, gang: Gang):
        super().__init__()
        self._gang = gang

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        """Complete ``envs`` in place, as torch's own implementation does for its error files."""
        error_files: dict[int, str] = {}
        for local_rank, env in envs.items():
            rank = int(env["RANK"])
            error_files[local_rank] = str(self._gang.error_file(rank))
            env.update(self._gang.prepare(rank))
            env["TORCHELASTIC_ERROR_FILE"] = error_files[local_rank]
            env["TORCHELASTIC_USE_AGENT_STORE"] = str(False)
        inherit = dict.fromkeys(envs, "")
        return LogsDest(stdouts=inherit, stderrs=inherit, error_files=error_files)

    @property
    def root_log_dir(self) -> str:
        """Unused: nothing is redirected to files."""
        return os.devnull
