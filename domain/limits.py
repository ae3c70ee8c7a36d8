"""Every limit of size and count, with its unit. Each is enforced at one boundary and tested there.

Not here: waits (``domain.timings``).
"""

from __future__ import annotations

from typing import Final

SPEC_BYTES_MAX: Final = 256 * 1024
"""Body of ``POST /v1/jobs``. A spec is a page of YAML; a megabyte of it is a mistake."""
UPLOAD_BYTES_MAX: Final = 256 * 1024 * 1024
"""One code archive, compressed."""
UPLOAD_UNPACKED_BYTES_MAX: Final = 1024 * 1024 * 1024
UPLOAD_FILES_MAX: Final = 50_000
PAGE_SIZE_MAX: Final = 500
PAGE_SIZE_DEFAULT: Final = 50
LOG_PAGE_LINES_MAX: Final = 5_000
LOG_LINE_BYTES_MAX: Final = 64 * 1024
"""A longer line is cut here, and says so."""
LOG_SEGMENT_BYTES: Final = 1024 * 1024
LOG_BACKLOG_BYTES_MAX: Final = 64 * 1024 * 1024
"""Unshipped log bytes an attempt may keep on its node; beyond it the launcher reads its ranks' pipes more slowly."""
METRIC_NAME_CHARS_MAX: Final = 200
METRIC_NAMES_PER_JOB_MAX: Final = 1_000
METRIC_POINTS_PER_CHUNK: Final = 512
SERIES_POINTS_MAX: Final = 10_000
"""``max_points`` of one series in one response."""
IDEMPOTENCY_KEY_CHARS_MAX: Final = 200
BATCH_SIZE_MAX: Final = 2**31
WORLD_SIZE_MAX: Final = 4_096
STEPS_MAX: Final = 10**9
PLAN_SLOTS_MAX: Final = 1_000_000
"""Accumulation steps of one rank in one optimizer step."""
TRACEBACK_CHARS_MAX: Final = 8_000
