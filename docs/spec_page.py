"""Page of the job spec: its fields and the arguments of the built-in tasks, from their schema.

Not here: the other pages (``docs/generate.py``).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from lockstep.domain.spec import feature_gate, tasks
from lockstep.domain.spec.job import JobSpec


def page(notice: str) -> str:
    """Every field of the job spec, and the arguments of the built-in tasks."""
    schema = JobSpec.model_json_schema()
    lines = [
        notice,
        "# The job spec",
        "",
        "The same document is the request body of `POST /v1/jobs`, the YAML file of `lockstep "
        "submit`, and the input of the engine.",
        "Unknown fields are refused. Fields marked *not yet* are checked now and refused when "
        "they ask for something this",
        "version does not have: nothing that is asked for is ever ignored.",
        "",
        "| field | type | default | meaning |",
        "| --- | --- | --- | --- |",
    ]
    later = {entry.pointer.strip("/").replace("/", "."): entry for entry in feature_gate.LATER}
    fields = list(_fields(schema, schema, ""))
    for path, definition, needed in fields:
        meaning = cell(definition.get("description", ""))
        if path in later:
            meaning += f" **Not yet:** {later[path].what.rstrip(',')}; {later[path].instead}."
        default = (
            "*needed*"
            if needed
            else f"`{value_of(definition['default'])}`"
            if "default" in definition
            else ""
        )
        lines.append(
            f"| `{path}` | {type_of(definition, schema)} | {default} | {meaning.strip()} |"
        )
    missing = set(later) - {path for path, *_ in fields}
    if missing:
        raise ValueError(
            f"domain.spec.feature_gate names fields that the spec does not have: {sorted(missing)}"
        )
    for name, model in tasks.BUILT_IN.items():
        lines += [
            "",
            f"## `train.task_args` of `{name}`",
            "",
            cell(inspect.getdoc(model) or ""),
            "",
        ]
        lines += ["| argument | type | default | meaning |", "| --- | --- | --- | --- |"]
        lines += _argument_rows(model)
    return "\n".join(lines) + "\n"


def _argument_rows(model: type[BaseModel]) -> Iterator[str]:
    schema = model.model_json_schema()
    for name, definition in schema["properties"].items():
        meaning = cell(definition.get("description", ""))
        default = f"`{value_of(definition['default'])}`" if "default" in definition else "*needed*"
        yield f"| `{name}` | {type_of(definition, schema)} | {default} | {meaning} |"


def _fields(
    definition: dict[str, Any], schema: dict[str, Any], prefix: str
) -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield (path, definition, is required) of every field, sections before their fields."""
    for name, field in definition.get("properties", {}).items():
        path = f"{prefix}{name}"
        sections = list(_sections(field, schema))
        own = {
            **field,
            "description": field.get("description")
            or (sections[0].get("description", "") if sections else ""),
        }
        if sections:
            if isinstance(own.get("default"), dict):
                del own["default"]  # a section's default is those of its fields
        elif name not in definition.get("required", ()) and "default" not in own:
            own["default"] = (
                [] if own["type"] == "array" else "{}"
            )  # made by a factory, which the schema leaves out
        yield path, own, name in definition.get("required", ())
        for section in sections:
            mark = f"*{section['title']}*: " if len(sections) > 1 else ""
            for inner, inner_field, inner_needed in _fields(section, schema, f"{path}."):
                meaning = mark + inner_field.get("description", "")
                yield (
                    inner,
                    {**inner_field, "description": meaning.removesuffix(": ")},
                    inner_needed,
                )


def _sections(definition: dict[str, Any], schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The objects that a value may be."""
    if "$ref" in definition:
        yield schema["$defs"][definition["$ref"].rsplit("/", 1)[1]]
    for union in ("anyOf", "oneOf"):
        for member in definition.get(union, ()):
            yield from _sections(member, schema)


def type_of(definition: dict[str, Any], schema: dict[str, Any]) -> str:
    if "$ref" in definition:
        return "object"
    for union in ("anyOf", "oneOf"):
        if union in definition:
            return " or ".join(
                dict.fromkeys(type_of(member, schema) for member in definition[union])
            )
    if "enum" in definition or "const" in definition:
        return " \\| ".join(
            f"`{value}`" for value in definition.get("enum", [definition.get("const")])
        )
    if definition.get("type") == "array" and "items" in definition:
        return f"list of {type_of(definition['items'], schema)}"
    names = {
        "string": "text",
        "integer": "whole number",
        "boolean": "true or false",
        "array": "list",
        "null": "null",
    }
    name = names.get(str(definition.get("type")), str(definition.get("type", "any value")))
    return name + _bounds(definition)


def _bounds(definition: dict[str, Any]) -> str:
    words = []
    for key, word in (
        ("minimum", "from"),
        ("exclusiveMinimum", "above"),
        ("maximum", "to"),
        ("exclusiveMaximum", "below"),
    ):
        if key in definition:
            words.append(f"{word} {value_of(definition[key])}")
    if "maxLength" in definition:
        words.append(f"up to {definition['maxLength']:,} characters")
    return f" {' '.join(words)}" if words else ""


def value_of(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def cell(text: str) -> str:
    """Text for one cell of a table."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|")
