"""Tests of the broker, with real servers and real processes."""
