"""The small types that the spec is made of.

A section, names, numbers, and which member of a union a value is meant to be.

Not here: the fields themselves (``domain.spec.job``), and how a refusal is put into words
(``domain.spec.reading``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Annotated, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field

from lockstep.domain.errors import at_field
from lockstep.domain.job_environment import VERIFY
from lockstep.domain.kinds import offers
from lockstep.domain.kinds.devices import HIDDEN

NAME = r"^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
SHA256 = r"^[0-9a-f]{64}$"
FOLDER = r"^/"
DOTTED_PATH = r"^[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)+$"
COMMIT = r"^(?:[0-9a-f]{40}|[0-9a-f]{64})$"
GIT_TRANSPORTS: Final = ("https", "http", "ssh", "git", "file")
PATTERNS: Final = {
    NAME: (
        "1 to 63 lower-case letters, digits, '.', '_' and '-', with a letter or digit first and "
        "last"
    ),
    ENV_NAME: "at most 128 letters, digits and '_', not beginning with a digit",
    SHA256: "the archive's SHA-256 as 64 lower-case hexadecimal digits",
    FOLDER: "an absolute path, beginning with '/'",
    DOTTED_PATH: "the path of a class, such as torch.optim.NAdam",
    offers.NAME: offers.EXPECTED,
}
"""Description of each pattern for users."""

RESERVED_ENV = frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK "
    "ROLE_WORLD_SIZE ROLE_NAME "
    "MASTER_ADDR MASTER_PORT".split()
) | set(HIDDEN)
"""Set by the launcher for every rank; a job that sets them itself would break its own gang."""


class Section(BaseModel):
    """A part of the spec. Unknown fields are refused."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


def no_nul(text: str) -> str:
    if "\0" in text:
        raise at_field((), "expected a text without NUL characters", "remove it")
    return text


def git_url(url: str) -> str:
    """Refuse URLs that git would take for an option or a command, and passwords.

    Every reader of the spec could see a password.
    """
    transport, separator, rest = url.partition("://")
    scp_like = re.fullmatch(r"[A-Za-z0-9._-]+@[A-Za-z0-9.-]+:[^-].*", url)
    if not scp_like and not (
        separator and transport in GIT_TRANSPORTS and rest and not rest.startswith("-")
    ):
        accepted = ", ".join(f"{name}://" for name in GIT_TRANSPORTS)
        raise at_field(
            (),
            f"expected an address that begins with {accepted}, or user@host:path",
            "give the full address",
        )
    user, at, _ = rest.partition("/")[0].rpartition("@")
    if separator and at and ":" in user:
        raise at_field(
            (),
            "contains a password, which would be visible to every reader of the job",
            "remove it, and set up a key or a credential helper on the service's machines",
            show=False,
        )
    return no_nul(url)


def git_ref(ref: str) -> str:
    if ref.startswith("-") or not re.fullmatch(r"[^\s\0~^:?*\[\\]+", ref):
        raise at_field(
            (), "expected a branch, a tag or a full commit id", "such as main, v1.2 or 40 digits"
        )
    return ref


def _not_reserved(name: str) -> str:
    prefixed = name.startswith(("LOCKSTEP_", "TORCHELASTIC_")) and name != VERIFY
    if name in RESERVED_ENV or prefixed:
        raise at_field(
            (),
            "this variable is reserved: the launcher sets it for each rank",
            "use another name",
            show=False,
        )
    return name


def _not_bool(value: object) -> object:
    """Refuse true and false where a number is meant: Python would take them for 1 and 0."""
    if isinstance(value, bool):
        raise at_field((), "expected a number", "write it as a number, such as 8")
    return value


def _has_fields(value: object, *names: str) -> list[str]:
    """Return those of ``names`` that a document, or a model made from one, has."""
    return [
        name
        for name in names
        if (name in value if isinstance(value, dict) else hasattr(value, name))
    ]


def kind_of_gpus(value: object) -> str | None:
    return (
        "GpuRange"
        if isinstance(value, dict) or _has_fields(value, "min")
        else _number_or_none(value, "count")
    )


def kind_of_micro_size(value: object) -> str | None:
    return "auto" if value == "auto" else _number_or_none(value, "samples")


def _number_or_none(value: object, kind: str) -> str | None:
    """Return ``kind`` if a number was meant, also one written as a text.

    Errors then refer to a number.
    """
    is_number = isinstance(value, int | float) or (
        isinstance(value, str) and value.strip().lstrip("+-").isdecimal()
    )
    return kind if is_number else None


def kind_of_code(value: object) -> str | None:
    kinds = {"upload": "UploadedCode", "git": "GitCode", "path": "PathCode"}
    found = _has_fields(value, *kinds)
    return kinds[found[0]] if len(found) == 1 else None


def choice(kind: Callable[[object], str | None], expected: str) -> Discriminator:
    """Return a discriminator that selects the intended member of a union.

    Errors then refer to that member alone.
    """
    # No error context: it is a dict, which would make the annotation unhashable, and `| None` needs
    # its hash.
    return Discriminator(
        kind, custom_error_type="choice", custom_error_message=f"expected {expected}"
    )


Name = Annotated[str, Field(pattern=NAME, description=f"{PATTERNS[NAME].capitalize()}.")]
EnvName = Annotated[str, Field(pattern=ENV_NAME)]
FreeEnvName = Annotated[EnvName, AfterValidator(_not_reserved)]
Offer = Annotated[str, Field(pattern=offers.NAME, max_length=offers.CHARS_MAX)]
Sha256 = Annotated[str, Field(pattern=SHA256)]
NO_BOOL: Final = BeforeValidator(_not_bool)
"""Comes after the bounds: before them, they would be missing from the JSON schema."""
