"""Output of the ranks, from their pipes into the log."""
