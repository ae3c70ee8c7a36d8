"""Advice for a run whose smallest micro-batch does not fit into memory.

Not here: the repetition of a step in smaller micro-batches (``engine.loop.oom_retry``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lockstep.domain.life.outcomes import Reason
from lockstep.engine.runtime.errors import EngineError, reason_of

ADVICE: Final = (
    "use a smaller model or shorter samples, activation_checkpointing: true, precision: bf16, or "
    "devices with more memory"
)


@contextmanager
def must_fit(what: str) -> Iterator[None]:
    """Raise the advice if ``what`` runs out of memory inside the block.

    Raises
    ------
    EngineError
        ``out_of_memory``. torch's own message is its cause.
    """
    try:
        yield
    except Exception as error:
        if isinstance(error, EngineError) or reason_of(error) is not Reason.OUT_OF_MEMORY:
            raise
        message = f"{what} does not fit into memory with micro-batches of one sample: {ADVICE}"
        raise EngineError(Reason.OUT_OF_MEMORY, message) from error
