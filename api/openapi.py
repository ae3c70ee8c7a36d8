"""The API's description: what FastAPI cannot know by itself.

The body of a submit is read by ``api.body`` rather than by FastAPI, so that it is refused in our own words; its schema and
examples are added here. Problems are given their media type, which FastAPI would call ``application/json``.

Not here: the routes, which carry their own summaries and responses.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api.problems import MEDIA_TYPE
from domain.spec import JobSpec

REF: Final = "#/components/schemas/{model}"
TRAIN_EXAMPLE: Final[dict[str, Any]] = {
    "name": "stdlib-gpt",
    "kind": "train",
    "resources": {"gpus": 2},
    "train": {
        "task": "causal_lm",
        "batch": {"size": 64, "micro_size": 8},
        "steps": 200,
        "optimizer": {"name": "adamw", "lr": 3.0e-4},
        "schedule": {"name": "cosine", "warmup_steps": 20, "min_lr": 3.0e-5},
        "checkpoint": {"every_steps": 50, "keep_last": 3},
    },
}
SCRIPT_EXAMPLE: Final[dict[str, Any]] = {
    "name": "my-script",
    "kind": "script",
    "resources": {"gpus": 2},
    "script": {"command": ["train.py", "--lr", "3e-4"]},
    "code": {"upload": "0" * 64},
    "env": {"OMP_NUM_THREADS": "1"},
}
SPEC_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "A job spec. Unknown fields are refused.",
        "content": {
            "application/json": {
                "schema": {"$ref": REF.format(model="JobSpec")},
                "examples": {
                    "train": {"summary": "A training run whose loop Lockstep owns", "value": TRAIN_EXAMPLE},
                    "script": {"summary": "An existing torchrun script", "value": SCRIPT_EXAMPLE},
                },
            }
        },
    }
}
ARCHIVE_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "A tar archive compressed with gzip: the code folder's content.",
        "content": {"application/gzip": {"schema": {"type": "string", "format": "binary"}}},
    }
}
DESCRIPTION: Final = """
Training jobs on shared GPUs. Everything under `/v1` needs `Authorization: Bearer TOKEN`.

Errors are problem documents (RFC 9457): `detail` says what was wrong with which value and what was expected, `errors`
points to each value, `next_step` says what to do. Every response carries `X-Request-Id`.
"""


def describe(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of ``app``, made once."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes, tags=app.openapi_tags
        )
        schemas = document["components"]["schemas"]
        schema = JobSpec.model_json_schema(ref_template=REF)
        schemas.update(schema.pop("$defs", {}))
        schemas["JobSpec"] = schema
        for path in document["paths"].values():
            for operation in path.values():
                _name_problems(operation["responses"])
        app.openapi_schema = document
    return app.openapi_schema


def _name_problems(responses: dict[str, Any]) -> None:
    for status, response in responses.items():
        content = response.get("content", {})
        if status >= "400" and "application/json" in content:
            content[MEDIA_TYPE] = content.pop("application/json")
