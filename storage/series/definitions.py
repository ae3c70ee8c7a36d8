"""Definitions of a job's series, stored with the offset of the file that has them.

Not here: their fields and defaults (``domain.training.definitions``, ``domain.training.series``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from pydantic import ValidationError
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from lockstep.domain import limits
from lockstep.domain.training.definitions import SeriesDefinition
from lockstep.storage.db.dialects import for_each, run, table_of
from lockstep.storage.db.series_tables import SeriesDefinitionRow

_TABLE: Final = table_of(SeriesDefinitionRow).c
_OF_JOBS: Final = select(_TABLE.job_id, _TABLE.name, _TABLE.definition).where(
    _TABLE.job_id.in_(bindparam("job_ids", expanding=True))
)
_NAMES: Final = select(_TABLE.name).where(_TABLE.job_id == bindparam("of_job"))
_STORED: Final = for_each(
    SeriesDefinitionRow,
    lambda insert: insert.on_conflict_do_update(
        index_elements=["job_id", "name"], set_={"definition": insert.excluded.definition}
    ),
)


def store(
    session: Session, job_id: str, definitions: Mapping[str, SeriesDefinition]
) -> tuple[str, ...]:
    """Store definitions over earlier ones of the same names; return the names beyond the limit.

    The caller holds the lock of the attempt's stream (``storage.series.streams.advance``).
    """
    if not definitions:
        return ()
    known = {row.name for row in run(session, _NAMES, {"of_job": job_id})}
    room = max(0, limits.METRIC_NAMES_PER_JOB_MAX - len(known))
    refused = dict.fromkeys([name for name in definitions if name not in known][room:])
    rows = [
        {"job_id": job_id, "name": name, "definition": each.model_dump_json(exclude_none=True)}
        for name, each in definitions.items()
        if name not in refused
    ]
    if rows:
        run(session, _STORED, rows)
    return tuple(refused)


def of_jobs(session: Session, job_ids: Collection[str]) -> dict[str, dict[str, SeriesDefinition]]:
    """Return the definitions of some jobs, by job and series; jobs without any are missing."""
    found: dict[str, dict[str, SeriesDefinition]] = {}
    rows = session.connection().execute(_OF_JOBS, {"job_ids": list(job_ids)})
    for job_id, name, text in rows:
        try:
            definition = SeriesDefinition.model_validate_json(text)
        except ValidationError:
            continue  # of a newer version
        found.setdefault(job_id, {})[name] = definition
    return found
