"""Selection of jobs by the query of a request.

Not here: its statements (``storage.jobs.listing``).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from lockstep.domain import limits
from lockstep.domain.life.lifecycle import JobState
from lockstep.storage.jobs import listing

# The pattern is documentation only. The reader of the cursor rejects an invalid one with its own
# error.
Cursor = Annotated[str, Field(max_length=100, json_schema_extra={"pattern": listing.CURSOR})]


ProjectPattern = Annotated[
    str | None,
    Field(
        max_length=65,
        description="The project, or a pattern: `*` stands for any text, in any case.",
        examples=["default"],
    ),
]


class JobFilter(BaseModel, extra="forbid"):
    """Selection of jobs for a list. All given conditions must hold."""

    state: Annotated[list[JobState], Field(max_length=len(JobState))] = []
    search: Annotated[
        str | None,
        Field(
            max_length=63,
            description="Part of the name, or a prefix or suffix of at least 4 characters of the id.",
            examples=["gpt"],
        ),
    ] = None
    name: Annotated[str | None, Field(max_length=63, examples=["stdlib-gpt"])] = None
    project: ProjectPattern = None
    owner: Annotated[
        str | None,
        Field(
            max_length=257,
            description="User who submitted the job, or a pattern: `*` stands for any text, in any "
            "case.",
            examples=["ada"],
        ),
    ] = None
    node: Annotated[
        str | None,
        Field(
            max_length=255,
            description="Node on which an attempt of the job was placed.",
            examples=["gpu-1"],
        ),
    ] = None
    label: Annotated[
        str | None,
        Field(
            pattern=r"^[^=]+=", max_length=320, description="`key=value`", examples=["team=vision"]
        ),
    ] = None
    cursor: Annotated[Cursor | None, Field(description="`next_cursor` of the previous page.")] = (
        None
    )
    limit: Annotated[int, Field(ge=1, le=limits.PAGE_SIZE_MAX)] = limits.PAGE_SIZE_DEFAULT
    order: Literal["newest", "oldest"] = "newest"

    def choice(self) -> listing.JobQuery:
        key, _, value = (self.label or "").partition("=")
        return listing.JobQuery(
            states=tuple(self.state),
            search=self.search or None,
            name=self.name,
            project=self.project,
            owner=self.owner,
            node=self.node,
            label=(key, value) if self.label else None,
            cursor=self.cursor,
            order=self.order,
        )
