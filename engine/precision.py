"""The number format of forward and backward.

Not here: what the parameters are kept in, which is the task's model (float32 unless it says otherwise).
"""

from __future__ import annotations

from torch import Tensor


class Precision:
    """Float32: nothing is cast and nothing is scaled."""

    def scaled(self, objective: Tensor) -> Tensor:
        """The objective as backward gets it."""
        return objective
