"""Every limit of size and count, with its unit. Each is enforced at one boundary and tested there.

Not here: waits (``domain.life.timings``).
"""

from __future__ import annotations

from typing import Final

SPEC_BYTES_MAX: Final = 256 * 1024
"""Body of ``POST /v1/jobs``. A spec is a page of YAML; a megabyte of it is a mistake."""
DATABASE_FREE_BYTES_MIN: Final = 16 * 1024 * 1024
"""Free space below which no new jobs are accepted into a database on this machine's disk: the rest
is for the leases and ends of the jobs that run."""
UPLOAD_BYTES_MAX: Final = 256 * 1024 * 1024
"""One code archive, compressed."""
UPLOAD_UNPACKED_BYTES_MAX: Final = 1024 * 1024 * 1024
UPLOAD_FILES_MAX: Final = 50_000
PAGE_SIZE_MAX: Final = 500
STOP_GRACE_SECONDS_MAX: Final = 300
PAGE_SIZE_DEFAULT: Final = 50
LOG_PAGE_LINES_MAX: Final = 5_000
LOG_STREAMS_MAX: Final = 256
"""Logs that one api process streams at once; further clients read by page, as the command line does
automatically."""
LOG_LINE_BYTES_MAX: Final = 64 * 1024
"""A longer line is truncated here, with a note."""
LOG_SEGMENT_BYTES: Final = 1024 * 1024
LOG_BACKLOG_BYTES_MAX: Final = 64 * 1024 * 1024
"""Unstored log bytes an attempt may keep on its node; beyond it the launcher reads its ranks'
pipes more slowly."""
LOG_STORED_BYTES: Final = 64 * 1024 * 1024
"""Log segments that are stored already and stay on the node until the attempt ends: if a backup of
the database is restored, they are sent again. At the rate below they hold the last minute, and of
an ordinary log all of it."""
LOG_BYTES_PER_SECOND_MAX: Final = 1024 * 1024
"""Average over ten seconds that the ranks of one node may write to their log. A node's agent stores
five times as much. The excess is counted and omitted in the middle, with a line that reports it."""
LOG_STAMP_BYTES: Final = 100
"""Overhead of each line beyond its text: the data stored with it. Empty lines are not free."""
LOG_BYTES_PER_ATTEMPT_MAX: Final = 1024 * 1024 * 1024
"""Log text that is kept of one attempt, before compression (about a tenth of it afterwards): a
quarter of it from the head of the log, the rest from its end. Without it one job that writes at the
rate above would fill a disk within days."""
LOG_SEGMENTS_MAX: Final = 10_000
"""Entries in the folder of an attempt's log: an attempt that has more of them is not listed."""
RESULT_BYTES_MAX: Final = 256 * 1024
"""The launcher's result, with its traceback and excerpt."""
EVIDENCE_BYTES_MAX: Final = 1024 * 1024
"""One file of a rank about its failure: its error, its stacks, its collectives."""
MANIFEST_BYTES_MAX: Final = 1024 * 1024
CHECKPOINT_FILES_MAX: Final = 4_096
KEPT_FILES_MAX: Final = 10_000
"""Files that a job keeps."""
KEPT_PATH_CHARS_MAX: Final = 400
KEPT_GB_MAX: Final = 100_000
KEPT_PATTERNS_MAX: Final = 20
"""Of a job or a request. 10,000 names take a second and a half with so many."""
EVENT_LINE_BYTES_MAX: Final = 32 * 1024
"""One event of a rank or the launcher. The longest has stacks of ``TRACEBACK_CHARS_MAX``."""
EVENTS_PER_ATTEMPT_MAX: Final = 1_000
"""Events of one attempt in the job's history. Further ones are counted."""
EVENTS_PER_MINUTE_MAX: Final = 50
"""Of them, those that ranks and launcher write. Further ones are dropped and counted. Checkpoints
have a limit of their own."""
CHECKPOINTS_WAITING_MAX: Final = 8
"""Checkpoints of one attempt that wait on the node for the store; ``keep_last`` and the best one
if these are more. Of more, the oldest are skipped."""
SPOOL_LENGTH_MAX: Final = 2**36
"""Offset in a spool up to which the service appends to it. What is stored is released from the
disk, and the offsets go on."""
METRIC_LINE_BYTES_MAX: Final = 64 * 1024
"""A line of a job's metrics: 1,000 names of 40 characters with their values."""
METRIC_NAME_CHARS_MAX: Final = 200
METRIC_NAMES_PER_JOB_MAX: Final = 1_000
SERIES_DEFINITIONS_PER_ATTEMPT_MAX: Final = 10_000
"""Definitions of series that one agent stores of an attempt: each name of a job ten times."""
SERIES_UNIT_CHARS_MAX: Final = 24
SERIES_GROUP_CHARS_MAX: Final = 60
SYSTEM_NAMES_PER_JOB_MAX: Final = 2_000
"""Series that the node agents measure (``system/``), counted apart from the job's own: a node of
eight GPUs has 54."""
SYSTEM_SPOOL_BYTES_MAX: Final = 16 * 1024 * 1024
"""Disk space on a node for them while they cannot be stored: a day of a node of eight GPUs. Half of
it stays when it is stored, as for the job's own metrics."""
TENSORBOARD_FILES_MAX: Final = 200
"""Event files of one job that are read. Each is asked for its length four times a second."""
TENSORBOARD_SOURCES_MAX: Final = 1_000
"""Contents of event files, with those that were rewritten."""
METRIC_POINTS_PER_JOB_MAX: Final = 200_000_000
"""Stored points of a job's own series, and as many again of the agents' measurements: about 2 GB. A
run of 20 series and 10 steps a second writes as many in eleven days; a flood at the rate below, in
five and a half hours."""
METRIC_POINTS_PER_CHUNK: Final = 512
METRIC_POINTS_PER_SECOND_MAX: Final = 10_000
"""Average over ten seconds that one job may write; beyond it steps are decimated. A run of 20
series would have to make 500 steps a second; 10,000 points take a sixth of one core of the node,
and 250 KB of the database."""
METRIC_SPOOL_BYTES_MAX: Final = 256 * 1024 * 1024
"""Disk space on a node for a job's metrics while they cannot be stored. A run of 20 series and 10
steps a second writes it in ten hours; a flood, within half a minute."""
METRIC_SPOOL_STORED_BYTES: Final = 64 * 1024 * 1024
"""Metrics that are stored already and stay on the node until the attempt ends, for the same reason.
A run of 20 series and 10 steps a second writes it in two and a half hours."""
SERIES_POINTS_MAX: Final = 10_000
"""``max_points`` of one series in one response."""
SERIES_JOBS_MAX: Final = 200
"""Jobs whose series are read at once, and that a filter names by their ids: a large sweep."""
SUMMARY_NAMES_MAX: Final = 20
"""Series of each of these jobs whose figures are read at once: 1 MB of JSON."""
SERIES_POINTS_OF_JOBS_MAX: Final = 200_000
"""Jobs × names × ``max_points`` of such a response: 16 MB of JSON."""
IDEMPOTENCY_KEY_CHARS_MAX: Final = 200
LABELS_PER_JOB_MAX: Final = 64
LABEL_KEY_CHARS_MAX: Final = 63
LABEL_VALUE_CHARS_MAX: Final = 255
DRAIN_REASON_CHARS_MAX: Final = 200
NOTE_CHARS_MAX: Final = 2_000
RETENTION_DAYS_MAX: Final = 36_500
BATCH_SIZE_MAX: Final = 2**31
WORLD_SIZE_MAX: Final = 4_096
STEPS_MAX: Final = 10**9
ACCUMULATION_STEPS_MAX: Final = 1_000_000
"""Accumulation steps of one rank in one optimizer step."""
OUTCOME_TEXT_BYTES_MAX: Final = 2 * 1024
"""One text of an outcome: its message, its exception. A longer one is cut."""
TRACEBACK_CHARS_MAX: Final = 8_000
EXCERPT_LINES_MAX: Final = 20
"""Lines of the failing rank's log in an outcome. The rest is in the log."""
EXCERPT_LINE_CHARS_MAX: Final = 500
EXCERPT_CHARS_MAX: Final = 4_000
