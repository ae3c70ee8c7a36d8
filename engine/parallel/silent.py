"""Links and mesh of a stage whose neighbours do not exist, for forecasts. Nothing is sent.

Not here: the links of a run (``engine.parallel.links``), the tensor group of a forecast
(``engine.parallel.collectives``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

import torch
from torch import Tensor

from lockstep.domain.spec.parallel import Parallel
from lockstep.domain.training.layout import RankLayout, RankPlace
from lockstep.engine.parallel.links import Form, Links
from lockstep.engine.runtime.mesh import Mesh
from lockstep.engine.runtime.ranks import Ranks


class SilentLinks(Links):
    """Messages of one stage, as far as they take memory.

    Parameters
    ----------
    received : Form, optional
        Form of the activation of the stage before; None on the first stage.
    count : int
        Of the stages.
    """

    def __init__(self, received: Form | None, count: int):
        self._received = received
        self.timeline = None
        self.sent: Form | None = None
        """Form of the activation for the next stage, once one was sent."""
        self._kept: deque[Tensor] = deque(maxlen=2 * (count + 1))
        """As many messages as a stage keeps while they are being sent."""

    @property
    def under_way(self) -> list[Tensor]:
        """Messages that are being sent."""
        return list(self._kept)

    def send_activation(self, key: Hashable, activation: Tensor) -> None:  # noqa: ARG002 - as in the base class
        """Keep an activation, and note its form."""
        self.sent = Form(activation.dtype, tuple(activation.shape), activation.requires_grad)
        self._kept.append(activation.detach().contiguous())

    def receive_activation(self, key: Hashable) -> Tensor:  # noqa: ARG002 - as in the base class
        """Return an activation without values."""
        assert self._received is not None, "the first stage receives nothing"
        form = self._received
        found = torch.empty(form.shape, dtype=form.dtype)
        return found.requires_grad_(form.has_gradient and torch.is_grad_enabled())

    def send_gradient(self, gradient: Tensor) -> None:
        """Keep a gradient."""
        self._kept.append(gradient.contiguous())

    def receive_gradient(self, activation: Tensor) -> Tensor:
        """Return a gradient without values."""
        return torch.empty(activation.shape, dtype=activation.dtype)

    def finish(self) -> None:
        """Forget all messages."""
        self._kept.clear()


class SilentMesh(Mesh):
    """Mesh of a rank whose tensor group and other stages do not exist."""

    @classmethod
    def at(cls, stage: int, parallel: Parallel, ranks: Ranks) -> SilentMesh:
        """Return the mesh of the first rank of a stage.

        Parameters
        ----------
        stage : int
        parallel : Parallel
        ranks : Ranks
            Those that the strategy sees.
        """
        layout = RankLayout(1, parallel.tensor_size, parallel.stages)
        return cls(layout, Ranks(rank=layout.rank(RankPlace(stage, 0, 0))), ranks)

    def groups_of_stages(self, stages: tuple[int, ...], *, on_host: bool = False) -> None:
        """Return no group: a sum over stages takes no memory."""
