"""Column types and names that both databases' tables share.

Not here: the tables (``storage.db.tables``, ``storage.db.series_tables``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from sqlalchemy import BigInteger, Double, Enum, Integer, LargeBinary, String, Text
from sqlalchemy.orm import mapped_column

NAMING: Final = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}
"""Constraints have names that we choose, so that a later migration can drop them on both
databases."""

Id = String(36)
"""A UUIDv7 in its usual spelling: it sorts by the time it was made."""
PrimaryId = Annotated[str, mapped_column(Id, primary_key=True)]
Name = String(255)
Named = Annotated[str, mapped_column(Name)]
ShortWord = Annotated[str, mapped_column(String(16))]
Word = Annotated[str, mapped_column(String(64))]
LongText = Annotated[str, mapped_column(Text)]
BigInt = Annotated[int, mapped_column(BigInteger)]
Count = Annotated[int, mapped_column(default=0)]
Json = dict[str, Any]

# SQLite counts up by itself only for a column declared exactly INTEGER, which holds 64 bits there.
BigId = BigInteger().with_variant(Integer, "sqlite")
Seconds = Double
"""Seconds since the epoch on the database's clock, or a duration."""
Blob = LargeBinary


def choice(values: type[StrEnum], name: str) -> Enum:
    """A string column that holds one of an enum's values, with a CHECK constraint called ``name``.

    Not PostgreSQL's own ENUM type: a value can be added to a CHECK inside one transaction, on both
    databases.
    """
    return Enum(
        values,
        name=name,
        native_enum=False,
        create_constraint=True,
        validate_strings=True,
        length=16,
        values_callable=lambda kind: [member.value for member in kind],
    )
