"""Watchdog of a program's main loop: a program whose loop has ended or stands still ends.

A process that lives without its loop is worse than a dead one: its parent does not start it again.
The watchdog has its own thread. It ends the process when the loop has ended, or when it did not
report for too long. Otherwise it sends a sign of life to the parent, if that wants
one: ``lockstep up`` and systemd (``Type=notify``, ``WatchdogSec=``) then detect also a process
that is stopped as a whole.

The protocol is that of ``sd_notify``: a datagram ``WATCHDOG=1`` to the socket that
``NOTIFY_SOCKET`` names.

Not here: the reaction of the parent (``client.local.supervisor``).
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

LOOK_SECONDS: Final = 1.0
STANDSTILL_SECONDS: Final = 120.0
"""Above the sum of the time limits that one iteration of a loop may use up: locks and statements
of an absent database."""
EXIT_CODE: Final = 70
"""``EX_SOFTWARE`` of ``sysexits.h``."""
VARIABLE: Final = "NOTIFY_SOCKET"


class Watchdog:
    """Watchdog of one loop.

    Parameters
    ----------
    name : str
        Name of the loop in the message.
    standstill_seconds : float
        A loop that reports less often stands still. Only time in which this process ran counts: a
        machine that slept, or a process that was stopped and continued, has not stood still.
    end : callable
        Ends the process; takes the exit code.
    """

    def __init__(
        self,
        name: str,
        *,
        standstill_seconds: float = STANDSTILL_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        end: Callable[[int], None] = os._exit,
    ):
        self._name = name
        self._looks_max = max(1, round(standstill_seconds / look_seconds))
        self._look_seconds = look_seconds
        self._end = end
        self._looks = 0
        """Looks since the last report."""
        self._ending = False
        self._notify = _notifier(os.environ.get(VARIABLE, ""))

    def watch(self, runs: Callable[[], bool] = lambda: True) -> None:
        """Begin. ``runs`` returns whether the loop's thread is alive, where it has its own."""
        threading.Thread(target=self._run, args=(runs,), name="watchdog", daemon=True).start()

    def report(self) -> None:
        """Note that the loop runs. Any thread may call it."""
        self._looks = 0

    def let_end(self) -> None:
        """Accept that the loop ends from now on. Safe in a signal handler.

        The signs of life go on: an orderly end may take longer than the parent's patience.
        """
        self._ending = True

    def _run(self, runs: Callable[[], bool]) -> None:
        while True:
            time.sleep(self._look_seconds)
            self._looks += 1
            if not self._ending and not runs():
                self._give_up("has ended")
            elif not self._ending and self._looks > self._looks_max:
                self._give_up(f"did not report for {self._looks * self._look_seconds:.0f} s")
            self._notify()

    def _give_up(self, why: str) -> None:
        if self._ending:  # a stop that began meanwhile
            return
        with contextlib.suppress(Exception):  # the log may be closed
            sys.stderr.write(f"the {self._name} {why}: this process ends\n")
            faulthandler.dump_traceback(file=2, all_threads=True)
        self._end(EXIT_CODE)


def _notifier(address: str) -> Callable[[], None]:
    """Return the function that sends the sign of life."""
    if not address or not hasattr(socket, "AF_UNIX"):
        return lambda: None
    target = "\0" + address[1:] if address.startswith("@") else address
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sender.setblocking(False)

    def notify() -> None:
        with contextlib.suppress(OSError):  # the parent is gone, or does not read at the moment
            sender.sendto(b"WATCHDOG=1", target)

    return notify
