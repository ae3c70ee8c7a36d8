"""A program of the service that kills or freezes itself at a precise moment.

``python -m tests.harness.faults.dying WHERE [RATE SEED]``, with the program's settings in its environment.
WHERE is

* ``answer``: the api; SIGKILL after a submit's commit and before its answer, for RATE of the
  submits;
* ``notifier``: the api; SIGKILL between a submit's commit and the notification;
* ``claim``: the node agent; SIGKILL after a claim's commit and before anything else, a heartbeat
  included;
* ``frozen-claim``: likewise, but SIGSTOP, so that a test may let it go on.

Only the programs' own seams are wrapped; all other code is unchanged.

Not here: its restart (``tests.harness.plane``), and the required result (the drills).
"""

from __future__ import annotations

import os
import random
import signal
import sys
from typing import Any

from tests.harness.node import FAKE_LAUNCHER


def die(how: signal.Signals = signal.SIGKILL) -> None:
    os.kill(os.getpid(), how)


def die_before_answers(rate: float, chance: random.Random) -> None:
    from lockstep.api import serving

    create_app = serving.create_app

    class Deadly:
        def __init__(self, app: Any) -> None:
            self._app = app

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            async def answer(message: Any) -> None:
                if (
                    message["type"] == "http.response.start"
                    and message["status"] == 201
                    and chance.random() < rate
                ):
                    die()
                await send(message)

            await self._app(scope, receive, answer)

    def create(*parts: Any, **options: Any) -> Any:
        app = create_app(*parts, **options)
        app.add_middleware(Deadly)
        return app

    serving.create_app = create


def die_before_notifications() -> None:
    from lockstep.api import serving

    class Publisher(serving.Publisher):
        def publish(self, _message: Any) -> None:
            die()

    serving.Publisher = Publisher  # type: ignore[misc]  # a stand-in for the class


def die_after_claims(how: signal.Signals) -> None:
    from lockstep.worker.agent.assignment import Attempt

    begin = Attempt.begin

    def begun(*arguments: Any, **named: Any) -> Attempt:
        die(how)
        return begin(*arguments, **named)

    Attempt.begin = begun  # type: ignore[assignment,method-assign]  # called on the class alone


def main(where: str, rate: float = 1.0, seed: int = 0) -> int:
    if where in {"answer", "notification"}:
        from lockstep.api import server

        if where == "answer":
            die_before_answers(rate, random.Random(seed))
        else:
            die_before_notifications()
        return server.main([])
    from lockstep.system import logs
    from lockstep.worker import service
    from lockstep.worker.settings import AgentSettings

    die_after_claims({"claim": signal.SIGKILL, "frozen-claim": signal.SIGSTOP}[where])
    settings = AgentSettings()
    logs.configure(settings.log_format, "stderr")
    service.run(settings, launcher_command=FAKE_LAUNCHER)
    return 0


if __name__ == "__main__":
    sys.exit(
        main(
            sys.argv[1],
            *(kind(word) for kind, word in zip((float, int), sys.argv[2:], strict=False)),
        )
    )
