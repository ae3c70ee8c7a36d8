"""Tests of the room ``system``."""
