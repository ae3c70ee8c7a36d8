"""Kept files on a node: rounds, and the next attempt."""
