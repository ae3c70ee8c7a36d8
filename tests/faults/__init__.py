"""Tests of the service's guarantees, measured during faults."""
