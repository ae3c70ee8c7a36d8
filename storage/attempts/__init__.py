"""Rows of attempts, assignments, nodes, checkpoints and events, and their transitions."""
