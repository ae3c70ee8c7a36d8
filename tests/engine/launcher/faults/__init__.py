"""Faults of ranks under a real launcher: ends, stalls, disagreements, stops."""
