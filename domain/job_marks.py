"""Body of a request that gives a job labels, a note, a star and a priority.

Not here: the labels of a spec (``domain.spec.job``).
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool

from lockstep.domain import limits
from lockstep.domain.schema_docs import Described
from lockstep.domain.spec.fields import NO_BOOL, no_nul

LabelKey = Annotated[
    str, Field(min_length=1, max_length=limits.LABEL_KEY_CHARS_MAX), AfterValidator(no_nul)
]
LabelValue = Annotated[str, Field(max_length=limits.LABEL_VALUE_CHARS_MAX), AfterValidator(no_nul)]
Note = Annotated[str, Field(max_length=limits.NOTE_CHARS_MAX), AfterValidator(no_nul)]


class JobMarks(Described, BaseModel):
    """Marks to change; an absent field stays. They change nothing of the training."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    labels: dict[LabelKey, LabelValue | None] | None = None
    """Labels to set; null removes one, and others stay."""
    note: Note | None = None
    """Text for readers of the job; empty or null removes it."""
    starred: StrictBool | None = None
    """A star that all readers see."""
    priority: Annotated[int, Field(ge=0, le=100), NO_BOOL] | None = None
    """Order among the jobs of its project, for a job that has not ended. The spec keeps its own."""
