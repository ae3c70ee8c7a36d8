"""Ready nodes by what they offer.

Not here: the form of the names (``domain.kinds.offers``), free devices
(``domain.scheduling.capacity``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lockstep.domain.scheduling.state import ClusterNode, JobRequest, WaitCode, WaitReason


class Offers:
    """Ready nodes by what they offer, during one decision."""

    def __init__(self, ready: Sequence[ClusterNode]) -> None:
        self._all = (1 << len(ready)) - 1
        self._nodes: defaultdict[str, int] = defaultdict(int)
        """A bit for each node that offers the name."""
        for number, node in enumerate(ready):
            for name in node.offers:
                self._nodes[name] |= 1 << number

    def nodes(self, needs: frozenset[str]) -> int:
        """Return a bit for each node that offers all of these."""
        found = self._all
        for name in needs:
            found &= self._nodes.get(name, 0)
        return found

    def refusal(self, job: JobRequest) -> WaitReason | None:
        """Return why too few ready nodes offer what a job needs; None if enough do."""
        found = self.nodes(job.needs).bit_count()
        if found >= job.nodes:
            return None
        missing = tuple(sorted(job.needs - self._nodes.keys()))
        facts = {"offers": tuple(sorted(job.needs)), "missing": missing}
        return WaitReason(WaitCode.NEEDS, {**facts, "nodes": job.nodes, "ready": found})
