"""Names of settings and metrics that jobs have, and the columns that a short name means.

A name that only jobs of other projects have does not exist for a caller.

Not here: names of the columns that each job has (``domain.listing.columns``).
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Connection, FromClause, Select, exists, func, select

from lockstep.domain.listing.columns import OF_JOBS, SEVERAL, Column, reference_of
from lockstep.domain.listing.tokens import TokenError, unknown
from lockstep.domain.rights import Within
from lockstep.domain.training.metrics import SYSTEM
from lockstep.storage.db.database import Database
from lockstep.storage.db.dialects import table_of
from lockstep.storage.db.listing_tables import JobValueRow
from lockstep.storage.db.series_tables import SeriesLatestRow
from lockstep.storage.jobs.columns import JOBS, readable

NAMES_MAX: Final = 2_000
"""Names that are read for one answer."""


class Names:
    """Columns by their names, for a caller that reads the projects ``among``."""

    def __init__(self, database: Database, among: Within) -> None:
        self._database = database
        self._among = among
        self._settings: list[str] | None = None

    def column(self, text: str) -> Column:
        """Return the column of a name.

        Raises
        ------
        TokenError
            If no readable job has it, or several settings end so.
        """
        found = reference_of(text)
        if found.source in ("job", "label"):
            return Column(found.source, found.name)
        if found.source == "metric":
            if not self._has_metric(found.name):
                raise unknown(found.name, [*self.metrics(), *self.settings()])
            return Column("metric", found.name, found.part or "last")
        if setting := self._setting(found.name):
            return setting
        if found.source is None and self._has_metric(found.name):
            return Column("metric", found.name)
        raise unknown(found.name, [*OF_JOBS, *SEVERAL, *self.settings(), *self.metrics()])

    def _setting(self, name: str) -> Column | None:
        """Return the column of a setting, from its path or the end of it."""
        paths = self.settings()
        if name in paths:
            return Column("setting", name, paths=(name,))
        fitting = [path for path in paths if path.endswith(f".{name}")]
        if len(fitting) == 1:
            return Column("setting", fitting[0], paths=(fitting[0],))
        # A train job and a script have it in different sections.
        if len({path.partition(".")[0] for path in fitting}) < len(fitting):
            raise TokenError(
                f"{name} means several settings", f"Write one of {', '.join(fitting)}."
            )
        return Column("setting", name, paths=tuple(reversed(fitting))) if fitting else None

    def settings(self) -> list[str]:
        """Return the paths of the settings of readable jobs."""
        if self._settings is None:
            with self._database.look_jobs() as connection:
                rows = table_of(JobValueRow)
                self._settings = _distinct(connection, rows, "key", self._among)
        return self._settings

    def metrics(self) -> list[str]:
        """Return the names of the metrics of readable jobs, without the system's."""
        with self._database.look_lists() as connection:
            found = _distinct(connection, table_of(SeriesLatestRow), "name", self._among)
        return [name for name in found if not name.startswith(SYSTEM)]

    def _has_metric(self, name: str) -> bool:
        row = table_of(SeriesLatestRow)
        with self._database.look_lists() as connection:
            found = select(_of_readable(row, row.c.name == name, self._among))
            return bool(connection.scalar(found))


def _of_readable(row: FromClause, condition: Any, among: Within) -> Any:
    """Condition: a readable job has a row."""
    found = exists().where(condition)
    if among.projects is None:
        return found
    return found.where(JOBS.c.id == row.c.job_id, readable(among))


def _distinct(connection: Connection, row: FromClause, column: str, among: Within) -> list[str]:
    """Return the distinct values of the first column of an index, each by one step in it."""
    first = select(func.min(row.c[column]).label("name"))
    walk = first.cte("walk", recursive=True)
    following = select(func.min(row.c[column])).where(row.c[column] > walk.c.name).scalar_subquery()
    walk = walk.union_all(select(following).where(walk.c.name.is_not(None)))
    names: Select[Any] = select(walk.c.name).where(walk.c.name.is_not(None)).limit(NAMES_MAX)
    if among.projects is not None:
        names = names.where(_of_readable(row, row.c[column] == walk.c.name, among))
    return list(connection.scalars(names))
