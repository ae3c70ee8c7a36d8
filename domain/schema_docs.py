"""Models with descriptions of their fields, read when a JSON schema is written.

pydantic's own ``use_attribute_docstrings`` reads the source of every class at import, which is a
tenth of the time that a short command takes; only the API's description needs those texts.

Not here: the spec's models (``domain.spec.fields.Section``), whose descriptions the pages and the
API always need.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic_core import CoreSchema


class Described:
    """Before ``BaseModel`` in a class's bases.

    A model with the text below each field as that field's description.
    """

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        written = handler(core_schema)
        properties = handler.resolve_ref_schema(written).get("properties", {})
        for base in reversed(cls.__mro__):
            # Page[JobView] has no source of its own; Page, which comes before it here, has.
            if issubclass(base, Described) and base is not Described and "[" not in base.__name__:
                for name, text in texts_below_fields(base).items():
                    properties.get(name, {}).setdefault("description", text)
        return written


def texts_below_fields(model: type) -> dict[str, str]:
    """The text that stands below each annotated name in a class's body."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }
