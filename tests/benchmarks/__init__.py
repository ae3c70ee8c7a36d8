"""The benchmarks' own parts: that what they measure with is right."""
