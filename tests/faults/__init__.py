"""Faults: what the service promises, measured while things break."""
