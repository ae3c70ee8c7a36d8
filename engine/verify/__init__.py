"""Verification of a job without the service, and the engine's part in one under it."""
