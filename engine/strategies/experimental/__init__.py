"""Strategies whose steps differ from those of plain data parallelism."""
