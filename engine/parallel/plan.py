"""Tensor plans: the words of ``transformers``, and the modules that the lines of a plan name.

A line has a module's name, in which ``*`` stands for one part between dots, and a word:

* ``colwise``: a linear layer whose outputs are cut; the next layer works on the slice.
* ``packed_colwise:n``: the same, with n equal outputs side by side (query, key and value).
* ``colwise_gather_output``: the outputs are cut and then gathered, such as logits.
* ``rowwise``: a linear layer whose inputs are cut; its outputs are summed.
* ``embedding_rowwise``: an embedding whose rows are cut.
* ``replicated_with_grad_allreduce``: a whole module that works on slices, such as a norm of heads;
  the gradients of its parameters are summed.

Not here: slices (``engine.parallel.cut``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from torch import nn

from lockstep.engine.runtime.errors import BadSpecError

COLWISE: Final = "colwise"
PACKED: Final = "packed_colwise"
GATHERED: Final = "colwise_gather_output"
ROWWISE: Final = "rowwise"
EMBEDDING: Final = "embedding_rowwise"
SUMMED: Final = "replicated_with_grad_allreduce"
WORDS: Final = (COLWISE, f"{PACKED}:n", GATHERED, ROWWISE, EMBEDDING, SUMMED)


class PlanLine(NamedTuple):
    """A line of a plan, as it applies to one module."""

    pattern: str
    word: str
    packs: int = 1
    """Outputs side by side."""

    def __str__(self) -> str:
        word = self.word if self.word != PACKED else f"{PACKED}:{self.packs}"
        return f"{self.pattern}: {word}"


def lines_of(model: nn.Module, plan: Mapping[str, str]) -> dict[str, PlanLine]:
    """Return the line of each module that a plan names.

    Raises
    ------
    EngineError
        ``bad_spec``, for a word that is unknown, a line without a module, and a module with two
        words.
    """
    found: dict[str, PlanLine] = {}
    for pattern, text in plan.items():
        line = _line(pattern, text)
        names = matching(model, pattern)
        if not names:
            raise BadSpecError(
                f"tensor plan: no module of the model has the name {pattern!r} ({text}): write the "
                "names of named_modules(), with * for one part between dots",
            )
        for name in names:
            if name in found and found[name][1:] != line[1:]:
                raise BadSpecError(
                    f"tensor plan: {name} has two words, {found[name]} and {line}: remove one",
                )
            found[name] = line
    return found


def matching(model: nn.Module, pattern: str) -> list[str]:
    """Return the names of the modules that a line names."""
    parts = [r"[^.]+" if part == "*" else re.escape(part) for part in pattern.split(".")]
    named = re.compile(r"\.".join(parts))
    return [name for name, _ in model.named_modules() if named.fullmatch(name)]


def _line(pattern: str, text: object) -> PlanLine:
    word, _, packs = str(text).partition(":")
    if word == PACKED and packs.isdecimal() and int(packs):
        return PlanLine(pattern, word, int(packs))
    if text in (COLWISE, GATHERED, ROWWISE, EMBEDDING, SUMMED):
        return PlanLine(pattern, word)
    raise BadSpecError(
        f"tensor plan: {pattern!r} has the word {text!r}, which this version does not know; "
        f"expected one of {', '.join(WORDS)}",
    )
