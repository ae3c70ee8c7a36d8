"""Scheduler lease and reads, gauges and tokens."""
