r"""Filter of a list of jobs: the grammar of its text.

A filter is tokens with spaces between them, and all of them must hold::

    owner:ada gpus>4 lr<1e-3 val/loss:min<2 label:mix "two words"

A token is a word, or a field, an operator (``:`` and ``=`` are equal, ``!=``, ``<``, ``<=``, ``>``,
``>=``) and a value. A word is a part of the name, or an end of the id. Quotes keep spaces, commas
and operators in a value. Several values of ``:`` and ``!=`` have commas between them. ``*`` in a
text stands for any text, and capitals count as small letters.

Not here: names of columns (``domain.listing.columns``), the statements (``storage.jobs``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from enum import StrEnum
from typing import Final

from lockstep.domain import limits
from lockstep.domain.errors import ErrorCode, FieldError, LockstepError
from lockstep.domain.listing.columns import CHOICES, Kind

TOKENS_MAX: Final = 30
"""A longer filter would be a statement that takes a database minutes to plan."""
VALUES_MAX: Final = 50
NEAR_MAX: Final = 5


class Op(StrEnum):
    """Operator of a token."""

    IS = "="
    IS_NOT = "!="
    LESS = "<"
    AT_MOST = "<="
    MORE = ">"
    AT_LEAST = ">="


_OPS: Final = ("!=", "<=", ">=", "=", "<", ">")
_UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?[smhdw])+")
_PIECE: Final = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_DAY: Final = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True)
class Token:
    """One condition, as it was written."""

    text: str
    field: str
    """Empty for a word."""
    op: Op
    values: tuple[str, ...]


class TokenError(ValueError):
    """A token that cannot be used: what is wrong, and what to write in its place."""

    def __init__(self, message: str, next_step: str = ""):
        super().__init__(message)
        self.message = message
        self.next_step = next_step


def refusal(wrong: Sequence[tuple[str, TokenError]], parameter: str = "filter") -> LockstepError:
    """Return the refusal of a request with these tokens."""
    text, first = wrong[0]
    return LockstepError(
        ErrorCode.INVALID,
        f"{parameter}: {text}: {first.message}",
        next_step=first.next_step,
        fields=tuple(
            FieldError(f"/query/{parameter}", error.message, token, error.next_step)
            for token, error in wrong
        ),
    )


def unknown(name: str, known: Sequence[str]) -> TokenError:
    """Return the error about a field that no job has, with the known ones near to it."""
    return TokenError(f"no job has a field {name!r}", _instead(name, known))


def _instead(text: str, known: Sequence[str]) -> str:
    lasts: dict[str, str] = {}
    for each in known:
        lasts.setdefault(re.split(r"[./:]", each)[-1], each)
        lasts.setdefault(each, each)
    near = [lasts[end] for end in get_close_matches(text, lasts, NEAR_MAX, 0.6)]
    held = [each for each in known if text and text in each]
    found = list(dict.fromkeys([*near, *held]))[:NEAR_MAX]
    return f"Did you mean {' or '.join(found)}?" if found else ""


def tokens_of(text: str) -> list[Token]:
    """Return the tokens of a filter.

    Raises
    ------
    LockstepError
        ``INVALID``, with each token that has no field, no value or no closing quote.
    """
    found: list[Token] = []
    wrong: list[tuple[str, TokenError]] = []
    for written in _split(text):
        try:
            found.append(_token(written))
        except TokenError as error:
            wrong.append((written, error))
    if len(found) > TOKENS_MAX:
        most = TokenError(f"expected at most {TOKENS_MAX} tokens, got {len(found)}")
        wrong.append((found[TOKENS_MAX].text, most))
    if wrong:
        raise refusal(wrong)
    return found


def _split(text: str) -> Iterator[str]:
    """Yield the pieces between spaces that are not in quotes."""
    piece, quoted = "", False
    for letter in text:
        if letter == '"':
            quoted = not quoted
        if letter.isspace() and not quoted:
            if piece:
                yield piece
            piece = ""
        else:
            piece += letter
    if piece:
        yield piece


def _token(written: str) -> Token:
    if written.count('"') % 2:
        raise TokenError("has no closing quote", 'Write it as name:"two words".')
    place, sign = _operator(written)
    if place < 0:
        return Token(written, "", Op.IS, (written.replace('"', ""),))
    field = written[:place].replace('"', "")
    op = Op.IS if sign == ":" else Op(sign)
    rest = written[place + len(sign) :]
    values = tuple(each.replace('"', "") for each in _between(rest, ","))
    if not field:
        raise TokenError("has no field", "Write it as gpus>4, or in quotes for a word.")
    if not all(values):
        raise TokenError("has no value", f"Write it as {field}{sign}VALUE.")
    if len(values) > 1 and op not in (Op.IS, Op.IS_NOT):
        raise TokenError("has several values", f"Give one: {field}{sign}{values[0]}.")
    most = limits.SERIES_JOBS_MAX if field == "id" else VALUES_MAX
    if len(values) > most:
        raise TokenError(f"has {len(values)} values, expected at most {most}")
    return Token(written, field, op, values)


def _operator(written: str) -> tuple[int, str]:
    """Return the place of the operator and the operator; -1 for a word.

    A colon is one only without another: ``val/loss:min<2``, ``label:team=vision``.
    """
    quoted, colon = False, -1
    for place, letter in enumerate(written):
        quoted ^= letter == '"'
        if quoted:
            continue
        sign = next((sign for sign in _OPS if written.startswith(sign, place)), None)
        if sign is not None:
            return place, sign
        if letter == ":" and colon < 0:
            colon = place
    return colon, ":" if colon >= 0 else ""


def _between(text: str, separator: str) -> list[str]:
    """Return the pieces between separators that are not in quotes."""
    pieces, quoted = [""], False
    for letter in text:
        quoted ^= letter == '"'
        if letter == separator and not quoted:
            pieces.append("")
        else:
            pieces[-1] += letter
    return pieces


def number_of(kind: Kind, text: str) -> float:
    """Return the number of a value, in the unit of its column.

    Raises
    ------
    TokenError
        For a text that is not one.
    """
    if kind is Kind.MOMENT:
        return _moment(text)
    if kind is Kind.DURATION and _DURATION.fullmatch(text):
        return sum(float(count) * _UNITS[unit] for count, unit in _PIECE.findall(text))
    is_percent = kind is Kind.SHARE and text.endswith("%")
    try:
        number = float(text.removesuffix("%") if is_percent else text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        form = {Kind.DURATION: "a duration such as 90m, 2h or 7d", Kind.SHARE: "50% or 0.5"}
        raise TokenError(f"expected {form.get(kind, 'a number')}, got {text!r}")
    return number / 100 if is_percent else number


def _moment(text: str) -> float:
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise TokenError(
            f"expected a day or a time, got {text!r}",
            "Write 2026-11-26 or 2026-11-26T18:30Z; age<7d counts back from now.",
        ) from None


def day_of(text: str) -> tuple[float, float] | None:
    """Return the bounds of a day (UTC), the end excluded; None for a text with a time."""
    if not _DAY.fullmatch(text):
        return None
    start = _moment(text)
    return start, start + timedelta(days=1).total_seconds()


def check_choice(field: str, value: str) -> None:
    """Refuse a value that a column cannot have.

    Raises
    ------
    TokenError
        With the possible values.
    """
    known = CHOICES.get(field)
    if known is not None and "*" not in value and value.lower() not in known:
        raise TokenError(f"expected {', '.join(known)}, got {value!r}", _instead(value, known))
