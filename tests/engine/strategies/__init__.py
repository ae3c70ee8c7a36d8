"""Strategies: the suite that all share, and the properties of each."""
