"""Download of a job's lines or points as one file.

Not here: the content (``api.routes.logs``, ``api.routes.series``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from fastapi.responses import StreamingResponse

from lockstep.api.http.problems import documented
from lockstep.storage.db.tables import JobRow


def described(media_type: str) -> dict[int | str, dict[str, Any]]:
    """Return the ``responses`` of a route that sends such a file."""
    text = {"type": "string"}
    name = {"description": "Suggested file name.", "schema": text}
    sent = {"content": {media_type: {"schema": text}}, "headers": {"Content-Disposition": name}}
    return {200: sent, **documented(404)}


def sent(
    job: JobRow, content: Iterator[bytes], media_type: str, *, ending: str
) -> StreamingResponse:
    """Return the response with a file that is named after the job."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", job.name)[:100]
    headers = {
        "Content-Disposition": f'attachment; filename="{name}-{job.id}.{ending}"',
        "Cache-Control": "no-store",
    }
    return StreamingResponse(content, media_type=media_type, headers=headers)
