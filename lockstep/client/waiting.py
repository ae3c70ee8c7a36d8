"""The queue and the shares of projects, as methods of ``client.api.Client``.

Not here: jobs (``client.api``), requests and retries (``client.transport``).
"""

from __future__ import annotations

from urllib.parse import quote

from lockstep.client.transport import Transport
from lockstep.domain.queue_views import SharesView, WhyView


class WaitingMethods:
    """Methods about waiting jobs. Fields are those of ``domain.queue_views``."""

    transport: Transport

    def shares(self) -> SharesView:
        """Shares of the projects that the caller may read."""
        return self.transport.get("/v1/shares", SharesView)

    def why(self, reference: str) -> WhyView:
        """Return why a job waits, when it starts, and what is ahead of it."""
        return self.transport.get(f"/v1/jobs/{quote(reference, safe='')}/why", WhyView)
