"""Upload of what rank 0 reports as events."""
