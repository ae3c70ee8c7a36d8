"""Section about the files that a job keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from lockstep.domain import limits
from lockstep.domain.errors import FieldError, at_field
from lockstep.domain.spec.fields import NO_BOOL, Section, no_nul
from lockstep.system.patterns import PatternError, Patterns

EVERYTHING: Final = ("**",)


def _pattern(text: str) -> str:
    try:
        Patterns([text])
    except PatternError as error:
        raise at_field(
            (), f"expected a pattern as in .gitignore: {error}", "such as out/ or *.pt"
        ) from None
    return text


Pattern = Annotated[
    str,
    Field(min_length=1, max_length=limits.KEPT_PATH_CHARS_MAX),
    AfterValidator(no_nul),
    AfterValidator(_pattern),
]


class Outputs(Section):
    """Files that the job's own code writes, which are kept while it runs and after its end."""

    keep: Annotated[list[Pattern], Field(max_length=limits.KEPT_PATTERNS_MAX)] = Field(
        default_factory=lambda: [*EVERYTHING]
    )
    """Patterns as in ``.gitignore`` of what is kept of the working folder: ``[out/, "*.pt"]``, or
    ``["**", "!data/"]``. An empty list keeps nothing. Never kept: ``__pycache__``, ``.git``,
    ``.cache``, links, and files of the code that are unchanged. With ``code: {path: …}`` only
    ``$LOCKSTEP_OUTPUT`` is kept."""
    restore: bool = True
    """Give the files to the next attempt, before it starts."""
    max_gb: Annotated[float, Field(gt=0, le=limits.KEPT_GB_MAX), NO_BOOL] = 20.0
    """Size of all kept files in GB. Files beyond it are named in an event and not kept; the job
    continues."""

    @property
    def bytes_max(self) -> int:
        return int(self.max_gb * 1e9)


def keep_refusals(keep: Sequence[str]) -> Iterator[FieldError]:
    """The error about patterns that all take names away. Stored ones stay readable."""
    if keep and all(pattern.startswith("!") for pattern in keep):
        yield FieldError(
            "/outputs/keep",
            "expected a pattern that selects files: each of these takes names away, so nothing "
            "would be kept",
            list(keep),
            'put "**" first, which selects everything; an empty list keeps nothing',
        )
