"""Faults that the drills of tests/faults inject, and loads under them."""
