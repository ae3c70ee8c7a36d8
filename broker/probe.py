"""Check that the broker answers, for the readiness page.

No program of the service depends on the result.
"""

from __future__ import annotations

from lockstep.broker.app import TRANSPORT, make_app
from lockstep.broker.queues import CONTROL


def answers(broker_url: str, *, seconds_max: float = 1.0) -> bool:
    """Request one answer from the broker on a new connection, within about ``seconds_max``."""
    options = {**TRANSPORT, "socket_timeout": seconds_max, "socket_connect_timeout": seconds_max}
    app = make_app(broker_url, queue=CONTROL)
    try:
        with app.connection_for_write(transport_options=options) as connection:
            # Not `connect()`, which tries again for seconds. Opening a channel asks Redis for a
            # PONG.
            transport = connection.transport
            transport.close_connection(transport.establish_connection())
        return True
    except Exception:  # noqa: BLE001 -- whatever it was, there was no answer
        return False
    finally:
        app.close()
