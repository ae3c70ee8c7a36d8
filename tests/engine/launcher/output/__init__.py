"""Output of ranks: streams, rate limit, full disk."""
