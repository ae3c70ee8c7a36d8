"""Selection, order and columns of a list of jobs, by the query of a request.

Not here: its statements (``storage.jobs.listing``), the grammar (``domain.listing``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import BaseModel, Field

from lockstep.domain import limits
from lockstep.domain.life.lifecycle import JobState
from lockstep.domain.listing.columns import NEWEST, SEVERAL, Column, Sort
from lockstep.domain.listing.tokens import TokenError, refusal, tokens_of
from lockstep.domain.rights import Within
from lockstep.storage.db.database import Database
from lockstep.storage.jobs import cursors, listing
from lockstep.storage.jobs.conditions import Condition, condition_of
from lockstep.storage.jobs.names import Names

COLUMN_CHARS_MAX = 220
COLUMNS_MAX = 30
FILTER_CHARS_MAX = 40 * limits.SERIES_JOBS_MAX
"""Room for as many ids as can be compared, with commas between them."""
T = TypeVar("T")

# The pattern is documentation only. The reader of the cursor rejects an invalid one with its own
# error.
Cursor = Annotated[
    str, Field(max_length=cursors.CHARS_MAX, json_schema_extra={"pattern": cursors.CURSOR})
]


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

    filter: Annotated[
        str | None,
        Field(
            max_length=FILTER_CHARS_MAX,
            description="Tokens with spaces between them (docs/lists.md): words of the name, and "
            "fields with a value.",
            examples=["owner:ada gpus>4"],
        ),
    ] = None
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
    sort: Annotated[
        str,
        Field(
            min_length=1,
            max_length=COLUMN_CHARS_MAX,
            description="Column, with `-` before it for the largest first: `-created` (the "
            "default), `name`, `setting:train.optimizer.lr`, `metric:val/loss:min`. Jobs without a "
            "value come last.",
            examples=["-created"],
        ),
    ] = "-created"
    columns: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=COLUMN_CHARS_MAX)]],
        Field(
            max_length=COLUMNS_MAX,
            description="Settings and metrics whose values each job has in `values`.",
            examples=[["lr"]],
        ),
    ] = []
    totals: Annotated[
        bool, Field(description="True adds the totals of all pages: jobs by state, devices.")
    ] = False
    group: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=COLUMN_CHARS_MAX,
            description="Adds to the totals those of each value of a column: `owner`, `project`, "
            "`label:KEY`, or a setting.",
            examples=["owner"],
        ),
    ] = None
    cursor: Annotated[Cursor | None, Field(description="`next_cursor` of the previous page.")] = (
        None
    )
    limit: Annotated[int, Field(ge=1, le=limits.PAGE_SIZE_MAX)] = limits.PAGE_SIZE_DEFAULT

    def asked(self, database: Database, *, among: Within) -> AskedList:
        """Return the list that this asks for.

        Parameters
        ----------
        database : Database
        among : Within
            Projects that the caller may read.

        Raises
        ------
        LockstepError
            ``INVALID`` for names that no job has, and for tokens that cannot be used, with each.
        """
        names = Names(database, among)
        key, _, value = (self.label or "").partition("=")
        choice = listing.JobQuery(
            states=tuple(self.state),
            search=self.search or None,
            name=self.name,
            project=self.project,
            owner=self.owner,
            node=self.node,
            label=(key, value) if self.label else None,
            conditions=_conditions(self.filter, names) if self.filter else (),
            cursor=self.cursor,
            sort=_each("sort", [self.sort], lambda text: _sort(text, names))[0],
        )
        columns = _each("columns", self.columns, names.column)
        group = [] if self.group is None else [self.group]
        by = _each("group", group, lambda text: _group(text, names))
        return AskedList(choice, tuple(columns), self.totals, by[0] if by else None, self.limit)


@dataclass(frozen=True)
class AskedList:
    """A list of jobs whose columns are known."""

    choice: listing.JobQuery
    columns: tuple[Column, ...]
    totals: bool
    group: Column | None
    limit: int


def _conditions(text: str, names: Names) -> tuple[Condition, ...]:
    found, wrong = [], []
    for token in tokens_of(text):
        try:
            column = names.column(token.field) if token.field else None
            found.append(condition_of(token, column))
        except TokenError as error:
            wrong.append((token.text, error))
    if wrong:
        raise refusal(wrong)
    return tuple(found)


def _each(parameter: str, texts: list[str], read: Callable[[str], T]) -> list[T]:
    found, wrong = [], []
    for text in texts:
        try:
            found.append(read(text))
        except TokenError as error:
            wrong.append((text, error))
    if wrong:
        raise refusal(wrong, parameter)
    return found


def _sort(text: str, names: Names) -> Sort:
    if text == str(NEWEST):
        return NEWEST
    column = names.column(text.removeprefix("-"))
    if column.source == "label" or str(column) in SEVERAL:
        raise TokenError("is no order", "Group by it, or sort by another column.")
    return Sort(column, text.startswith("-"))


def _group(text: str, names: Names) -> Column:
    column = names.column(text)
    if column.source in ("label", "setting") or text in ("owner", "project", "kind", "name"):
        return column
    raise TokenError(
        "makes no groups", "Group by owner, project, kind, name, label:KEY or a setting."
    )
