"""Layers that are cut over several ranks."""
