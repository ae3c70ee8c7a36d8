"""Ready nodes by what they offer.

Not here: the form of the names (``domain.kinds.offers``), free devices
(``domain.scheduling.capacity``).
"""

from __future__ import annotations

from collections.abc import Iterable

from lockstep.domain.scheduling.state import ClusterNode, JobRequest, WaitCode, WaitReason


class Offers:
    """Ready nodes by what they offer, during one decision."""

    def __init__(self, ready: Iterable[ClusterNode]) -> None:
        self._nodes: dict[str, set[str]] = {}
        for node in ready:
            for name in node.offers:
                self._nodes.setdefault(name, set()).add(node.name)
        self._found: dict[frozenset[str], int] = {}
        """Number of nodes by needs. Many queued jobs have the same."""

    def refusal(self, job: JobRequest) -> WaitReason | None:
        """Return why too few ready nodes offer what a job needs; None if enough do."""
        found = self._found.get(job.needs)
        if found is None:
            found = self._found[job.needs] = self._count(job.needs)
        if found >= job.nodes:
            return None
        missing = tuple(sorted(job.needs - self._nodes.keys()))
        facts = {"offers": tuple(sorted(job.needs)), "missing": missing}
        return WaitReason(WaitCode.NEEDS, {**facts, "nodes": job.nodes, "ready": found})

    def _count(self, needs: frozenset[str]) -> int:
        groups = sorted((self._nodes.get(name, set()) for name in needs), key=len)
        return len(set.intersection(*groups))
