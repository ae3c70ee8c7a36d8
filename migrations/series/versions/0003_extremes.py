"""Extremes of each series, by which lists of jobs are filtered and sorted."""

from __future__ import annotations

import sys

from alembic import op
from sqlalchemy import Column, Double, text

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.add_column("series_latest", Column("min", Double))
    op.add_column("series_latest", Column("max", Double))
    # The points of an old job may be deleted; its newest value stays. The finite extreme of a chunk
    # with an infinite one is in its packed points only, and is left out.
    op.execute(
        text(
            "UPDATE series_latest SET"
            " min = coalesce((SELECT min(c.min) FROM series_chunks c"
            " WHERE c.job_id = series_latest.job_id AND c.name = series_latest.name"
            " AND c.min BETWEEN :least AND :most),"
            " CASE WHEN value BETWEEN :least AND :most THEN value END),"
            " max = coalesce((SELECT max(c.max) FROM series_chunks c"
            " WHERE c.job_id = series_latest.job_id AND c.name = series_latest.name"
            " AND c.max BETWEEN :least AND :most),"
            " CASE WHEN value BETWEEN :least AND :most THEN value END)"
        ).bindparams(least=-sys.float_info.max, most=sys.float_info.max)
    )
    op.create_index("ix_series_latest_name_job_id", "series_latest", ["name", "job_id"])
