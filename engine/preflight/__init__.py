"""Checks of a task before the first step."""
