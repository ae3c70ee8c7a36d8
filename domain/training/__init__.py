"""Batch plan, memory forecast, metrics and scaling of a training job."""
