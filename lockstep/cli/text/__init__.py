"""Text output: tables, charts and frames of live views."""
