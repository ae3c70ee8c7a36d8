"""Tests of ``system``."""
