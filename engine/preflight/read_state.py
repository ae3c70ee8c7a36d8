"""State that calls of a task change and read, and the warnings about it.

Not here: the search for it (``engine.preflight.fast_forward``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lockstep.engine.runtime.errors import listed


@dataclass(frozen=True)
class ReadState:
    """State that the loss changes and reads."""

    name: str
    calls: int
    """Number of calls after which the loss was seen to read it; 0 if it does at once."""
    of_module: bool
    """True for a parameter or a buffer."""
    evaluates: bool = False
    """True if evaluate() alone reads it."""
    is_first: bool = False
    """True if the first call alone sets it."""

    def __str__(self) -> str:
        return f"{self.name}, read after {self.calls:,} calls" if self.calls else self.name


def warnings_of(found: Iterable[ReadState], known: Sequence[str]) -> list[str]:
    """Return a warning about the state that no known warning names.

    Parameters
    ----------
    found : iterable of ReadState
    known : sequence of str
        Other warnings of this start. Those about changed parameters and buffers name all of them.
    """
    modules = any(text.startswith("loss() changes") for text in known)
    new = [
        each
        for each in found
        if not (each.of_module and modules) and not any(each.name in text for text in known)
    ]
    first = [str(each) for each in new if each.is_first]
    moving = [each for each in new if not each.is_first]
    return [
        f"{by} reads state that calls of the task change ({listed(names)}): the state moves with "
        f"each micro-batch of a rank, so {what} on micro_size and on the ranks: make {by} depend "
        "on the model and the batch only"
        for by, names, what in (
            ("loss()", [str(e) for e in moving if not e.evaluates], "the run depends"),
            ("evaluate()", [str(e) for e in moving if e.evaluates], "its metrics depend"),
        )
        if names
    ] + [
        f"loss() reads values that its first call takes from the samples ({listed(names)}): each "
        "rank takes those of its own first micro-batch, so the run depends on micro_size and on "
        "the ranks: compute them from dataset() in model() or in the constructor"
        for names in (first,)
        if names
    ]
