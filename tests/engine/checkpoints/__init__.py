"""Checkpoints: writing, choosing, restoring, exporting."""
