"""Minimal program with ``broker.consumer`` that prints each notification.

It also prints each heartbeat of its supervisor. Run as ``python listener.py BROKER_URL``.
"""

from __future__ import annotations

import sys
import threading

from lockstep.broker.app import make_app
from lockstep.broker.consumer import consume
from lockstep.broker.messages import StartAssignment, WakeScheduler
from lockstep.broker.queues import CONTROL
from lockstep.system.watchdog import Watchdog


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Heartbeats:
    def __init__(self) -> None:
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self) -> None:
        self.thread.start()

    def run(self) -> None:
        while not self.ending.wait(0.1):
            say("heartbeat")
        say("supervisor ended")

    def request_stop(self) -> None:
        self.ending.set()

    def join(self) -> None:
        self.thread.join()

    def runs(self) -> bool:
        return self.thread.is_alive()


app = make_app(sys.argv[1], queue=CONTROL)


@app.task(name=WakeScheduler.task)  # type: ignore[untyped-decorator]  # celery publishes no types
def received() -> None:
    say("received")


@app.task(name=StartAssignment.task)  # type: ignore[untyped-decorator]  # celery publishes no types
def start(assignment_id: str) -> None:
    say(f"start {assignment_id}")


consume(
    app,
    Heartbeats(),
    name="listener@test",
    end_seconds=lambda: 5.0,
    watchdog=Watchdog("heartbeats"),
)
