"""Placement of queued jobs, and forecasts of their start."""
