"""Tests of the benchmarks' own parts, on which their measurements depend."""
