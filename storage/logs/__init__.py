"""Log lines: appended in batches, read by page."""
