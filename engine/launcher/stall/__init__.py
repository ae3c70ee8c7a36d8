"""Detection of ranks that hang or lag."""
