"""Rendezvous of the launchers of an attempt's nodes, before any rank starts.

Node rank 0 opens a store at the address that its agent published; the others connect to it, and
each waits until all are there. Torch's own static rendezvous does this too, but waits inside C++,
where a stop cannot interrupt it: one node may fetch a checkpoint for minutes longer than another,
and a cancel has ten seconds. Here only a thread waits in C++, and the main thread checks ten times
a second.

A program on the port that is no store makes torch 2.13 wait forever, past its timeout. Node rank 0
therefore checks that its port is free, and reports a taken one, which ends the attempt everywhere.

Not here: the choice of address and port (the agent: ``worker.agent.addresses``), the ranks' own
store (``elastic``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed.elastic.rendezvous import RendezvousInfo, RendezvousStoreInfo
from torch.distributed.elastic.rendezvous.static_tcp_rendezvous import StaticTCPRendezvous

from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.start.gang import Gang, PeersUnreachableError

_POLL_SECONDS = 0.1
_REPORT_SECONDS = 10.0
"""A longer wait is reported in the job's log."""


class Rendezvous(StaticTCPRendezvous):
    """Torch's static rendezvous, except for the waiting.

    Parameters
    ----------
    gang : Gang
    bounds : Bounds
    """

    def __init__(self, gang: Gang, bounds: Bounds):
        super().__init__(
            master_addr=gang.rendezvous_host,
            master_port=gang.rendezvous_port,
            rank=gang.node_rank,
            world_size=gang.node_count,
            run_id=gang.run_id,
            timeout=int(bounds.rendezvous_seconds),
        )
        self._gang = gang
        self._deadline = time.monotonic() + bounds.rendezvous_seconds
        self._report_at = time.monotonic() + _REPORT_SECONDS
        self._where = f"{gang.rendezvous_host}:{gang.rendezvous_port}"

    def next_rendezvous(self) -> RendezvousInfo:
        """Wait for the other nodes.

        Raises
        ------
        OSError
            If another program has node rank 0's port.
        PeersUnreachableError
            If the nodes did not connect in time, or the attempt was ended meanwhile.
        """
        store = PrefixStore(self.run_id, self._connect())
        store.set(f"node{self.rank}", "here")
        names = {node: f"node{node}" for node in range(self.world_size)}
        self._wait(lambda: store.check(list(names.values())), lambda: self._missing(store, names))
        return RendezvousInfo(
            store,
            self.rank,
            self.world_size,
            RendezvousStoreInfo(self.master_addr, self.master_port),
        )

    def _missing(self, store: Store, names: dict[int, str]) -> str:
        absent = [str(node) for node, name in names.items() if not store.check([name])]
        return f"node rank {', '.join(absent)} did not connect to {self._where}"

    def _connect(self) -> Store:
        made: list[Store | Exception] = []

        def make() -> None:
            try:
                store = TCPStore(
                    self.master_addr,
                    self.master_port,
                    self.world_size,
                    self.rank == 0,
                    timeout=timedelta(seconds=self.timeout.total_seconds()),
                    wait_for_workers=False,
                    multi_tenant=True,
                )
                made.append(store)
            except Exception as error:  # noqa: BLE001 - raised again by the main thread
                made.append(error)

        threading.Thread(target=make, name="rendezvous", daemon=True).start()
        self._wait(lambda: bool(made), lambda: f"node rank 0 did not respond at {self._where}")
        store = made[0]
        if isinstance(store, Store):
            return store
        if self.rank == 0:
            raise OSError(
                f"the chosen port {self._where} cannot be opened; another program may have taken "
                f"it: {store}"
            )
        raise PeersUnreachableError(f"node rank 0 could not be reached at {self._where}: {store}")

    def _wait(self, done: Callable[[], bool], failure: Callable[[], str]) -> None:
        while not done():
            if self._gang.ended():
                raise PeersUnreachableError(
                    f"the attempt ended before all nodes were connected: {failure()}"
                )
            now = time.monotonic()
            if now >= self._deadline:
                raise PeersUnreachableError(
                    f"{failure()} within {self.timeout.total_seconds():g} s"
                )
            if now >= self._report_at:
                self._gang.log_line(f"Waiting for the attempt's other nodes: {failure()} yet.")
                self._report_at = float("inf")
            time.sleep(_POLL_SECONDS)
