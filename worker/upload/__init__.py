"""Upload of metrics, log lines, events and samples into the database."""
