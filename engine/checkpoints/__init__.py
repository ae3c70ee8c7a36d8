"""Checkpoints: files, saving, restoring, export, and initial weights."""
