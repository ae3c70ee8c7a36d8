"""Rendezvous of the launchers of an attempt's nodes, before any rank starts.

Node rank 0 opens a store at the address that its agent published; the others connect to it. Each
tells how many ranks it starts, waits until all have done so, and reads the port at which node rank
0's ranks open a store of their own. Torch's static rendezvous waits inside C++, where a stop cannot
interrupt it: one node may fetch a checkpoint for minutes longer than another, and a cancel has ten
seconds. Here only a thread waits in C++, and the main thread checks ten times a second.

A program on the port that is no store makes torch 2.13 wait forever, past its timeout. Node rank 0
reports a port that is taken, which ends the attempt everywhere.

The ranks' store is not the launchers': torch 2.13 puts no prefix on a shared one, so a second
``init_process_group`` in a rank finds the addresses of the first and hangs or dies (9 of 34
restarts worked; 26 of 26 without sharing).

Not here: the choice of address and port (the agent: ``worker.agent.addresses``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import DistNetworkError, DistStoreError

from lockstep.engine.launcher.bounds import Bounds
from lockstep.engine.launcher.start.gang import Gang, GangPlace, PeersUnreachableError
from lockstep.system.ports import quiet_port

_PORT_KEY = "ranks_port"
_POLL_SECONDS = 0.1
_REPORT_SECONDS = 10.0
"""A longer wait is reported in the job's log."""


class Rendezvous:
    """One meeting of the nodes.

    Parameters
    ----------
    gang : Gang
    bounds : Bounds
    """

    def __init__(self, gang: Gang, bounds: Bounds):
        self._gang = gang
        self._seconds = bounds.rendezvous_seconds
        self._deadline = time.monotonic() + bounds.rendezvous_seconds
        self._report_at = time.monotonic() + _REPORT_SECONDS
        self._where = f"{gang.rendezvous_host}:{gang.rendezvous_port}"

    def meet(self) -> GangPlace:
        """Wait for the other nodes.

        Raises
        ------
        OSError
            If another program has node rank 0's port.
        PeersUnreachableError
            If the nodes did not connect in time, or the attempt was ended meanwhile.
        """
        try:
            return self._agree(PrefixStore(self._gang.run_id, self._connect()))
        except (DistNetworkError, DistStoreError) as error:
            raise PeersUnreachableError(
                f"the rendezvous of the attempt's nodes failed at {self._where}: {error}"
            ) from error

    def _agree(self, store: Store) -> GangPlace:
        here = self._gang.node_rank
        if here == 0:
            store.set(_PORT_KEY, str(quiet_port()))
        store.set(f"ranks{here}", str(self._gang.ranks_here))
        self._wait_for_all(store, "ranks", "did not connect to")
        first = sum(int(store.get(f"ranks{node}")) for node in range(here))
        place = GangPlace(first=first, port=int(store.get(_PORT_KEY)))
        store.set(f"read{here}", "")
        if here == 0:  # The store ends with this object.
            self._wait_for_all(store, "read", "lost its connection to")
        return place

    def _wait_for_all(self, store: Store, key: str, failure: str) -> None:
        nodes = range(self._gang.node_count)
        keys = [f"{key}{node}" for node in nodes]

        def missing() -> str:
            absent = [str(node) for node in nodes if not store.check([keys[node]])]
            return f"node rank {', '.join(absent)} {failure} {self._where}"

        self._wait(lambda: store.check(keys), missing)

    def _connect(self) -> Store:
        gang = self._gang
        made: list[Store | Exception] = []

        def make() -> None:
            try:
                store = TCPStore(
                    gang.rendezvous_host,
                    gang.rendezvous_port,
                    gang.node_count,
                    gang.node_rank == 0,
                    timeout=timedelta(seconds=self._seconds),
                    wait_for_workers=False,
                )
                made.append(store)
            except Exception as error:  # noqa: BLE001 - raised again by the main thread
                made.append(error)

        threading.Thread(target=make, name="rendezvous", daemon=True).start()
        self._wait(lambda: bool(made), lambda: f"node rank 0 did not respond at {self._where}")
        store = made[0]
        if isinstance(store, Store):
            return store
        if gang.node_rank == 0:
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
                raise PeersUnreachableError(f"{failure()} within {self._seconds:g} s")
            if now >= self._report_at:
                self._gang.log_line(f"Waiting for the attempt's other nodes: {failure()} yet.")
                self._report_at = float("inf")
            time.sleep(_POLL_SECONDS)
