"""Metric series: streams, chunks and queries."""
